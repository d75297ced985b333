"""Tokenizers: texts to token ids, and back. Id 0 is padding, id 1 ends a text; others stand for
pieces of text.

Letters: n texts, T tokens of all of them, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import VALUES, allow
from subquad_datasets.prepared import check_prepared, prepare_once

TokenizerName = Literal["byte", "bpe", "word"]

END_TOKEN = 1
VERSION = 1
"""Of how texts become tokens: raise it where the same settings would give other ids."""

BPE_SIZE = 8192
"""Vocabulary of `bpe` where nothing else is asked for."""

_FIRST = 2
"""The first id that stands for text."""

_LEARNT = "tokenizer.json"
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Pieces:
    """From token ids to their text, for `DataSpec.text`.

    Attributes:
        pieces: (V,) the bytes that each id stands for.
    """

    pieces: tuple[bytes, ...]

    def __call__(self, ids: Sequence[int]) -> str:
        return b"".join([self.pieces[token] for token in ids]).decode("utf-8", "replace")


class Tokenizer(ABC):
    """Token ids of texts. Built as `cls(learnt)`, and pickled so.

    Args:
        learnt: what `learn` gave.

    Attributes:
        unknown: the id of all text that has no other; -1 where all text has one.
    """

    unknown: ClassVar[int] = -1

    def __init__(self, learnt: str = ""):
        self.learnt = learnt

    def __reduce__(self) -> Any:
        return type(self), (self.learnt,)

    @staticmethod
    def learn(texts: Iterable[str], vocab_size: int | None) -> str:
        """What this kind learns from texts: JSON, "" where there is nothing to learn.

        Args:
            texts: of TRAIN alone.
            vocab_size: V, all ids counted; None: the kind's default.
        """
        return ""

    @abstractmethod
    def _pieces(self) -> Iterable[bytes]:
        """The bytes that the ids from 2 on stand for."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Each text by itself, without an end token: (T,) ids of all of them, and (n,) tokens of
        each.
        """

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """(V,) the bytes that each id stands for."""
        return (b"", b"", *self._pieces())

    @cached_property
    def text(self) -> Pieces:
        """From ids to text."""
        return Pieces(self.pieces)

    @cached_property
    def token_bytes(self) -> tuple[int, ...]:
        """(V,) bytes of text that each id stands for; empty where one stands for unknown text."""
        if self.unknown < 0:
            return tuple(map(len, self.pieces))
        return ()

    @property
    def dtype(self) -> type:
        """What ids are kept as."""
        return np.uint16 if len(self.pieces) <= 65_536 else np.uint32


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8: id = byte + 2, 258 ids. Lossless."""

    def _pieces(self) -> Iterable[bytes]:
        return (bytes([value]) for value in range(256))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        pieces = [text.encode() for text in texts]
        ids = np.frombuffer(b"".join(pieces), np.uint8).astype(np.uint16) + np.uint16(_FIRST)
        return ids, np.array(list(map(len, pieces)), dtype=np.int64)


class PairTokenizer(Tokenizer):
    """Byte-level byte-pair encoding by the library tokenizers: id = its id + 2. Lossless.

    Texts are cut into words as for GPT-2, so no token reaches over a blank; the 256 bytes are
    always among the pieces.
    """

    @staticmethod
    def learn(texts: Iterable[str], vocab_size: int | None) -> str:
        library = _library()
        model = library.Tokenizer(library.models.BPE())
        model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = library.trainers.BpeTrainer(
            vocab_size=(vocab_size or BPE_SIZE) - _FIRST,
            initial_alphabet=sorted(_BYTES),
            show_progress=False,
        )
        model.train_from_iterator(texts, trainer)
        return model.to_str()

    @cached_property
    def _model(self) -> Any:
        return _library().Tokenizer.from_str(self.learnt)

    def _pieces(self) -> Iterable[bytes]:
        numbers = json.loads(self.learnt)["model"]["vocab"]
        for name in sorted(numbers, key=numbers.get):
            yield bytes(_BYTES[letter] for letter in name)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encodings = self._model.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(rows), np.uint32) + np.uint32(_FIRST)
        return ids, np.array(list(map(len, rows)), dtype=np.int64)


class WordTokenizer(Tokenizer):
    """Words between blanks, as in WikiText: id 2 ends a line, id 3 is `<unk>`, which stands for all
    unknown words.

    A word's piece has a blank before it, and so has the end of a line: WikiText's files come back
    byte for byte.
    """

    unknown = 3

    @staticmethod
    def learn(texts: Iterable[str], vocab_size: int | None) -> str:
        counts = Counter[str]()
        for text in texts:
            counts.update(text.split())
            allow("tokenizer word", "different words", len(counts), VALUES)
        del counts["<unk>"]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return json.dumps(ranked if vocab_size is None else ranked[: vocab_size - _FIRST - 2])

    def _pieces(self) -> Iterable[bytes]:
        return (b" \n", b" <unk>", *(f" {word}".encode() for word in json.loads(self.learnt)))

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        return {piece[1:].decode(): number for number, piece in enumerate(self.pieces) if piece}

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = self._ids
        numbers = []
        lengths = []
        for text in texts:
            words = re.findall(r"\n|\S+", text)
            numbers += [ids.get(word, self.unknown) for word in words]
            lengths.append(len(words))
        return np.array(numbers, dtype=np.uint32), np.array(lengths, dtype=np.int64)


_KINDS: dict[TokenizerName, type[Tokenizer]] = {
    "byte": ByteTokenizer,
    "bpe": PairTokenizer,
    "word": WordTokenizer,
}


@dataclass(frozen=True)
class TokenizerChoice:
    """Which tokenizer, and how large.

    Attributes:
        name: "byte", "bpe" or "word".
        vocab_size: V; None: the default of the kind.
    """

    name: TokenizerName
    vocab_size: int | None = None

    def fit(self, texts: Callable[[], Iterator[str]], root: Path) -> Tokenizer:
        """The tokenizer that is learnt from TRAIN, or was once: it is kept under the hash of text
        and settings.

        Args:
            texts: reads TRAIN's texts; called twice where they are new.
            root: the folder of prepared data.
        """
        kind = _KINDS[self.name]
        if self.name == "byte":
            return kind()
        digest = hashlib.sha256()
        for text in texts():
            digest.update(f"{len(text)}\n{text}".encode())
        key = {
            "tokenizer": self.name,
            "version": VERSION,
            "vocab_size": self.vocab_size,
            "texts": digest.hexdigest(),
        }

        def build(folder: Path) -> Mapping[str, Any]:
            keep_tokenizer(folder, kind(kind.learn(texts(), self.vocab_size)))
            return {}

        return self.open(prepare_once(root / "tokenizers", key, build))

    def open(self, folder: Path) -> Tokenizer:
        """The tokenizer that `keep_tokenizer` put into a prepared folder."""
        check_prepared(folder)
        return _KINDS[self.name]((folder / _LEARNT).read_text("utf-8"))


def keep_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Keep what a tokenizer has learnt beside the data that it made."""
    (folder / _LEARNT).write_text(tokenizer.learnt, "utf-8")


def encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What `Tokenizer.encode` gives, for about a MiB of texts at a time."""
    held = list[str]()
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= _AT_ONCE:
            yield tokenizer.encode(held)
            held = []
            size = 0
    if held:
        yield tokenizer.encode(held)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise DataError(
            "dataset.params.tokenizer: bpe needs the library tokenizers: pip "
            "install 'subquad[text]', or use byte"
        ) from None
    return tokenizers


def _byte_letters() -> dict[str, int]:
    """GPT-2's letter for each byte: itself where it can be printed, else one of the letters from
    256 on.
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in printed]
    return {chr(value): value for value in printed} | {
        chr(256 + rank): value for rank, value in enumerate(others)
    }


_BYTES = _byte_letters()
