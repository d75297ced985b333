"""The ListOps data set: prepared once into packed columns `trainval` and `test`, opened
memory-mapped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import Dataset, DataSpec, Split, SplitName
from subquad.security.limits import allow_disk, allow_memory
from subquad_datasets.listops import Config
from subquad_datasets.listops.generate import different
from subquad_datasets.listops.guesses import guesses
from subquad_datasets.listops.noted import NotedSplit
from subquad_datasets.listops.official import FILES, OFFICIAL_SIZES, find_files, read_rows
from subquad_datasets.listops.tokens import VOCABULARY
from subquad_datasets.listops.trees import TRIES, Shape
from subquad_datasets.packed import PackedSplit, PackedWriter, write_packed
from subquad_datasets.prepared import (
    SEALED,
    alike,
    file_content,
    fingerprint,
    prepare_once,
    prepared_content,
    read_manifest,
    sha256_of,
)

VERSION = 1
"""Of what is prepared: raise it where the same key would give other bytes."""

FILES_VERSION = 2
"""The same of what is read from files."""

TRAIN_STREAM = 0
TEST_STREAM = 1
_ANY_LENGTH = 1
_OFFICIAL_MAX_LEN = 2000
_TOKEN_BYTES = 16
"""That drawing a block takes at a time; most of its sequences are shorter."""
_WORTH_A_PROCESS = 2000


class ListOps(Dataset):
    """ListOps, from the official files or generated.

    The official validation file is the validation split, in generated data the last sequences of
    the training stream. The official TEST file is not touched before it is opened.

    Reference: Tay et al., 2021, arXiv:2011.04006, section 2.2.1.
    """

    config: Config

    def prepare(self) -> None:
        """Read or generate what is not there yet.

        Raises:
            DataError: a missing or malformed file, as `file:line: ...`, or sizes that cannot be
                generated.
        """
        _ = self._folder

    def describe(self) -> DataSpec:
        facts = read_manifest(self._folder).facts
        sizes = {name: int(facts["sizes"][name]) for name in ("train", "validation")}
        return DataSpec.tokens(
            max_len=self._max_len,
            vocab_size=len(VOCABULARY),
            num_classes=10,
            class_names=tuple("0123456789"),
            sizes={**sizes, "trainval": sum(sizes.values())},
            benchmark="listops",
            notes=(*facts["notes"], *self._clipped(), _guess_note(facts["reference_scores"])),
        )

    def load(self, name: SplitName) -> PackedSplit:
        """Open a split.

        Raises:
            DataError: damaged prepared data, or a malformed TEST file.
        """
        if name == "test":
            folder = self._test_folder()
            return NotedSplit(
                folder,
                "test",
                self._max_len,
                notes=read_manifest(folder).facts.get("test_notes", ()),
            )
        both = PackedSplit(self._folder, "trainval", self._max_len)
        if name == "trainval":
            return both
        return _part(both, name, read_manifest(self._folder).facts["sizes"]["train"])

    def prepared_test(self) -> PackedSplit | None:
        if self.config.path and alike(self._files["train"], self._files["test"]):
            return self.load("test")
        return None

    def test_content(self) -> str:
        """Of the official file alone."""
        if self.config.path:
            return file_content(self._home, [self._files["test"]])
        return prepared_content(self._folder)

    def files_read(self) -> tuple[str, ...]:
        if self.config.path is None:
            return ()
        return (SEALED,)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority` and `root_operator`, learned on `train`: see
        `subquad_datasets.listops.guesses`.
        """
        assert isinstance(split, PackedSplit)
        return guesses(self.load("train"), split)

    @property
    def _max_len(self) -> int:
        return self.config.max_len or (
            _OFFICIAL_MAX_LEN if self.config.path is not None else self.config.max_length
        )

    @property
    def _home(self) -> Path:
        return self.root / "lra-listops"

    @cached_property
    def _files(self) -> dict[str, Path]:
        return find_files(Path(self.config.path or ""))

    @cached_property
    def _folder(self) -> Path:
        if self.config.path is None:
            return prepare_once(
                self._home, {"version": VERSION, "generated": self._recipe()}, self._generate
            )
        sources = {name: fingerprint([self._files[name]]) for name in ("train", "validation")}
        return prepare_once(
            self._home, {"version": FILES_VERSION, "files": sources}, self._read_trainval
        )

    def _test_folder(self) -> Path:
        if self.config.path is None:
            return self._folder
        sources = {"test": fingerprint([self._files["test"]])}
        return prepare_once(
            self._home, {"version": FILES_VERSION, "files": sources}, self._read_test
        )

    def _recipe(self) -> dict[str, Any]:
        """Every parameter that decides what is generated."""
        return {"tries": TRIES, **self.config.model_dump(exclude={"path", "processes", "max_len"})}

    def _generate(self, part: Path) -> dict[str, Any]:
        config = self.config
        digests = set[bytes]()
        shape = Shape(
            **config.model_dump(
                include={"seed", "min_length", "max_length", "max_depth", "max_args"}
            )
        )
        wanted = {
            ("trainval", TRAIN_STREAM): config.train_size + config.validation_size,
            ("test", TEST_STREAM): config.test_size,
        }
        allow_memory(
            f"{TRIES:,} sequences of up to {config.max_length:,} tokens",
            _TOKEN_BYTES * TRIES * config.max_length,
        )
        for (name, stream), count in wanted.items():
            length = config.min_length
            allow_disk(f"{count:,} sequences of {length:,} tokens", count * length, part)
            with PackedWriter(part, name) as writer:
                for block in different(shape, stream, count, self._processes(count), digests):
                    writer.extend(block.tokens, block.lengths, block.labels)
        return _facts(
            part, config.train_size, ["stand-in data: generated ListOps, not the official files"]
        )

    def _processes(self, count: int) -> int:
        """A process for each CPU, but none that would hardly start before the work is done."""
        return self.config.processes or max(
            1, min(len(os.sched_getaffinity(0)), count // _WORTH_A_PROCESS)
        )

    def _read_trainval(self, part: Path) -> dict[str, Any]:
        sizes: dict[str, int] = {}
        with PackedWriter(part, "trainval") as writer:
            for name in ("train", "validation"):
                sizes[name] = 0
                for ids, label in read_rows(self._files[name]):
                    writer.append(ids, label)
                    sizes[name] += 1
        sources = {self._files[name].name: sha256_of(self._files[name]) for name in sizes}
        return {**_facts(part, sizes["train"], _incomplete(sizes)), "sources": sources}

    def _read_test(self, part: Path) -> dict[str, Any]:
        rows = [*read_rows(self._files["test"])]
        write_packed(part, "test", (ids for ids, _ in rows), (label for _, label in rows))
        sources = {FILES["test"]: sha256_of(self._files["test"])}
        return {"test_notes": _incomplete({"test": len(rows)}), "sources": sources}

    def _clipped(self) -> list[str]:
        clipped = int((self.load("trainval").uncut_lengths > self._max_len).sum())
        if clipped:
            return [f"{clipped} sequences of TRAIN are cut at {self._max_len} tokens"]
        return []


def _incomplete(sizes: Mapping[str, int]) -> list[str]:
    """What tells official files from the released ones: nothing but their numbers of rows is
    known.
    """
    return [
        (
            f"stand-in data: {FILES[name]} has {size:,} rows, the official file "
            f"{OFFICIAL_SIZES[name]:,}"
        )
        for name, size in sizes.items()
        if size != OFFICIAL_SIZES[name]
    ]


def _part(both: PackedSplit, name: SplitName, train: int) -> PackedSplit:
    """TRAIN lies before the validation part."""
    return both.subset(np.arange(train) if name == "train" else np.arange(train, len(both)))


def _facts(part: Path, train: int, notes: list[str]) -> dict[str, Any]:
    both = PackedSplit(part, "trainval", _ANY_LENGTH)
    scores = guesses(_part(both, "train", train), _part(both, "validation", train))
    return {
        "sizes": {"train": train, "validation": len(both) - train},
        "notes": notes,
        "reference_scores": scores,
    }


def _guess_note(scores: dict[str, float]) -> str:
    return (
        f"on the validation part the commonest value scores {100 * scores['majority']:.1f} %, "
        f"the outermost operator alone {100 * scores['root_operator']:.1f} %"
    )
