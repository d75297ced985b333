"""Batches on their way to the model: how a global batch or a split is cut into forward passes of
one rank, and fetched.

Fetched here or by loader processes, the order is always the plan's. Batches of like length are cut
to their longest sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice, tee
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

from subquad.data import Array, ArrayBatch, Split, sample_lengths
from subquad.engine.parts import ModelParts, Parts
from subquad.errors import DataError
from subquad.nn import Batch
from subquad.plan import Plan

BAD = "bad"
"""The array of a batch that says which samples could not be read."""


class Micro(NamedTuple):
    """What one forward pass of this rank gets.

    Attributes:
        batch: on its device.
        real: False for a stand-in, which weighs nothing.
        bad: indices of its samples that could not be read.
    """

    batch: Batch
    real: bool
    bad: tuple[int, ...] = ()


class _Request(NamedTuple):
    """One forward pass of one rank.

    Attributes:
        epoch: for randomness that belongs to a sample.
        indices: global sample indices, never empty.
        real: False for a stand-in that keeps a rank in step where it has no sample left; it weighs
            nothing.
        length: positions that are kept of the padded arrays, that of the global batch's longest
            sample, so that ranks and micro-batches trim alike; None: all.
    """

    epoch: int
    indices: np.ndarray
    real: bool = True
    length: int | None = None


def share(indices: np.ndarray, rank: int, world_size: int, together: int = 1) -> np.ndarray:
    """The contiguous part of a global batch that one rank works on; sizes differ by at most
    `together`.

    Args:
        together: samples, one after the other, that are not parted.
    """
    if world_size == 1:
        return indices
    starts = np.array_split(np.arange(0, len(indices), together), world_size)[rank]
    if len(starts):
        return indices[starts[0] : starts[-1] + together]
    return indices[:0]


def _request(
    epoch: int, chunk: np.ndarray, stand_in: np.ndarray, length: int | None = None
) -> _Request:
    is_real = len(chunk) > 0
    return _Request(epoch, chunk if is_real else stand_in, is_real, length)


def _training_requests(
    plan: Plan,
    batch: tuple[int, np.ndarray],
    rank: int,
    world_size: int,
    micro_batch: int | None,
    together: int = 1,
) -> list[_Request]:
    """The forward passes of one rank for a plan's batch. Every rank gets equally many, so
    collective calls pair up.
    """
    epoch, indices = batch
    length = plan.length(indices)
    largest = -(-len(indices) // (world_size * together)) * together
    size = min(micro_batch or largest, largest)
    mine = share(indices, rank, world_size, together)
    chunks = [mine[start : start + size] for start in range(0, largest, size)]
    return [_request(epoch, chunk, indices[:1], length) for chunk in chunks]


def _evaluation_requests(
    num_samples: int, rank: int, world_size: int, batch_size: int
) -> Iterator[_Request]:
    """Each sample exactly once over the ranks, equally many forward passes on each rank."""
    everything = np.arange(num_samples)
    mine = share(everything, rank, world_size)
    for start in range(0, -(-num_samples // world_size), batch_size):
        yield _request(0, mine[start : start + batch_size], everything[:1])


def _sorted_requests(
    lengths: np.ndarray, rank: int, world_size: int, batch_size: int
) -> Iterator[_Request]:
    """The same with samples of like length in each forward pass over all ranks, the longest first.

    So if memory runs out, it does at once.
    """
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size * world_size):
        together = order[start : start + batch_size * world_size]
        yield _request(
            0, share(together, rank, world_size), together[:1], int(lengths[together[0]])
        )


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
        if request.length is None:
            return batch
        return _trimmed(batch, request.length, self.arrays)


def _trimmed(batch: ArrayBatch, length: int, arrays: Mapping[str, Array]) -> ArrayBatch:
    """A batch without what lies from `length` on along the axis "length", in every array that has
    it.

    Raises:
        DataError: a bool array says that something real lies beyond.
    """
    cut = {}
    for name, values in batch.items():
        axes = arrays[name].axes if name in arrays else ()
        if "length" in axes:
            before = (slice(None),) * (1 + axes.index("length"))
            if values.dtype == bool and values[(*before, slice(length, None))].any():
                raise DataError(
                    f"the data set gives a length of {length}, but {name} has real tokens beyond it"
                )
            values = np.ascontiguousarray(values[(*before, slice(length))])
        cut[name] = values
    return cut


def training_batches(parts: Parts, start: int, workers: int) -> Iterator[tuple[list[Micro], int]]:
    """For each step from `start` to the plan's end, this rank's micro-batches and the global
    batch's samples.

    Args:
        workers: loader processes; 0 fetches here. The order is the same.
    """
    plan = parts.plan
    group = parts.group
    source = _Source(parts.training, plan.seed, parts.task.spec.arrays)
    ranks = group.rank, group.world_size, parts.train.micro_batch, parts.training.together

    def wanted(step: int) -> tuple[list[_Request], int]:
        batch = plan.batch(step)
        return _training_requests(plan, batch, *ranks), len(batch[1])

    steps, counted = tee(map(wanted, range(start, plan.total_steps)))
    requests, wanted_again = tee(chain.from_iterable(passes for passes, _ in steps))
    fetched = (
        iter(_loader(parts, source, requests, workers))
        if workers
        else map(source.__getitem__, requests)
    )
    micros = _micros(parts, source.split, fetched, wanted_again)
    for passes, samples in counted:
        yield list(islice(micros, len(passes))), samples


def _micros(
    parts: ModelParts, split: Split, fetched: Iterator[ArrayBatch], requests: Iterator[_Request]
) -> Iterator[Micro]:
    """What was fetched, on the device and finished. On CUDA a batch is copied while the one
    before it is worked on.
    """
    device = parts.group.device
    copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def moved() -> Micro | None:
        if (arrays := next(fetched, None)) is None:
            return None
        request = next(requests)
        bad = arrays.pop(BAD, None)
        named: tuple[int, ...] = ()
        if bad is not None and request.real:
            named = tuple(request.indices[np.asarray(bad)].tolist())
        with nullcontext() if copies is None else torch.cuda.stream(copies):
            return Micro(parts.on_device(arrays), request.real, named)

    coming = moved()
    while coming is not None:
        now = coming
        if copies is not None:
            here = torch.cuda.current_stream(device)
            here.wait_stream(copies)
            for tensor in now.batch.values():
                # its memory is not given to another copy while it is read
                tensor.record_stream(here)
            coming = moved()
        yield Micro(split.finish(now.batch), now.real, now.bad)
        if copies is None:
            coming = moved()


def _loader(
    parts: ModelParts,
    source: _Source,
    requests: Iterable[_Request],
    workers: int,
    *,
    kept: bool = False,
) -> DataLoader[ArrayBatch]:
    """Fetches in processes, which are `kept` where it is gone through again."""
    return DataLoader(
        source,  # type: ignore[arg-type]
        sampler=requests,  # type: ignore[arg-type]
        batch_size=None,
        collate_fn=_as_tensors,  # pyright: ignore[reportArgumentType]
        num_workers=workers,
        pin_memory=parts.group.device.type == "cuda",
        persistent_workers=kept,
        multiprocessing_context="spawn",
        # Without one of its own the loader draws from torch's global generator, and dropout would
        # differ.
        generator=torch.Generator(),
    )


def _as_tensors(arrays: ArrayBatch) -> Batch:
    """Tensors go from a loader process through shared memory, arrays through a pipe."""
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def evaluation_batches(parts: ModelParts, split: Split) -> Iterator[tuple[Micro, np.ndarray]]:
    """This rank's batches of a split, and the indices of their samples; of like length where
    training is bucketed.

    Stand-ins are left out unless the model is sharded, whose forward passes are collective calls.
    """
    train = parts.train
    group = parts.group
    sharded = parts.bare_model is parts.model and group.world_size > 1
    ranks = group.rank, group.world_size, train.eval_batch_size or train.batch_size
    lengths = sample_lengths(split) if train.bucket_batches else None
    source = _Source(split, train.seed, parts.task.spec.arrays)
    requests = (
        _evaluation_requests(len(split), *ranks)
        if lengths is None
        else _sorted_requests(lengths, *ranks)
    )
    wanted = [request for request in requests if request.real or sharded]
    if train.loader_workers:
        loader = parts.loaders.get(id(split)) or _loader(
            parts, source, wanted, train.loader_workers, kept=True
        )
        fetched = iter(parts.loaders.setdefault(id(split), loader))
    else:
        fetched = map(source.__getitem__, wanted)
    micros = _micros(parts, split, fetched, iter(wanted))
    yield from zip(micros, (request.indices for request in wanted), strict=True)
