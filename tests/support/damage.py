"""Damaged run folders: what may happen to a file, and whether a command answers for it as it
should.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from small_run import SMALL

from subquad.cli.main import main
from subquad.engine import faults

FOREIGN = (
    "{}",
    "[]",
    "null",
    "7",
    '{"format": 1, "status": "finished"}',
    '{"a": {"b": [1, 2]}}',
    "[" * 100_000,
)
_UNCOMPARED = (
    "seconds",
    "name",
    "folder",
    "published",
    "files",
    "pictures",
    "baseline",
    "headlines",
)
_UNCOMPARED += ("over", "peak_memory_bytes", "seconds_per_step", "tokens_per_second")
"""Of a report: times, which a run that only tests again has none of, the memory of a process with
its earlier runs, paths, and what is no number.
"""


def _flip(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.choice((1, 1, 3))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _digit(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """Another number, where there is one: what a reader would believe."""
    data = bytearray(path.read_bytes() or b"\0")
    places = [place for place, byte in enumerate(data) if 48 <= byte < 58] or [0]
    data[rng.choice(places)] = 48 + rng.randrange(10)
    path.write_bytes(data)


def _cut(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _line(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    place = rng.randrange(len(lines) or 1)
    path.write_bytes(b"".join([*lines[:place], *lines[place + 1 :]]))


def _folder(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "inside").write_text("x")


def _foreign(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    path.write_text(rng.choice(FOREIGN))


def _namesake(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """The file of that name of another run, step or trial."""
    if others:
        shutil.copyfile(rng.choice(sorted(others)), path)
    else:
        path.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random, Sequence[Path]], None]] = {
    "flip": _flip,
    "digit": _digit,
    "cut": _cut,
    "line": _line,
    "removed": lambda path, rng, others: path.unlink(),
    "folder": _folder,
    "foreign": _foreign,
    "namesake": _namesake,
}


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def faults(self) -> list[str]:
        """What a user should not have seen."""
        found = [
            word
            for word in ("unexpected", "Traceback", "Exception in thread")
            if word in self.out + self.err
        ]
        if self.code not in (0, 1, 2):
            found.append(f"exit code {self.code}")
        if self.code == 2 and len(self.err.strip().splitlines()) != 1:
            found.append("not one line")
        return found


def call(*words: str) -> Said:
    """The command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except BaseException as error:
            code = -1
            err.write(f"Traceback {error!r}")
    return Said(words, code, out.getvalue(), err.getvalue())


def make_folders(root: Path, kinds: Sequence[str] = ("run", "study", "search")) -> dict[str, Path]:
    """A finished and an interrupted folder of each kind, by name."""
    files = {"small": SMALL, "study": SMALL.replace("name: small", "name: study")}
    files["study"] += "\nmatrix: {mixer: [agf, identity], seed: [0, 1]}\nbaseline: identity\n"
    for name, text in files.items():
        (root / f"{name}.yaml").write_text(text)
    saves = ("train.checkpoint_every_steps=10", "train.keep_checkpoints=3")
    search = ("tune", str(root / "small.yaml"), "train.epochs=1", "--space", "optimizer")
    search += ("--budget", "2-trials", "final.seeds=1")
    commands = {
        "run": (("train", str(root / "small.yaml"), *saves), 32),
        "study": (("train", str(root / "study.yaml"), "train.epochs=2"), 60),
        "search": (search, 20),
    }
    found = {}
    for name in kinds:
        words, stopped = commands[name]
        for kind, step in {"finished": 0, "stopped": stopped}.items():
            with patch.object(faults, "point", _term_at(step)):
                outcome = call(*words, "--local", "--jobs", "1", "--root", str(root / kind / name))
            assert outcome.code == (143 if step else 0), outcome
            (found[f"{kind} {name}"],) = (root / kind / name / "runs").glob("s*/2*")
    return found


def _term_at(step: int) -> Callable[[str], bool]:
    """A point that sends SIGTERM to this process at its n-th step."""
    passed = 0

    def point(name: str) -> bool:
        nonlocal passed
        passed += name == "step"
        if name == "step" and passed == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    return point


class Judge:
    """Holds what commands say of damaged copies of a folder against what they say of whole ones.

    Args:
        folder: a whole one.
        work: an empty folder for the copies.
    """

    def __init__(self, folder: Path, work: Path):
        self.files = sorted(
            path.relative_to(folder) for path in folder.rglob("*") if path.is_file()
        )
        self._folder, self._work = folder, work
        copy = self._copy()
        before = self._report(copy)[1]
        for words in self._commands(copy):
            outcome = call(*words)
            assert (outcome.code, outcome.faults()) == (0, []), outcome
        self._believed = (before, self._report(copy)[1])

    def faults(self, name: Path, damage: str, seed: int) -> list[str]:
        """What is wrong with the answers of all commands after one damage; empty where it
        changed nothing.
        """
        copy = self._copy()
        path, before = copy / name, (copy / name).read_bytes()
        others = [file for file in self._folder.parents[4].rglob(path.name) if file.is_file()]
        DAMAGES[damage](
            path, random.Random(seed), [other for other in others if other.read_bytes() != before]
        )
        if path.is_file() and path.read_bytes() == before:
            return []
        found = self._wrong(copy, "before")
        for words in self._commands(copy):
            outcome = call(*words)
            found += [f"{words[0]}: {fault}: {outcome.err[-300:]}" for fault in outcome.faults()]
        return found + self._wrong(copy, "after")

    def _copy(self) -> Path:
        shutil.rmtree(self._work, ignore_errors=True)
        return Path(
            shutil.copytree(
                self._folder, self._work / "runs" / self._folder.parent.name / self._folder.name
            )
        )

    def _commands(self, folder: Path) -> list[tuple[str, ...]]:
        return [("verify", str(folder)), ("resume", str(folder), "--local")]

    def _report(self, folder: Path) -> tuple[Said, Any]:
        """What `subquad report` says of a folder, and its numbers, times and paths aside; None
        where it refuses.
        """
        outcome = call(
            "report", str(folder), "--json", "--format", "csv", "--out", str(self._work / "out")
        )
        return outcome, _plain(json.loads(outcome.out)) if outcome.code == 0 else None

    def _wrong(self, folder: Path, when: str) -> list[str]:
        outcome, values = self._report(folder)
        found = [f"report {when}: {fault}: {outcome.err[-300:]}" for fault in outcome.faults()]
        if values is not None and values not in self._believed and not _is_marked(values):
            found.append(
                f"{when}: numbers that are neither right nor marked: "
                f"{_difference(values, self._believed[1])}"
            )
        return found


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items() if key not in _UNCOMPARED}
    return [_plain(byte) for byte in data] if isinstance(data, list) else data


def _is_marked(values: Any) -> bool:
    """Whether a table says that not all of it can be trusted, that a run is missing, or that a
    trial failed.
    """
    rows = [*values.get("rows", ()), *((values.get("final") or {}).get("rows", ()))]
    trials = [
        candidate["trials"]
        for candidate in (values.get("search") or {"candidates": ()})["candidates"]
    ]
    unended = any(trial[state] for trial in trials for state in ("running", "failed"))
    return (
        unended
        or values.get("finished") is False
        or any(set(row["status"].split()) - {"finished"} - set("0123456789") for row in rows)
    )


def _difference(first: Any, second: Any, place: str = "") -> str:
    if isinstance(first, dict) and isinstance(second, dict):
        pairs = {
            f"{place}.{key}": (first.get(key), second.get(key))
            for key in sorted(first.keys() | second.keys())
        }
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = {
            f"{place}[{number}]": pair
            for number, pair in enumerate(zip(first, second, strict=True))
        }
    else:
        return f"{place}: {str(first)[:200]} / {str(second)[:200]}"
    return next(
        (_difference(*pair, where) for where, pair in pairs.items() if pair[0] != pair[1]), ""
    )
