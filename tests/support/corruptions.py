"""Corruptions of files: what a disk, an editor, a spreadsheet or a stopped copy does to data of
one's own.

Each takes a file and a generator, changes the file, and returns what it did in a few words; ""
where it could not.
"""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

Corruption = Callable[[Path, random.Random], str]

CELLS = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e400", "1e300", "-", "x", "1,5", "1.234.567", "1 000",
    "01", "1.0", "+1", "true", "False", "None", "NA", "?", "caf\u00e9", "0x1A", "\uff11\uff12",
    " 7", "7 ", "1_0", "2024-01-05", "05.01.2024", "-3", "99999999999999999999", "a b", "'1'",
    "#REF!", "\u0663", "0x10", "\u00a05", "POS", "pos ", "train", "[MAX", "###1", ":", "{}",
)  # fmt: skip
"""What may come to stand in a cell."""

NEW_LINES = (
    b"\n", b"\r\n", b"   \n", b"# a comment\n", b",,,,\n", b"\0\n", b"\t\n", b"garbage\n", b"{}\n",
)  # fmt: skip
NEW_BYTES = (
    b'"', b"\0", b"\xe9", b"\xff\xfe", b"\r", b"\n", b"'", b",", b"\t", b":", b";", b'""',
    b"\xe2\x80\x8b", b"\\",
)  # fmt: skip
PARQUET_KINDS = (
    "texts", "null", "removed", "added", "nan", "turned", "inf", "flags", "lists", "one text",
    "bytes",
)  # fmt: skip

SEPARATORS = (",", "\t", ";", ":", " ", "|")


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _write(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines))


def _separator(line: bytes) -> bytes:
    """What most likely separates cells."""
    counts = {mark.encode(): line.count(mark.encode()) for mark in SEPARATORS}
    return max(counts, key=lambda mark: counts[mark])


def _ended(line: bytes) -> tuple[bytes, bytes]:
    body = line.rstrip(b"\r\n")
    return body, line[len(body) :]


def cell(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    row = rng.randrange(len(lines))
    body, end = _ended(lines[row])
    mark = _separator(body)
    cells = body.split(mark)
    column, new = rng.randrange(len(cells)), rng.choice(CELLS)
    cells[column] = new.encode()
    lines[row] = mark.join(cells) + end
    _write(path, lines)
    return f"line {row + 1}, cell {column + 1}: {new!r}"


def column(path: Path, rng: random.Random) -> str:
    """A column's type becomes mixed: each second of its cells."""
    lines = _lines(path)
    mark, new = _separator(lines[len(lines) // 2]), rng.choice(CELLS)
    place = rng.randrange(1 + lines[len(lines) // 2].count(mark))
    for row in range(1, len(lines), 2):
        body, end = _ended(lines[row])
        cells = body.split(mark)
        if place < len(cells):
            cells[place] = new.encode()
        lines[row] = mark.join(cells) + end
    _write(path, lines)
    return f"column {place + 1}, each second line: {new!r}"


def dropped(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    row = rng.randrange(len(lines))
    del lines[row]
    _write(path, lines)
    return f"line {row + 1} dropped"


def doubled(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    row = rng.randrange(len(lines))
    lines.insert(rng.choice((row, rng.randrange(len(lines)))), lines[row])
    _write(path, lines)
    return f"line {row + 1} twice"


def swapped(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    _write(path, lines)
    return f"lines {first + 1} and {second + 1} swapped"


def shortened(path: Path, rng: random.Random) -> str:
    """A line loses its end, and perhaps its line end."""
    lines = _lines(path)
    row = rng.randrange(len(lines))
    body, end = _ended(lines[row])
    kept = rng.randrange(len(body) + 1)
    lines[row] = body[:kept] + rng.choice((b"", end))
    _write(path, lines)
    return f"line {row + 1} cut after {kept}"


def inserted(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    new = rng.choice(NEW_LINES)
    row = rng.randrange(len(lines) + 1)
    lines.insert(row, new)
    _write(path, lines)
    return f"line {row + 1} new: {new!r}"


def letter(path: Path, rng: random.Random) -> str:
    """A few bytes come into a line."""
    data = path.read_bytes()
    new, place = rng.choice(NEW_BYTES), rng.randrange(len(data) + 1)
    if rng.random() < 0.5:  # where a cell begins, as quotes do harm there
        marks = [at + 1 for at, byte in enumerate(data) if byte in b",\n\t"]
        place = rng.choice(marks or [place])
    path.write_bytes(data[:place] + new + data[place:])
    return f"byte {place}: {new!r} put in"


def quotes(path: Path, rng: random.Random) -> str:
    """Two quotes, around anything."""
    data = path.read_bytes()
    first, second = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    path.write_bytes(data[:first] + b'"' + data[first:second] + b'"' + data[second:])
    return f"quotes at bytes {first} and {second}"


def header(path: Path, rng: random.Random) -> str:
    lines = _lines(path)
    body, end = _ended(lines[0])
    mark = _separator(body)
    cells = body.split(mark)
    kind = rng.choice(("renamed", "twice", "turned", "upper", "more", "fewer", "blank"))
    place = rng.randrange(len(cells))
    if kind == "renamed":
        cells[place] += b"x"
    elif kind == "twice":
        cells[place] = cells[place - 1]
    elif kind == "turned":
        cells.reverse()
    elif kind == "upper":
        cells[place] = cells[place].upper()
    elif kind == "more":
        cells.insert(place, b"more")
    elif kind == "fewer":
        del cells[place]
    else:
        cells[place] = b" " + cells[place]
    lines[0] = mark.join(cells) + end
    _write(path, lines)
    return f"first line {kind}"


def separators(path: Path, rng: random.Random) -> str:
    """Other separators, in all lines or in one."""
    lines = _lines(path)
    old = _separator(lines[len(lines) // 2])
    new = rng.choice([mark for mark in SEPARATORS if mark.encode() != old]).encode()
    rows = range(len(lines)) if rng.random() < 0.5 else [rng.randrange(len(lines))]
    for row in rows:
        lines[row] = lines[row].replace(old, new)
    _write(path, lines)
    return f"{old!r} become {new!r} in {len(rows)} lines"


def encoding(path: Path, rng: random.Random) -> str:
    name = rng.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp037"))
    path.write_bytes(path.read_bytes().decode("utf-8").encode(name, "replace"))
    return f"as {name}"


def line_ends(path: Path, rng: random.Random) -> str:
    new = rng.choice((b"\r\n", b"\r", b"\n\n", b"\r\r\n"))
    path.write_bytes(path.read_bytes().replace(b"\n", new))
    return f"line ends {new!r}"


def last_end(path: Path, rng: random.Random) -> str:
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    return "no last line end"


def flipped(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    places = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 1, 4)))]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bits flipped in bytes {places}"


def cut(path: Path, rng: random.Random) -> str:
    data = path.read_bytes()
    kept = rng.randrange(len(data))
    path.write_bytes(data[:kept])
    return f"cut after {kept} of {len(data)} bytes"


def zeroed(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    place, size = rng.randrange(len(data)), rng.choice((1, 16, 512))
    data[place : place + size] = bytes(len(data[place : place + size]))
    path.write_bytes(data)
    return f"{size} bytes from {place} on are 0"


def more(path: Path, rng: random.Random) -> str:
    path.write_bytes(path.read_bytes() + rng.choice((b"\0", b"\n", b"more", bytes(512))))
    return "bytes added at the end"


def emptied(path: Path, rng: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def removed(path: Path, rng: random.Random) -> str:
    path.unlink()
    return "removed"


def dangling(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.symlink_to(rng.choice((path.with_name("nowhere"), path)))
    return "a link that leads nowhere in its place"


def dangling_beside(path: Path, rng: random.Random) -> str:
    path.with_name(f"0{path.name}").symlink_to("nowhere")
    return f"a link 0{path.name} that leads nowhere beside it"


def folder(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a folder in its place"


def upper(path: Path, rng: random.Random) -> str:
    path.rename(path.with_name(path.stem + path.suffix.upper()))
    return "its ending in upper case"


def hidden(path: Path, rng: random.Random) -> str:
    """What editors, desktops and version control leave beside a file and beside its folder."""
    for place in (path, path.parent):
        folder = place.with_name(rng.choice((".ipynb_checkpoints", ".git", ".Trash-1000")))
        folder.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / path.name)
        shutil.copyfile(path, place.with_name(f".{path.name}"))
        place.with_name(f"._{place.name}").write_bytes(b"\0\5\x16\7" + bytes(78))
        place.with_name(".DS_Store").write_bytes(bytes(60))
    return "hidden copies, folders and notes beside it"


def foreign(path: Path, rng: random.Random) -> str:
    """Another file of the same data in its place."""
    others = sorted(file for file in path.parents[1].rglob("*") if file.is_file() and file != path)
    other = rng.choice(others)
    shutil.copyfile(other, path)
    return f"{other.name} of {other.parent.name} in its place"


def pipe(path: Path, rng: random.Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return "a pipe in its place"


def npz(path: Path, rng: random.Random) -> str:
    """One array of an NPZ file becomes another."""
    with np.load(path) as found:
        arrays = dict(found)
    place = np.arange(arrays["x"].size).reshape(arrays["x"].shape) == 4
    changes: dict[str, Callable[[], dict[str, np.ndarray]]] = {
        "an object": lambda: {"x": np.array([object()] * 3)},
        "NaN in x": lambda: {"x": np.where(place, np.nan, arrays["x"])},
        "inf in x": lambda: {"x": np.where(place, np.inf, arrays["x"])},
        "1e300 in x": lambda: {"x": arrays["x"] * 1e300},
        "x with one axis": lambda: {"x": arrays["x"].ravel()},
        "x with four axes": lambda: {"x": arrays["x"][..., None]},
        "x shorter": lambda: {"x": arrays["x"][:-1]},
        "x without steps": lambda: {"x": arrays["x"][:, :0]},
        "x as texts": lambda: {"x": arrays["x"].astype("U8")},
        "x complex": lambda: {"x": arrays["x"].astype(complex)},
        "x as float16": lambda: {"x": arrays["x"].astype(np.float16)},
        "y shorter": lambda: {"y": arrays["y"][:-1]},
        "y as floats": lambda: {"y": np.arange(len(arrays["y"])) / 2},
        "y with two axes": lambda: {"y": arrays["y"][:, None]},
        "an empty y": lambda: {"y": np.where(np.arange(len(arrays["y"])) == 1, "", arrays["y"])},
        "another y": lambda: {"y": np.where(np.arange(len(arrays["y"])) == 1, " Up", arrays["y"])},
        "y as bytes": lambda: {"y": np.array([b"\xe9"] * len(arrays["y"]))},
        "lengths of floats": lambda: {"lengths": np.full(len(arrays["y"]), 2.5)},
        "lengths of 0": lambda: {"lengths": np.zeros(len(arrays["y"]), int)},
        "lengths": lambda: {"lengths": np.full(len(arrays["y"]), 2)},
        "more": lambda: {"more": np.zeros(3)},
    }  # fmt: skip
    name = rng.choice(sorted(changes))
    stream = io.BytesIO()
    np.savez(stream, **{**arrays, **changes[name]()})
    path.write_bytes(stream.getvalue())
    return name


def parquet(path: Path, rng: random.Random) -> str:
    """A column of a Parquet file gets another type or another value."""
    import pyarrow as pa
    from pyarrow import parquet as files

    table = files.read_table(path)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    name = rng.choice(table.column_names)
    kind = rng.choice(PARQUET_KINDS)
    row = rng.randrange(table.num_rows)
    if kind in ("texts", "one text"):
        columns[name] = [str(value) for value in columns[name]]
        columns[name][row] = rng.choice(CELLS) if kind == "one text" else columns[name][row]
    elif kind == "null":
        columns[name][row] = None
    elif kind == "removed":
        del columns[name]
    elif kind == "added":
        columns["more"] = columns[name]
    elif kind in ("nan", "inf"):
        columns[name] = [float(place) for place in range(table.num_rows)]
        columns[name][row] = float(kind)
    elif kind == "turned":
        columns = dict(reversed(columns.items()))
    elif kind == "flags":
        columns[name] = [bool(place % 2) for place in range(table.num_rows)]
    elif kind == "lists":
        columns[name] = [[value] for value in columns[name]]
    else:
        columns[name] = [str(value).encode() for value in columns[name]]
    files.write_table(pa.table(columns), path)
    return f"column {name}: {kind}"


LINES: tuple[Corruption, ...] = (
    cell, cell, cell, column, dropped, doubled, swapped, shortened, inserted, letter, letter,
    quotes, header, separators, encoding, line_ends, last_end,
)  # fmt: skip
"""Of files of lines."""

BYTES: tuple[Corruption, ...] = (flipped, flipped, cut, zeroed, more, emptied)
"""Of any file."""

FOLDERS: tuple[Corruption, ...] = (
    removed, dangling, dangling_beside, folder, upper, hidden, foreign,
)  # fmt: skip
"""Of what lies in a folder."""
