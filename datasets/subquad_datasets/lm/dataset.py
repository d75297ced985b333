"""Text files as a data set for language models. TEST is prepared apart and opened only by
`load`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, ArraySplit, DataSpec, Split, SplitName
from subquad.errors import DataError
from subquad_datasets.lm import Config
from subquad_datasets.lm.source import Lines, TextFiles, TextPart, find_lines
from subquad_datasets.lm.windows import Windows, token_counts
from subquad_datasets.packed import PackedColumn, PackedWriter
from subquad_datasets.prepared import read_manifest
from subquad_datasets.text.lines import utf8_lines
from subquad_datasets.text.source import sums
from subquad_datasets.tokenized import TokenizedDataset
from subquad_datasets.tokenizer import END_TOKEN, Tokenizer, encoded


class TextLm(TokenizedDataset[Lines]):
    """The next token of texts."""

    config: Config
    place = "text-lm"

    def find(self) -> Mapping[TextPart, Lines]:
        return find_lines(self.config)

    def pack(
        self, folder: Path, sources: Mapping[str, Lines], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        """Encode texts into one column; between two documents of a text stands the end token.

        Returns:
            facts: {part: {"tokens": T, "unknown": tokens that are <unk>, "sources": sha256 of
                files}}.
        """
        facts: dict[str, Any] = {}
        with PackedWriter(folder, "text", tokenizer.dtype, labels=False) as writer:
            for name, lines in sources.items():
                size = missed = 0
                for tokens in _tokens(lines, tokenizer):
                    writer.append(tokens)
                    size += len(tokens)
                    missed += int((tokens == tokenizer.unknown).sum())
                if isinstance(lines, TextFiles):
                    digests = sums(lines.files)
                else:
                    digests = {}
                facts[name] = {"tokens": size, "unknown": missed, "sources": digests}
        return facts

    def describe(self) -> DataSpec:
        tokenizer = self.tokenizer
        context = self.config.context
        names: tuple[SplitName, ...] = ("train", "validation", "trainval")
        return DataSpec.tokens(
            max_len=context,
            vocab_size=len(tokenizer.pieces),
            target="next-token",
            sizes={name: len(self.load(name)) for name in names},
            end_token=END_TOKEN,
            token_bytes=tokenizer.token_bytes,
            text=tokenizer.text,
            equal_length=True,
            notes=self._notes(),
        )

    def load(self, name: SplitName) -> Windows:
        """Open a split: "trainval" is TRAIN and the validation part, one after the other.

        Raises:
            DataError: missing, empty or malformed files, or a text shorter than a window.
        """
        if name == "test":
            folder = self.prepared("test", self.sources["test"])
            return self._windows(folder, "test", slice(None), training=False)
        train = self.facts["train"]["tokens"]
        part = {"train": slice(train), "validation": slice(train, None), "trainval": slice(None)}[
            name
        ]
        return self._windows(self.training, name, part, training=name != "validation")

    def open_file(self, path: Path, *, labelled: bool) -> Split:
        """Labelled: the text of a file, every token scored once. Not: each line is the start of a
        text to go on with.

        Of a start with more tokens than a window has room for, the last ones are taken.
        """
        if labelled:
            folder = self.prepared("file", TextFiles((path,)))
            return self._windows(folder, "file", slice(None), training=False)
        flat, lengths = self.tokenizer.encode([line for _, line in utf8_lines(path)])
        context = self.config.context
        rows = np.split(flat.astype(np.int64), np.cumsum(lengths)[:-1])
        given = [np.append(END_TOKEN, row)[-context:] for row in rows]
        keep = np.arange(context) < np.array(list(map(len, given)))[:, None]
        inputs = np.zeros(keep.shape, dtype=np.int64)
        inputs[keep] = np.concatenate(given)
        return ArraySplit(
            {"inputs": inputs, "keep": keep, "labels": np.full_like(inputs, NO_LABEL)}
        )

    def files_read(self) -> tuple[str, ...]:
        notes = []
        for part, lines in self.sources.items():
            if part != "test" and isinstance(lines, TextFiles):
                names = ", ".join(path.name for path in lines.files)
                tokens = self.facts[part]["tokens"]
                notes.append(f"{part}: {names}, UTF-8, {tokens:,} tokens")
        return tuple(notes)

    def reference_scores(self, split: Split) -> dict[str, Any]:
        """`unigram`: tokens as often as in TRAIN and its validation part, one added to each
        count.
        """
        assert isinstance(split, Windows)
        tokenizer = self.tokenizer
        counts = token_counts(self.load("trainval"), len(tokenizer.pieces)) + 1
        wanted = token_counts(split, len(tokenizer.pieces))
        nats = float(wanted @ -np.log(counts / counts.sum()))
        scores = {"perplexity": math.exp(nats / wanted.sum())}
        if tokenizer.token_bytes:
            scores["bits_per_byte"] = (
                nats / math.log(2) / int(wanted @ np.array(tokenizer.token_bytes))
            )
        return {"unigram": scores}

    def _windows(self, folder: Path, name: str, part: slice, *, training: bool) -> Windows:
        column = PackedColumn(folder, "text")
        context = self.config.context
        first, last, _ = part.indices(len(column.tokens))
        if last - first < context:
            raise DataError(
                f"dataset.params.context: {name} has {last - first} tokens, fewer than a window of "
                f"{context}; use a smaller context or more text"
            )
        if training:
            stride = None
        else:
            stride = self.config.stride or context
        if name not in ("train", "trainval"):
            notes = _unknown(read_manifest(folder).facts, name)
        else:
            notes = ()
        return Windows(column, first, last, context, stride, notes)

    def _notes(self) -> tuple[str, ...]:
        stand_in = "stand-in data: generated texts of invented words"
        if self.config.path:
            notes = ()
        else:
            notes = (stand_in,)
        return (*notes, *_unknown(self.facts, "validation"))


def _tokens(lines: Lines, tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    for number, document in enumerate(lines.documents()):
        if number:
            yield np.array([END_TOKEN])
        for tokens, _ in encoded(tokenizer, document):
            yield tokens


def _unknown(facts: Mapping[str, Any], name: str) -> tuple[str, ...]:
    missed = facts[name]["unknown"]
    size = facts[name]["tokens"]
    if missed:
        return (f"{missed:,} of {size:,} {name} tokens are <unk>",)
    return ()
