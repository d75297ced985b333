"""Small good data sets, and what their files say, read in the plainest way: oracles for the
readers.

`READERS` has an entry for each layout. An oracle returns, for "trainval" and "test", the samples in
any order, each as its content and its label; or raises `Unreadable` where nobody can say what a
file means.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from corruptions import BYTES, FOLDERS, LINES, Corruption, npz, parquet
from PIL import Image
from splits import batch, opened

from subquad.data import Dataset
from subquad_datasets.decode import UnreadableImage

Sample = tuple[Any, Any]
Samples = dict[str, list[Sample]]
BAD = "cannot be read"
LARGEST = float(np.finfo(np.float32).max)
STEPS = 16
"""Longest series."""


class Unreadable(Exception):
    """A file of which nobody can say what it means; `line` is 0 where that is no question of a
    line.
    """

    def __init__(self, path: Path, line: int = 0):
        super().__init__(f"{path}:{line}")
        self.path, self.line = path, line


@dataclass(frozen=True)
class Reader:
    """A layout of a data set.

    Attributes:
        dataset: the data set's name.
        write: writes good files into an empty folder.
        oracle: reads them plainly.
        observe: all samples of a split as the reader gives them.
        corruptions: what may happen to them.
        params: beside `path`.
        task: what trains on it; its backbone follows from it.
        kinds: endings of the files that are corrupted.
        index: what is done after a corruption, as a user would, such as writing an index anew.
    """

    dataset: str
    write: Callable[[Path], None]
    oracle: Callable[[Path], Samples]
    observe: Callable[[Dataset, str], list[Sample]]
    corruptions: tuple[Corruption, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    task: str = "classification"
    backbone: str = "encoder"
    kinds: tuple[str, ...] = ("",)


# What readers give
# -----------------------------------------------------------------------------------------------


def see_series(dataset: Dataset, name: str) -> list[Sample]:
    found, names = batch(dataset, name), dataset.describe().class_names
    rows = zip(found["inputs"], found["keep"], found["labels"], strict=True)
    return [(row[keep].tobytes(), names[label]) for row, keep, label in rows]


def see_bytes(first: int) -> Callable[[Dataset, str], list[Sample]]:
    """Of ids that are bytes from `first` on."""

    def see(dataset: Dataset, name: str) -> list[Sample]:
        found, names = batch(dataset, name), dataset.describe().class_names
        texts = [
            _text(row[keep], first)
            for row, keep in zip(found["inputs"], found["keep"], strict=True)
        ]
        if "inputs_b" in found:
            seconds = zip(found["inputs_b"], found["keep_b"], strict=True)
            pairs = zip(texts, [_text(row[keep], first) for row, keep in seconds], strict=True)
            texts = [b"\t".join(pair) for pair in pairs]
        return [(text, names[label]) for text, label in zip(texts, found["labels"], strict=True)]

    return see


def _text(ids: np.ndarray, first: int) -> bytes:
    return (ids - first).astype(np.uint8).tobytes()


def see_expressions(dataset: Dataset, name: str) -> list[Sample]:
    words = ["_", *map(str, range(10)), "[MIN", "[MAX", "[MED", "[SM", "]"]
    found = batch(dataset, name)
    rows = zip(found["inputs"], found["keep"], found["labels"], strict=True)
    return [
        (" ".join(words[token] for token in row[keep]), str(label)) for row, keep, label in rows
    ]


def see_pictures(dataset: Dataset, name: str) -> list[Sample]:
    split: Any = opened(dataset, name)
    names = dataset.describe().class_names
    found = []
    for number in range(len(split)):
        try:
            content = split.picture(number).tobytes()
        except UnreadableImage:
            content = BAD
        found.append((content, names[split.labels[number]]))
    return found


def see_text(dataset: Dataset, name: str) -> list[Sample]:
    split: Any = opened(dataset, name)
    return [(_text(split.column.tokens[split.first : split.last].astype(np.int64), 2), "")]


def see_articles(dataset: Dataset, name: str) -> list[Sample]:
    found = batch(dataset, name)
    rows = zip(found["inputs"], found["keep"], found["labels"], strict=True)
    return [(_text(row[keep], 2), _text(target[target > 1], 2)) for row, keep, target in rows]


# Tables
# --------------------------------------------------------------------------------------------------

CLASSES = ("down", "up")


def series_columns(count: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    lengths = [4 + number % 3 for number in range(count)]
    rows = [(number, step) for number in range(count) for step in range(lengths[number])]
    order = rng.permutation(len(rows)).tolist()
    values = rng.normal(size=(len(rows), 2)).round(5)
    columns = {"id": [], "t": [], "a": [], "b": [], "label": []}
    for place in order:
        number, step = rows[place]
        cells = (f"s{number}", step, *values[place].tolist(), CLASSES[number % 2])
        for name, value in zip(columns, cells, strict=True):
            columns[name].append(value)
    return columns


SIZES = {"train": 8, "validation": 4, "test": 4}


def write_csv(folder: Path) -> None:
    for seed, (part, count) in enumerate(SIZES.items()):
        columns = series_columns(count, seed)
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")


def write_parquet(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as files

    for seed, (part, count) in enumerate(SIZES.items()):
        files.write_table(
            pa.table(series_columns(count, seed)), folder / f"{part}.parquet", compression="none"
        )


def write_npz(folder: Path) -> None:
    for seed, (part, count) in enumerate(SIZES.items()):
        x = np.random.default_rng(seed).normal(size=(count, 5, 2)).round(5)
        labels = np.array([CLASSES[number % 2] for number in range(count)])
        np.savez(folder / f"{part}.npz", x=x, y=labels)


def data_of(path: Path) -> bytes:
    """The bytes of a file that has to be there."""
    if not path.is_file():
        raise Unreadable(path)
    return path.read_bytes()


def csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Rows with the line in which each starts."""
    text = plain_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, started = list[tuple[int, list[str]]](), 1
    try:
        for cells in reader:
            rows.append((started, cells))
            started = reader.line_num + 1
    except csv.Error:
        raise Unreadable(path, started) from None
    return rows


def plain_text(path: Path) -> str:
    data = data_of(path)
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable(path, number) from None
        if b"\0" in line or (number == 1 and line.startswith(b"\xef\xbb\xbf")):
            raise Unreadable(path, number)
    if not data:
        raise Unreadable(path, 1)
    return data.decode("utf-8")


def read_csv_table(path: Path) -> list[tuple[int, dict[str, Any]]]:
    rows = csv_rows(path)
    names = rows[0][1]
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise Unreadable(path, 1)
    for line, cells in rows[1:]:
        if len(cells) != len(names):
            raise Unreadable(path, line)
    return [(line, dict(zip(names, cells, strict=True))) for line, cells in rows[1:]]


def read_parquet_table(path: Path) -> list[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    from pyarrow import parquet as files

    try:
        found = files.read_table(path).to_pylist()
    except (pa.ArrowException, OSError, ValueError):
        raise Unreadable(path) from None
    return [(0, row) for row in found]


def number_of(path: Path, line: int, value: Any, largest: float = LARGEST) -> float:
    text = str(value).strip()
    try:
        found = float(text.encode("ascii").replace(b"_", b"no"))
    except ValueError:
        raise Unreadable(path, line) from None
    if not math.isfinite(found) or abs(found) > largest:
        raise Unreadable(path, line)
    return found


def table_oracle(
    ending: str, read: Callable[[Path], list[tuple[int, dict[str, Any]]]]
) -> Callable[[Path], Samples]:
    def oracle(folder: Path) -> Samples:
        parts = {part: folder / f"{part}{ending}" for part in SIZES}
        rows = {part: read(path) for part, path in parts.items() if there(path)}
        if not rows.get("train"):
            raise Unreadable(folder)
        channels = [name for name in rows["train"][0][1] if name not in ("id", "t", "label")]
        found = {part: _series(parts[part], lines, channels) for part, lines in rows.items()}
        return joined(found, folder)

    return oracle


def there(path: Path) -> bool:
    """Whether a file is there; an entry of that name that is none is unreadable."""
    if path.is_symlink() and not path.exists():
        raise Unreadable(path)
    return path.is_file()


def joined(found: dict[str, list[Sample]], folder: Path) -> Samples:
    if "train" not in found or "test" not in found:
        raise Unreadable(folder)
    return {"trainval": found["train"] + found.get("validation", []), "test": found["test"]}


def parts_oracle(
    read: Callable[[Path], list[Sample]], *names: str, needs_all: bool = False
) -> Callable[[Path], Samples]:
    """Of a file for each part of SIZES.

    Args:
        read: gives the samples of one.
        names: of the files.
        needs_all: whether there has to be a validation part.
    """

    def oracle(folder: Path) -> Samples:
        paths = dict(zip(SIZES, (folder / name for name in names), strict=True))
        found = {part: path for part, path in paths.items() if there(path)}
        if needs_all and len(found) < len(paths):
            raise Unreadable(folder)
        return joined({part: read(path) for part, path in found.items()}, folder)

    return oracle


Step = tuple[float, list[float], str]


def _series(
    path: Path, rows: list[tuple[int, dict[str, Any]]], channels: list[str]
) -> list[Sample]:
    """Series of rows with id, t, channels and label."""
    flags = [
        name
        for name in channels
        if {str(row.get(name)).lower() for _, row in rows} <= {"true", "false"}
    ]
    series = dict[str, list[Step]]()
    for line, row in rows:
        if set(row) != {"id", "t", "label", *channels}:
            raise Unreadable(path, 1 if line else 0)
        words = {name: "" if value is None else str(value).strip() for name, value in row.items()}
        if not all(words.values()) or any("\n" in word or "\r" in word for word in words.values()):
            raise Unreadable(path, line)
        values = [
            float(words[name].lower() == "true")
            if name in flags
            else number_of(path, line, words[name])
            for name in channels
        ]
        step = number_of(path, line, words["t"], math.inf), values, words["label"]
        series.setdefault(words["id"], []).append(step)
    return [_ordered(path, steps) for steps in series.values()]


def _ordered(path: Path, steps: list[Step]) -> Sample:
    steps = sorted(steps, key=lambda step: step[0])
    labels, times = {step[2] for step in steps}, {step[0] for step in steps}
    if len(labels) > 1 or len(times) < len(steps):
        raise Unreadable(path)
    return np.array([step[1] for step in steps], np.float64).astype(
        np.float32
    ).tobytes(), labels.pop()


def _windows(path: Path) -> list[Sample]:
    import zipfile

    try:
        with zipfile.ZipFile(path) as members:
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(
                    io.BytesIO(members.read(name)), allow_pickle=False
                )
                for name in members.namelist()
            }
        x, y = np.asarray(arrays["x"], np.float64), [str(label).strip() for label in arrays["y"]]
        lengths = arrays.get("lengths", np.full(len(x), x.shape[1]))
        rows = [
            (row[:length].reshape(length, -1), label)
            for row, length, label in zip(x, lengths, y, strict=True)
        ]
        if arrays["x"].dtype.kind in "UO" or not all(
            (np.abs(row) <= LARGEST).all() and len(row) for row, _ in rows
        ):
            raise ValueError
    except Exception:
        raise Unreadable(path) from None
    return [(row.astype(np.float32).tobytes(), label) for row, label in rows]


npz_oracle = parts_oracle(_windows, *(f"{part}.npz" for part in SIZES))


# Texts
# --------------------------------------------------------------------------------------------------

WORDS = ["red", "green", "blue", "fast", "slow", "warm", "cold", "near", "far", "old"]


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    return [
        (f"{' '.join(rng.choice(WORDS, 5))} {seed}{number}", ("neg", "pos")[number % 2])
        for number in range(count)
    ]


def write_csv_texts(folder: Path) -> None:
    for seed, (part, count) in enumerate(SIZES.items()):
        lines = [f"{text},{label}" for text, label in sentences(count, seed)]
        (folder / f"{part}.csv").write_text("text,label\n" + "".join(f"{line}\n" for line in lines))


def _labelled(path: Path, line: int, row: dict[str, Any]) -> Sample:
    text, label = row.get("text"), row.get("label")
    label = label.strip() if isinstance(label, str) else label
    if (
        not isinstance(text, str)
        or not text
        or isinstance(label, bool)
        or not isinstance(label, str | int)
        or label == ""
    ):
        raise Unreadable(path, line)
    return text.replace("\r\n", "\n").encode(), str(label)


def _csv_texts(path: Path) -> list[Sample]:
    rows = csv_rows(path)
    names = rows[0][1]
    for line, cells in rows[1:]:
        if cells and len(cells) != len(names):
            raise Unreadable(path, line)
    if not {"text", "label"} <= set(names) or len(set(names)) < len(names):
        raise Unreadable(path)
    dicts = [(line, dict(zip(names, cells, strict=True))) for line, cells in rows[1:] if cells]
    return [_labelled(path, line, row) for line, row in dicts]


csv_texts_oracle = parts_oracle(_csv_texts, *(f"{part}.csv" for part in SIZES))


def write_json_texts(folder: Path) -> None:
    for seed, (part, count) in enumerate(SIZES.items()):
        rows = [
            json.dumps({"text": text, "label": label}) for text, label in sentences(count, seed)
        ]
        (folder / f"{part}.jsonl").write_text("".join(f"{row}\n" for row in rows))


def json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    found = []
    data = path.read_bytes()
    if not data or data.startswith(b"\xef\xbb\xbf"):
        raise Unreadable(path, 1)
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        try:
            row = json.loads(line.decode(), object_pairs_hook=_once)
            json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise Unreadable(path, number) from None
        if not isinstance(row, dict):
            raise Unreadable(path, number)
        found.append((number, row))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _json_texts(path: Path) -> list[Sample]:
    return [_labelled(path, line, row) for line, row in json_lines(path)]


json_texts_oracle = parts_oracle(_json_texts, *(f"{part}.jsonl" for part in SIZES))


def write_text_folders(folder: Path) -> None:
    for seed, (part, count) in enumerate({"train": 8, "test": 4}.items()):
        for number, (text, label) in enumerate(sentences(count, seed)):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
            (folder / part / label / f"{number}.txt").write_text(text)


def unhidden(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name[0] != ".")


def entries(folder: Path, *endings: str) -> Iterator[Path]:
    """Files with such endings; anything else of such a name is unreadable."""
    for path in unhidden(folder):
        if path.name.lower().endswith(endings) and there(path):
            yield path


def class_folders(folder: Path) -> Iterator[Path]:
    for path in unhidden(folder):
        if path.is_symlink() and not path.exists():
            raise Unreadable(path)
        if path.is_dir():
            yield path


def text_folders_oracle(folder: Path) -> Samples:
    found = dict[str, list[Sample]]()
    for part in ("train", "test"):
        found[part] = []
        for kind in class_folders(folder / part):
            for path in entries(kind, ".txt"):
                plain_text(path)
                found[part].append((data_of(path), kind.name))
    return joined(found, folder)


def write_plain_text(folder: Path) -> None:
    for seed, part in enumerate(SIZES):
        (folder / f"{part}.txt").write_text("".join(f"{text}\n" for text, _ in sentences(12, seed)))


def plain_text_oracle(folder: Path) -> Samples:
    found = {}
    for part in SIZES:
        path = folder / f"{part}.txt"
        if not there(path):
            raise Unreadable(folder)
        found[part] = plain_text(path).encode()
    return {"trainval": [(found["train"] + found["validation"], "")], "test": [(found["test"], "")]}


SECTIONS = ("BACKGROUND", "OBJECTIVE", "METHODS", "RESULTS", "CONCLUSIONS")


def write_rct(folder: Path) -> None:
    for seed, (name, count) in enumerate({"train": 4, "dev": 2, "test": 2}.items()):
        lines = []
        for number in range(count):
            texts = [text for text, _ in sentences(3, 10 * seed + number)]
            rows = [f"{SECTIONS[(number + place) % 5]}\t{text}" for place, text in enumerate(texts)]
            lines += [f"###{seed}{number}", *rows, ""]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def _sentences(path: Path) -> list[Sample]:
    abstracts, begun = list[list[tuple[str, str]]](), 0
    for number, raw in enumerate(plain_text(path).split("\n"), 1):
        line = raw.rstrip("\r\n")
        if line.startswith("###"):
            if abstracts and not abstracts[-1]:
                raise Unreadable(path, begun)
            abstracts.append([])
            begun = number
        elif line.strip():
            section, mark, text = line.partition("\t")
            if not abstracts or section not in SECTIONS or not mark or not text.strip():
                raise Unreadable(path, number)
            abstracts[-1].append((text.strip(), section))
    if not abstracts or not abstracts[-1]:
        raise Unreadable(path, begun)
    samples = []
    for abstract in abstracts:
        for place, (text, section) in enumerate(abstract):
            near = [*abstract[max(0, place - 1) : place], *abstract[place + 1 : place + 2]]
            lines = [f"{place + 1}/{len(abstract)} {text}", *(other for other, _ in near)]
            samples.append(("\n".join(lines).encode(), section))
    return samples


rct_oracle = parts_oracle(_sentences, "train.txt", "dev.txt", "test.txt", needs_all=True)


def write_articles(folder: Path) -> None:
    for seed, (name, count) in enumerate({"train": 6, "val": 3, "test": 3}.items()):
        rows = [
            json.dumps({"article": f"{text}\nmore {text}", "abstract": text[::-1]})
            for text, _ in sentences(count, seed)
        ]
        (folder / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))


def _article(path: Path, line: int, row: dict[str, Any]) -> Sample:
    parts = []
    for name in ("article", "abstract"):
        if not isinstance(row.get(name), str):
            raise Unreadable(path, line)
        lines = [line.strip() for line in re.sub(r"</?S>", "", row[name]).split("\n")]
        if name == "article":
            lines = [line for line in lines if not re.fullmatch(r"[A-Z][A-Z ,&/-]{3,}", line)]
        text = "\n".join(lines).strip()
        if not text:
            raise Unreadable(path, line)
        parts.append(text.encode())
    return parts[0], parts[1]


def _articles(path: Path) -> list[Sample]:
    return [_article(path, line, row) for line, row in json_lines(path)]


articles_oracle = parts_oracle(_articles, "train.jsonl", "val.jsonl", "test.jsonl", needs_all=True)


# UEA and Long Range Arena
# ----------------------------------------------------------------------------------------


def write_ts(folder: Path) -> None:
    for seed, (part, count) in enumerate({"TRAIN": 10, "TEST": 4}.items()):
        rng = np.random.default_rng(seed)
        lines = ["@problemName Toy", "@univariate false", "@classLabel true down up", "@data"]
        for number in range(count):
            values = rng.normal(size=(2, 4 + number % 3)).round(4)
            channels = [",".join(map(str, row)) for row in values.tolist()]
            lines.append(":".join([*channels, CLASSES[number % 2]]))
        (folder / f"Toy_{part}.ts").write_text("\n".join(lines) + "\n")


def ts_oracle(folder: Path) -> Samples:
    found = {}
    for part, name in {"train": "TRAIN", "test": "TEST"}.items():
        path = folder / f"Toy_{name}.ts"
        if not there(path):
            raise Unreadable(folder)
        found[part] = _ts(path)
    return joined(found, folder)


def _ts(path: Path) -> list[Sample]:
    samples, begun = list[Sample](), False
    for number, raw in enumerate(plain_text(path).split("\n"), 1):
        line = raw.strip()
        if not begun:
            begun = line.lower().startswith("@data")
            continue
        if not line:
            continue
        *channels, label = line.split(":")
        rows = [
            [number_of(path, number, cell) for cell in channel.split(",")] for channel in channels
        ]
        known = [name for name in CLASSES if name == label.strip().lower()]
        if len(rows) != 2 or len(rows[0]) != len(rows[1]) or not known:
            raise Unreadable(path, number)
        samples.append((np.array(rows, np.float64).T.astype(np.float32).tobytes(), known[0]))
    if not samples:
        raise Unreadable(path)
    return samples


def write_listops(folder: Path) -> None:
    for seed, (name, count) in enumerate({"train": 8, "val": 3, "test": 3}.items()):
        rng = np.random.default_rng(seed)
        rows = []
        for number in range(count):
            digits = rng.integers(0, 10, 3 + number).tolist()
            operator = ("MIN", "MAX")[number % 2]
            value = min(digits) if operator == "MIN" else max(digits)
            rows.append(f"[{operator} {' '.join(map(str, digits))} ]\t{value}\n")
        (folder / f"basic_{name}.tsv").write_text("Source\tTarget\n" + "".join(rows))


def _expressions(path: Path) -> list[Sample]:
    lines = plain_text(path).split("\n")
    if lines[0].rstrip("\r") != "Source\tTarget" or lines[-1]:
        raise Unreadable(path, 1 if lines[-1] == "" else len(lines))
    samples = []
    for number, line in enumerate(lines[1:-1], 2):
        cells = line.rstrip("\r").split("\t")
        words = [word for word in cells[0].split() if word not in "()"]
        if len(cells) != 2 or not words or words[0] not in ("[MIN", "[MAX"):
            raise Unreadable(path, number)
        try:
            digits = [int(word) for word in words[1:-1]]
        except ValueError:
            raise Unreadable(path, number) from None
        value = (min if words[0] == "[MIN" else max)(digits, default=-1)
        if words[-1] != "]" or cells[1] != str(value):
            raise Unreadable(path, number)
        samples.append((" ".join(words), cells[1]))
    return samples


listops_oracle = parts_oracle(
    _expressions, "basic_train.tsv", "basic_val.tsv", "basic_test.tsv", needs_all=True
)


def write_pairs(folder: Path) -> None:
    for seed, (name, count) in enumerate({"train": 8, "eval": 4, "test": 4}.items()):
        texts = [text for text, _ in sentences(2 * count, seed)]
        rows = [
            f"{number % 2}\t{texts[2 * number]}\t{texts[2 * number + 1]}\n"
            for number in range(count)
        ]
        (folder / f"{name}.tsv").write_text("".join(rows))


def _pairs(path: Path) -> list[Sample]:
    lines = plain_text(path).split("\n")
    if lines[-1]:
        raise Unreadable(path, len(lines))
    samples = []
    for number, line in enumerate(lines[:-1], 1):
        cells = line.rstrip("\r").split("\t")
        try:
            label = ("other", "same")[{0.0: 0, 1.0: 1}[number_of(path, number, cells[0])]]
        except KeyError:
            raise Unreadable(path, number) from None
        if len(cells) != 3 or not cells[1] or not cells[2]:
            raise Unreadable(path, number)
        samples.append(("\t".join(cells[1:]).encode(), label))
    return samples


pairs_oracle = parts_oracle(_pairs, "train.tsv", "eval.tsv", "test.tsv", needs_all=True)


# Pictures
# --------------------------------------------------------------------------------------------------

SIDE = 8


def picture(seed: int, side: int = SIDE, mode: str = "RGB", kind: str = "PNG") -> bytes:
    shape = (side, side, 3) if mode == "RGB" else (side, side)
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(
        stream, kind
    )
    return stream.getvalue()


def write_pictures(folder: Path) -> None:
    for seed, (part, count) in enumerate({"train": 5, "test": 3}.items()):
        for label, name in enumerate(("cat", "dog")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                kind = ("PNG", "JPEG")[number % 2]
                path = folder / part / name / f"{number}.{kind.lower().replace('jpeg', 'jpg')}"
                path.write_bytes(picture(100 * seed + 10 * label + number, kind=kind))


def pixels(data: bytes) -> bytes | str:
    """RGB as Pillow decodes it, or `BAD`."""
    from subquad_datasets.decode import decode

    try:
        return decode(data).tobytes()
    except UnreadableImage:
        return BAD


def pictures_oracle(folder: Path) -> Samples:
    found = dict[str, list[Sample]]()
    for part in ("train", "test"):
        found[part] = []
        for kind in class_folders(folder / part):
            for path in entries(kind, ".png", ".jpg", ".jpeg"):
                found[part].append((pixels(path.read_bytes()), kind.name))
    return joined(found, folder)


def gray_pictures_oracle(folder: Path) -> Samples:
    from subquad_datasets.image.gray import to_gray

    found = pictures_oracle(folder)
    gray = dict[str, list[Sample]]()
    for part, samples in found.items():
        gray[part] = []
        for content, label in samples:
            if content == BAD or len(content) != SIDE * SIDE * 3:
                raise Unreadable(folder)
            gray[part].append(
                (to_gray(np.frombuffer(content, np.uint8).reshape(-1, 3)).tobytes(), label)
            )
    return gray


def write_pathfinder(folder: Path) -> None:
    home = folder / "pathfinder32/curv_contour_length_14"
    (home / "metadata").mkdir(parents=True)
    for part in range(2):
        (home / f"imgs/{part}").mkdir(parents=True)
        rows = []
        for number in range(10):
            data = picture(100 * part + number, 32, "L")
            (home / f"imgs/{part}/sample_{number}.png").write_bytes(data)
            rows.append(
                f"imgs/{part} sample_{number}.png {number} {number % 2} 1.0 14 4 2 0.5 1 1\n"
            )
        (home / f"metadata/{part}.npy").write_text("".join(rows))


def pathfinder_oracle(folder: Path) -> Samples:
    home = folder / "pathfinder32/curv_contour_length_14"
    found = list[Sample]()
    for path in sorted(unhidden(home / "metadata"), key=lambda path: int(path.stem)):
        if not there(path):
            raise Unreadable(path)
        for number, line in enumerate(plain_text(path).splitlines(), 1):
            cells = line.split()
            if len(cells) != 11 or cells[3] not in ("0", "1"):
                raise Unreadable(path, number)
            try:
                with Image.open(home / cells[0] / cells[1], formats=("PNG",)) as image:
                    content = np.asarray(image, np.uint8)
                    if image.mode != "L" or content.shape != (32, 32):
                        raise ValueError
            except Exception:
                raise Unreadable(home / cells[0] / cells[1]) from None
            found.append((content.tobytes(), ("apart", "connected")[int(cells[3])]))
    count = len(found)
    return {"trainval": found[: count * 9 // 10], "test": found[count * 9 // 10 :]}


def write_shards(folder: Path) -> None:
    from subquad_datasets.shards.index import write_index

    for seed, (name, count) in enumerate(
        {"train-00000": 6, "train-00001": 6, "val-00000": 4}.items()
    ):
        path = folder / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(count):
                members = {
                    "jpg": picture(100 * seed + number, kind="JPEG"),
                    "cls": str(number % 2).encode(),
                }
                for ending, data in members.items():
                    info = tarfile.TarInfo(f"{name[:5]}{number:03}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        write_index(path)
    (folder / "classes.txt").write_text("cat\ndog\n")


def shards_oracle(folder: Path) -> Samples:
    """What the tars hold by Python's tarfile; a picture that is not the one of the index cannot
    be read.
    """
    import hashlib

    from subquad_datasets.shards.index import read_index

    named = folder / "classes.txt"
    names = plain_text(named).split() if there(named) else ["0", "1"]
    found = dict[str, list[Sample]]()
    for part, pattern in {"train": "train-*.tar", "test": "val-*.tar"}.items():
        found[part] = []
        for path in sorted(folder.glob(pattern)):
            if not there(path):
                raise Unreadable(path)
            data = path.read_bytes()
            try:
                rows = read_index(path).rows
            except Exception:
                raise Unreadable(path) from None
            for row in rows:
                content = data[int(row["offset"]) :][: int(row["size"])]
                whole = hashlib.sha256(content).digest() == row["sha256"].tobytes()
                found[part].append((pixels(content) if whole else BAD, names[int(row["label"])]))
    return joined(found, folder)


TEXT_FILES = (*LINES, *BYTES, *FOLDERS)
BINARY = (*BYTES, *BYTES, *FOLDERS)

READERS = {
    "table csv": Reader(
        "table", write_csv, table_oracle(".csv", read_csv_table), see_series, TEXT_FILES,
        {"time": "t", "normalize": False, "max_len": STEPS},
    ),
    "table parquet": Reader(
        "table", write_parquet, table_oracle(".parquet", read_parquet_table), see_series,
        (*BINARY, *[parquet] * 12), {"time": "t", "normalize": False, "max_len": STEPS},
    ),
    "table npz": Reader(
        "table", write_npz, npz_oracle, see_series, (*BINARY, *[npz] * 12),
        {"normalize": False, "max_len": STEPS},
    ),
    "text-files csv": Reader(
        "text-files", write_csv_texts, csv_texts_oracle, see_bytes(2), TEXT_FILES,
    ),
    "text-files jsonl": Reader(
        "text-files", write_json_texts, json_texts_oracle, see_bytes(2), TEXT_FILES,
    ),
    "text-files folders": Reader(
        "text-files", write_text_folders, text_folders_oracle, see_bytes(2), TEXT_FILES,
    ),
    "text-lm": Reader(
        "text-lm", write_plain_text, plain_text_oracle, see_text, TEXT_FILES,
        {"context": 16}, "language-modeling", "decoder",
    ),
    "image-folder": Reader(
        "image-folder", write_pictures, pictures_oracle, see_pictures, BINARY,
        {"size": SIDE}, backbone="timm-vit",
    ),
    "imagenet": Reader(
        "imagenet", write_shards, shards_oracle, see_pictures, (*BYTES, *FOLDERS),
        {"size": SIDE, "validation_fraction": 0.2}, backbone="timm-vit",
        kinds=(".tar", ".index", ".txt"),
    ),
    "uea": Reader(
        "uea", write_ts, ts_oracle, see_series, TEXT_FILES,
        {"problem": "Toy", "normalize": False, "max_len": STEPS},
    ),
    "lra-listops": Reader(
        "lra-listops", write_listops, listops_oracle, see_expressions, TEXT_FILES,
        {"max_len": 99},
    ),
    "lra-text": Reader(
        "lra-text", write_text_folders, text_folders_oracle, see_bytes(1), TEXT_FILES,
    ),
    "lra-retrieval": Reader(
        "lra-retrieval", write_pairs, pairs_oracle, see_bytes(1), TEXT_FILES,
        backbone="dual-encoder",
    ),
    "lra-image": Reader(
        "lra-image", write_pictures, gray_pictures_oracle, see_bytes(1), BINARY,
        {"side": SIDE},
    ),
    "lra-pathfinder": Reader(
        "lra-pathfinder", write_pathfinder, pathfinder_oracle, see_bytes(1), TEXT_FILES,
        {"split": "google"},
    ),
    "pubmed-rct": Reader("pubmed-rct", write_rct, rct_oracle, see_bytes(2), TEXT_FILES),
    "pubmed-summarization": Reader(
        "pubmed-summarization", write_articles, articles_oracle, see_articles, TEXT_FILES,
        {}, "summarization", "encoder-decoder",
    ),
}  # fmt: skip
"""Every layout of every data set that reads files of its user."""
