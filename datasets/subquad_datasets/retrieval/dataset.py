"""Pairs of byte-level documents as a data set. Token ids: byte + 1, 0 is padding. TEST is packed
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from subquad.data import Dataset, DataSpec, Split, SplitName
from subquad.errors import DataError
from subquad_datasets.guesses import majority
from subquad_datasets.invented import Stream
from subquad_datasets.prepared import check_prepared, prepare_once, read_manifest
from subquad_datasets.retrieval import Config
from subquad_datasets.retrieval.generate import VERSION as GENERATED
from subquad_datasets.retrieval.generate import pack_generated
from subquad_datasets.retrieval.pack import Parts, pack, read_digests
from subquad_datasets.retrieval.source import Source, need_pairs
from subquad_datasets.retrieval.split import PairSplit, open_pairs
from subquad_datasets.text.split import CutSplit

VOCAB_SIZE = 257
VERSION = 2
OFFICIAL_PAIRS = {"train": 147_086, "validation": 18_090, "test": 17_437}
"""Rows of the released files; no checksums of them were published."""


class Retrieval(Dataset):
    """Do two documents belong together?

    Reference: Tay et al., 2021, section 2.3; the files' own eval part is the validation split.
    """

    config: Config

    def prepare(self) -> None:
        """Pack TRAIN with its validation part, and TEST, so that faults show before training."""
        self.prepared_test()

    def prepared_test(self) -> CutSplit:
        return self._test()

    def describe(self) -> DataSpec:
        sizes = {name: self._facts[name]["pairs"] for name in ("train", "validation")}
        return DataSpec.tokens(
            max_len=self.config.max_len,
            vocab_size=VOCAB_SIZE,
            num_classes=2,
            target="pair",
            class_names=("other", "same"),
            sizes={**sizes, "trainval": sum(sizes.values())},
            benchmark="retrieval",
            notes=(*self._kind(), *self._clipped(self._open("train", "validation"), "TRAIN")),
        )

    def load(self, name: SplitName) -> CutSplit:
        """Open a split: "trainval" is TRAIN and the eval part.

        Raises:
            DataError: malformed or missing files.
        """
        if name == "test":
            return self._test()
        if name == "trainval":
            names = ("train", "validation")
        else:
            names = (name,)
        return CutSplit(self._open(*names), self.config.cut)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest answer."""
        return majority(self.load("trainval"), split)

    def _open(self, *names: str) -> PairSplit:
        return open_pairs(self._training, names, self.config.max_len)

    @cached_property
    def _parts(self) -> Parts:
        train = need_pairs(self.config, "train")
        validation = need_pairs(self.config, "validation")
        _check_kind(train, validation)
        return ("train", train), ("validation", validation)

    @cached_property
    def _training(self) -> Path:
        if self.config.path is None:
            return self._generate(
                {"train": self.config.train_size, "validation": self.config.validation_size}
            )
        parts = self._parts
        config = self.config
        return prepare_once(
            self.root / "lra-retrieval",
            self._key(parts),
            lambda folder: pack(folder, parts, config),
        )

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        return check_prepared(self._training).facts

    def _generate(self, sizes: dict[Stream, int]) -> Path:
        seed = self.config.seed
        key = {"set": "retrieval", "generated": GENERATED, "sizes": sizes, "seed": seed}
        return prepare_once(
            self.root / "lra-retrieval", key, lambda folder: pack_generated(folder, sizes, seed)
        )

    def _prepare_test(self, training: Path) -> Path:
        if self.config.path is None:
            return self._generate({"test": self.config.test_size})
        source = need_pairs(self.config, "test")
        _check_kind(self._parts[0][1], source)
        parts = (("test", source),)
        config = self.config
        key = {**self._key(parts), "after": training.name}
        return prepare_once(
            self.root / "lra-retrieval",
            key,
            lambda folder: pack(folder, parts, config, read_digests(training)),
        )

    def _key(self, parts: Parts) -> dict[str, Any]:
        config = self.config
        files = {name: source.fingerprint(config) for name, source in parts}
        kind = parts[0][1].kind
        if _is_drawn(kind):
            drawn = {"parts": [config.first, config.second], "seed": config.pair_seed}
        else:
            drawn = {}
        return {
            "set": "retrieval",
            "version": VERSION,
            "files": files,
            "utf8": config.check_utf8,
            "kind": kind,
            **drawn,
        }

    def _test(self) -> CutSplit:
        folder = self._prepare_test(self._training)
        facts = read_manifest(folder).facts
        split = open_pairs(folder, ("test",), self.config.max_len)
        aan = self.config.path is not None and self._parts[0][1].kind == "aan"
        notes = [*(_incomplete(facts) if aan else ()), *_left(facts), *self._clipped(split, "TEST")]
        return CutSplit(split, self.config.cut, tuple(notes))

    def _kind(self) -> list[str]:
        if self.config.path is None:
            return [
                "stand-in data: generated pairs of documents of invented words, not the AAN files"
            ]
        kind = self._parts[0][1].kind
        name = Path(self.config.path).name
        if kind == "aan":
            return [*_incomplete(self._facts), *_left(self._facts)]
        if _is_drawn(kind):
            what = f"{self.config.first} and {self.config.second} of the same document or not"
        else:
            what = "pairs"
        return [f"stand-in data: {what}, from {name}, not the AAN files", *_left(self._facts)]

    def _clipped(self, split: PairSplit, name: str) -> list[str]:
        count = split.clipped(self.config.cut)
        cut = self.config.cut
        if count:
            return [f"{count} of {len(split)} {name} pairs hold a text cut at {cut} bytes"]
        return []


def _is_drawn(kind: str) -> bool:
    return kind in ("jsonl", "folders")


def _check_kind(train: Source, other: Source) -> None:
    if other.kind != train.kind:
        raise DataError(
            f"{other.path}: is of another layout ({other.kind}) than {train.path} ({train.kind})"
        )


def _incomplete(facts: Mapping[str, Any]) -> list[str]:
    """What tells official files from the released ones: nothing but their numbers of rows is
    known.
    """
    counts = (
        (name, facts[name]["pairs"], count)
        for name, count in OFFICIAL_PAIRS.items()
        if name in facts
    )
    return [
        f"stand-in data: {name} has {pairs:,} pairs, the released AAN file {count:,}"
        for name, pairs, count in counts
        if pairs != count
    ]


def _left(facts: Mapping[str, Any]) -> list[str]:
    """Documents that were left out, and pairs that were left in with a text of blanks."""
    dropped = []
    blank = []
    for name in OFFICIAL_PAIRS:
        part = facts.get(name, {})
        if count := part.get("dropped"):
            dropped.append(
                f"{count} documents of {name} left out: their text "
                "stands in an earlier split or twice in this one"
            )
        if count := part.get("blank"):
            blank.append(f"{count} pairs of {name} hold a text of blanks only")
    return dropped + blank
