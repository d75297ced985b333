"""ListOps beside the code of published loaders, for benchmarks/readings.py. N sequences, L their
length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from readings import Reading

from subquad_datasets.listops import Config
from subquad_datasets.listops.dataset import TRAIN_STREAM
from subquad_datasets.listops.generate import different
from subquad_datasets.listops.tokens import END_ID, FIRST_OPERATOR, VOCABULARY, encode
from subquad_datasets.listops.trees import Shape
from subquad_datasets.packed import PackedSplit, write_packed

SAMPLES, BATCH, LENGTH = 640, 32, 2000
_IDS = {token: number for number, token in enumerate(VOCABULARY)}


def readings(folder: Path) -> Iterator[Reading]:
    """Texts of the official form as batches of token ids, and the same batches from prepared
    data.
    """
    rows, labels = _drawn()
    texts = [_parenthesised(ids) for ids in rows]
    write_packed(folder, "train", rows, labels)
    cache = PackedSplit(folder, "train", LENGTH)
    ways = {
        "replace, split, dictionary": lambda: _batched(map(_published, texts)),
        "one translation": lambda: _batched(_padded(encode(text)) for text in texts),
        "from prepared data": lambda: _batches(cache),
    }
    yield Reading(f"batches of {BATCH} texts", SAMPLES, ways)


def _drawn() -> tuple[list[bytes], list[int]]:
    """Sequences of the official distribution."""
    config = Config()
    shape = Shape(
        **config.model_dump(include={"seed", "min_length", "max_length", "max_depth", "max_args"})
    )
    rows, labels = list[bytes](), list[int]()
    for block in different(shape, TRAIN_STREAM, SAMPLES, 1, set()):
        rows += [part.tobytes() for part in np.split(block.tokens, np.cumsum(block.lengths)[:-1])]
        labels += block.labels.tolist()
    return rows, labels


def _parenthesised(ids: bytes) -> bytes:
    """The text of the official form, in which a list is a chain of pairs: `( ( ( [MIN 1 ) 2 ) ]
    )`.
    """
    done, open_lists = list[str](), list[list[str]]()
    for token in ids:
        if FIRST_OPERATOR <= token < END_ID:
            open_lists.append([VOCABULARY[token]])
            continue
        text = VOCABULARY[token]
        if token == END_ID:
            operator, *arguments = open_lists.pop()
            text = (
                f"{'( ' * (len(arguments) + 1)}{operator} "
                f"{' '.join(f'{argument} )' for argument in arguments)} ] )"
            )
        (open_lists[-1] if open_lists else done).append(text)
    return done[0].encode()


def _published(text: bytes) -> np.ndarray:
    """(L,) int64, as the loaders of papers make it, but with this vocabulary's numbers."""
    words = text.decode().replace("(", "").replace(")", "").split()
    ids = [_IDS[word] for word in words][:LENGTH]
    return np.array(ids + [0] * (LENGTH - len(ids)), dtype=np.int64)


def _padded(ids: bytes) -> np.ndarray:
    """(L,) int64."""
    row = np.zeros(LENGTH, dtype=np.int64)
    row[: len(ids)] = np.frombuffer(ids, np.uint8)[:LENGTH]
    return row


def _batches(cache: PackedSplit) -> Iterator[np.ndarray]:
    for indices in np.arange(SAMPLES).reshape(-1, BATCH):
        yield cache.fetch(indices, epoch=0, seed=0)["inputs"]


def _batched(rows: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """(B, L) int64, as a loader hands them on."""
    rows = iter(rows)
    while batch := [*islice(rows, BATCH)]:
        yield np.stack(batch)
