"""Batches on their way to the model: how a global batch or a split is cut into forward passes of one rank, and fetched.

Fetched here or by loader processes, the order is always the plan's. Batches of like length are cut to their longest
sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader

from subquad.data import Array, ArrayBatch, Split, sample_lengths
from subquad.engine.parts import ModelParts, Parts
from subquad.errors import DataError
from subquad.nn import Batch
from subquad.plan import Plan

Micro = tuple[Batch, bool]
"""A batch on its device, and whether it is real (a stand-in weighs nothing)."""


@dataclass(frozen=True)
class _Request:
    """One forward pass of one rank.

    Attributes:
        epoch: for randomness that belongs to a sample.
        indices: global sample indices, never empty.
        real: False for a stand-in that keeps a rank in step where it has no sample left; it weighs nothing.
        length: positions that are kept of the padded arrays, that of the global batch's longest sample, so that ranks
            and micro-batches trim alike; None: all.
    """

    epoch: int
    indices: np.ndarray
    real: bool = True
    length: int | None = None


def share(indices: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The contiguous part of a global batch that one rank works on; sizes differ by at most one."""
    return np.array_split(indices, world_size)[rank] if world_size > 1 else indices


def _request(epoch: int, chunk: np.ndarray, stand_in: np.ndarray, length: int | None = None) -> _Request:
    return _Request(epoch, chunk, True, length) if len(chunk) else _Request(epoch, stand_in, False, length)


def _training_requests(plan: Plan, step: int, rank: int, world_size: int, micro_batch: int | None) -> list[_Request]:
    """The forward passes of one rank in one step. Every rank gets equally many, so collective calls pair up."""
    epoch, indices = plan.batch(step)
    length = plan.length(indices)
    largest = -(-len(indices) // world_size)
    size = min(micro_batch or largest, largest)
    mine = share(indices, rank, world_size)
    chunks = [mine[start : start + size] for start in range(0, largest, size)]
    return [_request(epoch, chunk, indices[:1], length) for chunk in chunks]


def _evaluation_requests(num_samples: int, rank: int, world_size: int, batch_size: int) -> Iterator[_Request]:
    """Each sample exactly once over the ranks, equally many forward passes on each rank."""
    everything = np.arange(num_samples)
    mine = share(everything, rank, world_size)
    for start in range(0, -(-num_samples // world_size), batch_size):
        yield _request(0, mine[start : start + batch_size], everything[:1])


def _sorted_requests(lengths: np.ndarray, rank: int, world_size: int, batch_size: int) -> Iterator[_Request]:
    """The same with samples of like length in each forward pass over all ranks, the longest first.

    So if memory runs out, it does at once.
    """
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size * world_size):
        together = order[start : start + batch_size * world_size]
        yield _request(0, share(together, rank, world_size), together[:1], int(lengths[together[0]]))


@dataclass(frozen=True)
class _Source:
    """A split behind requests instead of indices; it travels to loader processes.

    Attributes:
        arrays: the data set's, with their axes.
    """

    split: Split
    seed: int
    arrays: Mapping[str, Array]

    def __getitem__(self, request: _Request) -> ArrayBatch:
        batch = self.split.fetch(request.indices, epoch=request.epoch, seed=self.seed)
        return batch if request.length is None else _trimmed(batch, request.length, self.arrays)


def _trimmed(batch: ArrayBatch, length: int, arrays: Mapping[str, Array]) -> ArrayBatch:
    """A batch without what lies from `length` on along the axis "length", in every array that has it.

    Raises:
        DataError: a bool array says that something real lies beyond.
    """
    cut = {}
    for name, values in batch.items():
        axes = arrays[name].axes if name in arrays else ()
        if "length" in axes:
            before = (slice(None),) * (1 + axes.index("length"))
            if values.dtype == bool and values[(*before, slice(length, None))].any():
                raise DataError(f"the data set gives a length of {length}, but {name} has real tokens beyond it")
            values = np.ascontiguousarray(values[(*before, slice(length))])
        cut[name] = values
    return cut


def _same(arrays: ArrayBatch) -> ArrayBatch:
    return arrays


def training_batches(parts: Parts, start: int, workers: int) -> Iterator[tuple[list[Micro], int]]:
    """For each step from `start` to the plan's end, this rank's micro-batches and the global batch's samples.

    Args:
        workers: loader processes; 0 fetches here. The order is the same.
    """
    plan, group = parts.plan, parts.group
    source = _Source(parts.training, plan.seed, parts.task.spec.arrays)
    steps = range(start, plan.total_steps)

    def wanted(step: int) -> list[_Request]:
        return _training_requests(plan, step, group.rank, group.world_size, parts.train.micro_batch)

    every = (one for step in steps for one in wanted(step))
    fetched = iter(_loader(source, every, workers)) if workers else (source[one] for one in every)
    for step in steps:
        micros = [(parts.on_device(next(fetched)), one.real) for one in wanted(step)]
        yield micros, len(plan.batch(step)[1])


def _loader(source: _Source, requests: Iterator[_Request], workers: int) -> DataLoader[ArrayBatch]:
    return DataLoader(
        source,  # type: ignore[arg-type]
        sampler=requests,  # type: ignore[arg-type]
        batch_size=None,
        collate_fn=_same,  # type: ignore[arg-type]
        num_workers=workers,
        multiprocessing_context="spawn",
        # Without one of its own the loader draws from torch's global generator, and dropout would differ.
        generator=torch.Generator(),
    )


def evaluation_batches(parts: ModelParts, split: Split) -> Iterator[tuple[Batch, _Request]]:
    """This rank's batches of a split, of like length where training is bucketed and its lengths are known.

    Stand-ins are left out unless the model is sharded, whose forward passes are collective calls.
    """
    train, group = parts.train, parts.group
    sharded = parts.bare_model is parts.model and group.world_size > 1
    ranks = group.rank, group.world_size, train.eval_batch_size or train.batch_size
    lengths = sample_lengths(split) if train.bucket_batches else None
    source = _Source(split, train.seed, parts.task.spec.arrays)
    for request in _evaluation_requests(len(split), *ranks) if lengths is None else _sorted_requests(lengths, *ranks):
        if request.real or sharded:
            yield parts.on_device(source[request]), request
