"""The starts of a run, and what each measured: records of training, evaluations and events, a line
each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from subquad.errors import RunError
from subquad.record.files import json_line, parse_object, read_lines, touching
from subquad.record.names import ATTEMPTS, METRICS
from subquad.security.disk import opened
from subquad.security.strict_json import lines_of

RecordKind = Literal["train", "eval", "system", "event"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of metrics.jsonl.

    Attributes:
        kind: "train", "eval", "system" or "event".
        step: optimiser steps done.
        epoch: epochs done, fractional.
        seconds: training time so far over all attempts, from a monotonic clock.
        time: wall clock, seconds since 1970.
        attempt: 1 for the first start, counted up at each resume.
        split: the split an "eval" record is of.
        metrics: values by name; non-finite ones are kept.
        text: what an "event" says.
    """

    kind: RecordKind
    step: int
    epoch: float
    seconds: float
    time: float
    attempt: int = 1
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    text: str = ""

    def line(self) -> str:
        """The record as one line of strict JSON; non-finite values as the strings NaN, Infinity,
        -Infinity.
        """
        return json_line({key: value for key, value in vars(self).items() if value != ""})

    @staticmethod
    def parse(line: str | bytes) -> Record:
        """A line of metrics.jsonl; what this version does not know of it is passed over.

        Raises:
            ValueError: it is no record, or its check does not hold.
        """
        return _RECORD.validate_python(parse_object(line))


_RECORD = TypeAdapter(Record)
_LATER = re.compile(r"metrics-([2-9]|[1-9][0-9]{1,8})\.jsonl")
"""Names of the files of later attempts; of others in a strange folder nothing is read."""


def metrics_file(run: Path, attempt: int) -> Path:
    """Where an attempt writes its records; nothing else writes there."""
    return run / (METRICS if attempt == 1 else f"metrics-{attempt}.jsonl")


def metrics_files(run: Path) -> list[Path]:
    """The files of a run's records, one for each attempt, oldest first."""
    later = [_LATER.fullmatch(path.name) for path in run.glob("metrics-*.jsonl")]
    attempts = [int(match[1]) for match in later if match]
    if (run / METRICS).exists():
        attempts.append(1)
    return [metrics_file(run, attempt) for attempt in sorted(attempts)]


@dataclass(frozen=True)
class Place:
    """How far a reader of records that grow is.

    Attributes:
        read: bytes and lines that were read of each file.
        unreadable: lines that are no records, as a crash of the machine may leave them, each as
            `FILE:LINE`.
    """

    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def read_new(run: Path, place: Place) -> tuple[list[Record], Place]:
    """Complete records of every attempt after a place, in the order in which they were written.

    Steps that a later attempt trained again are there twice, see `read_records`.
    """
    records = []
    read = dict(place.read)
    unreadable = list(place.unreadable)
    for path in metrics_files(run):
        offset, number = read.get(path.name, (0, 0))
        with touching(path), opened(path) as stream:
            stream.seek(offset)
            lines = list(lines_of(stream))
        for line in lines:
            if not line.endswith(b"\n"):
                continue
            offset += len(line)
            number += 1
            try:
                records.append(Record.parse(line))
            except ValueError:
                unreadable.append(f"{path.name}:{number}")
        read[path.name] = offset, number
    return records, Place(read, tuple(unreadable))


def read_records(run: Path) -> list[Record]:
    """The records of a run, of each step those of the newest attempt; a torn last line is left out.

    Raises:
        RunError: a line of the newest attempt is no record, or a file cannot be read.
    """
    records, place = read_new(run, Place())
    newest = list(place.read)[-1:]
    for line in place.unreadable:
        if line.rpartition(":")[0] in newest:
            raise RunError(f"{run / line}: damaged: no record")
    found: list[Record] = []
    for _, group in groupby(records, key=lambda record: record.attempt):
        later = list(group)
        first = min([record.step for record in later if record.kind == "train"], default=math.inf)
        found = [record for record in found if record.step < first] + later
    return found


@dataclass(frozen=True)
class Attempt:
    """One start of a run.

    Attributes:
        attempt: 1 for the first start.
        from_step: step it went on from.
        launch: the start of the driver; a restart by hand is another one.
        world_size: number of ranks.
        threads: of torch on each rank. They decide how sums are cut, so the last bits of a loss.
        pid, host: the first rank's process.
        time: wall clock, seconds since 1970.
    """

    attempt: int
    from_step: int
    launch: str
    world_size: int
    threads: int
    pid: int = 0
    host: str = ""
    time: float = 0.0


_ATTEMPT = TypeAdapter(Attempt)


def read_attempts(run: Path) -> list[Attempt]:
    """The starts of a run, oldest first; damaged lines are left out.

    Raises:
        RunError: the file cannot be read.
    """
    found = list[Attempt]()
    for line in read_lines(run / ATTEMPTS):
        with suppress(ValueError):
            found.append(_ATTEMPT.validate_python(line))
    return found
