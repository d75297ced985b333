"""Data sets of texts with a tokenizer: TRAIN and the validation part in one folder, anything
else apart, after them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from subquad.data import Dataset, Split
from subquad_datasets.lm import TokenizedConfig
from subquad_datasets.prepared import prepare_once, read_manifest
from subquad_datasets.tokenizer import VERSION, Tokenizer, TokenizerChoice, keep_tokenizer


class TextSource(Protocol):
    """The texts of one split, read one by one."""

    def texts(self) -> Iterator[str]: ...

    def fingerprint(self) -> str:
        """What decides every letter."""
        ...


S = TypeVar("S", bound=TextSource)


class TokenizedDataset(Dataset, Generic[S]):
    """Texts as token ids; the tokenizer is learnt on TRAIN.

    Attributes:
        place: the folder of prepared data below the root.
    """

    place: ClassVar[str]

    @abstractmethod
    def find(self) -> Mapping[Any, S]:
        """The source of "train" and "test", and of "validation" where it is not cut from TRAIN."""

    @abstractmethod
    def pack(
        self, folder: Path, sources: Mapping[str, S], tokenizer: Tokenizer
    ) -> Mapping[str, Any]:
        """Encode sources into one folder, and return facts of them."""

    def prepare(self) -> None:
        """Encode TRAIN with its validation part, and TEST, so that faults show before training."""
        self.prepared_test()

    def prepared_test(self) -> Split:
        return self.load("test")

    @cached_property
    def sources(self) -> Mapping[Any, S]:
        """What `find` found."""
        return self.find()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """TRAIN's."""
        return self._choice.open(self.training)

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What `pack` returned for TRAIN and the validation part."""
        return read_manifest(self.training).facts

    @cached_property
    def training(self) -> Path:
        """The folder with TRAIN, then the validation part where it has a source, and the
        tokenizer.
        """
        sources = {
            name: self.sources[name] for name in ("train", "validation") if name in self.sources
        }
        key = {
            "set": self.place,
            "version": VERSION,
            "tokenizer": [self._choice.name, self._choice.vocab_size],
            "files": {name: source.fingerprint() for name, source in sources.items()},
        }

        def build(folder: Path) -> Mapping[str, Any]:
            tokenizer = self._choice.fit(sources["train"].texts, self.root)
            keep_tokenizer(folder, tokenizer)
            return self.pack(folder, sources, tokenizer)

        return prepare_once(self.root / self.place, key, build)

    def prepared(self, name: str, source: S) -> Path:
        """The folder with another source, encoded with TRAIN's tokenizer."""
        key = {
            "set": self.place,
            "after": self.training.name,
            "part": name,
            "files": source.fingerprint(),
        }
        return prepare_once(
            self.root / self.place,
            key,
            lambda folder: self.pack(folder, {name: source}, self.tokenizer),
        )

    @cached_property
    def _choice(self) -> TokenizerChoice:
        assert isinstance(self.config, TokenizedConfig)
        return TokenizerChoice(self.config.tokenizer, self.config.vocab_size)
