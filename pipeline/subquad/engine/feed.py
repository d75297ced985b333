"""Batches on their way to the model: how a global batch or a split is cut into forward passes of
one rank, and fetched.

Fetched here or by loader processes, the order is always the plan's. Batches of like length are cut
to their longest sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
        step_samples: samples in the global batch, of a training step's last forward pass; else 0.
    """

    epoch: int
    indices: np.ndarray
    real: bool = True
    length: int | None = None
    step_samples: int = 0


_Fetched = tuple[_Request, ArrayBatch]
_Moved = tuple[_Request, Micro]


def share(indices: np.ndarray, rank: int, world_size: int, together: int = 1) -> np.ndarray:
    """The contiguous part of a global batch that one rank works on; sizes differ by at most
    `together`.

    Args:
        together: samples, one after the other, that are not parted.
    """
    if world_size == 1:
        return indices
    starts = np.array_split(np.arange(0, len(indices), together), world_size)[rank]
    if len(starts) == 0:
        return indices[:0]
    return indices[starts[0] : starts[-1] + together]


def _request(
    epoch: int, chunk: np.ndarray, stand_in: np.ndarray, length: int | None = None
) -> _Request:
    if len(chunk) == 0:
        return _Request(epoch, stand_in, False, length)
    return _Request(epoch, chunk, True, length)


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
    largest = math.ceil(len(indices) / together / world_size) * together
    size = min(micro_batch or largest, largest)
    own = share(indices, rank, world_size, together)
    requests = []
    for start in range(0, largest, size):
        requests.append(_request(epoch, own[start : start + size], indices[:1], length))
    requests.append(requests.pop()._replace(step_samples=len(indices)))
    return requests


def _evaluation_requests(
    num_samples: int, rank: int, world_size: int, batch_size: int
) -> Iterator[_Request]:
    """Each sample exactly once over the ranks, equally many forward passes on each rank."""
    everything = np.arange(num_samples)
    own = share(everything, rank, world_size)
    for start in range(0, math.ceil(num_samples / world_size), batch_size):
        yield _request(0, own[start : start + batch_size], everything[:1])


def _sorted_requests(
    lengths: np.ndarray, rank: int, world_size: int, batch_size: int
) -> Iterator[_Request]:
    """The same with samples of like length in each forward pass over all ranks, the longest first.

    So if memory runs out, it does at once.
    """
    order = np.argsort(-lengths, kind="stable")
    size = batch_size * world_size
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        longest = batch[:1]
        yield _request(0, share(batch, rank, world_size), longest, int(lengths[longest[0]]))


@dataclass(frozen=True)
class _Source:
    """A split behind requests instead of indices; it travels to loader processes.

    Attributes:
        arrays: the data set's, with their axes.
    """

    split: Split
    seed: int
    arrays: Mapping[str, Array]

    def __getitem__(self, request: _Request) -> _Fetched:
        batch = self.split.fetch(request.indices, epoch=request.epoch, seed=self.seed)
        if request.length is not None:
            batch = _trimmed(batch, request.length, self.arrays)
        return request, batch


def _trimmed(batch: ArrayBatch, length: int, arrays: Mapping[str, Array]) -> ArrayBatch:
    """A batch without what lies from `length` on along the axis "length", in every array that has
    it.

    Raises:
        DataError: a bool array says that something real lies beyond.
    """
    trimmed = dict(batch)
    for name, values in batch.items():
        if name not in arrays or "length" not in arrays[name].axes:
            continue
        kept, beyond = np.split(values, [length], 1 + arrays[name].axes.index("length"))
        if beyond.dtype == bool and beyond.any():
            raise DataError(
                f"the data set gives a length of {length}, but {name} has real tokens beyond it"
            )
        trimmed[name] = np.ascontiguousarray(kept)
    return trimmed


def training_batches(parts: Parts, start: int, workers: int) -> Iterator[tuple[list[Micro], int]]:
    """For each step from `start` to the plan's end, this rank's micro-batches and the global
    batch's samples.

    Args:
        workers: loader processes; 0 fetches here. The order is the same.
    """
    source = _Source(parts.training, parts.plan.seed, parts.task.spec.arrays)
    requests = _requests_from(parts, start)
    if workers:
        fetched = iter(_loader(parts, source, requests, workers))
    else:
        fetched = map(source.__getitem__, requests)
    micros = []
    for request, micro in _micros(parts, parts.training, fetched):
        micros.append(micro)
        if request.step_samples:
            yield micros, request.step_samples
            micros = []


def _requests_from(parts: Parts, start: int) -> Iterator[_Request]:
    """This rank's forward passes of all steps from `start` on."""
    plan = parts.plan
    rank = parts.group.rank
    world_size = parts.group.world_size
    micro_batch = parts.train.micro_batch
    together = parts.training.together
    for step in range(start, plan.total_steps):
        batch = plan.batch(step)
        yield from _training_requests(plan, batch, rank, world_size, micro_batch, together)


def _micros(parts: ModelParts, split: Split, fetched: Iterator[_Fetched]) -> Iterator[_Moved]:
    """What was fetched, on the device and finished."""
    moved = _moved(parts, fetched)
    device = parts.group.device
    if device.type == "cuda":
        moved = _moved_ahead(moved, device)
    for request, micro in moved:
        yield request, micro._replace(batch=split.finish(micro.batch))


def _moved(parts: ModelParts, fetched: Iterator[_Fetched]) -> Iterator[_Moved]:
    """What was fetched, on the device."""
    for request, arrays in fetched:
        unreadable = arrays.pop(BAD, None)
        bad = ()
        if unreadable is not None and request.real:
            bad = tuple(request.indices[np.asarray(unreadable)].tolist())
        yield request, Micro(parts.on_device(arrays), request.real, bad)


def _moved_ahead(moved: Iterator[_Moved], device: torch.device) -> Iterator[_Moved]:
    """The same on CUDA, where a batch is copied while the one before it is worked on."""
    copies = torch.cuda.Stream(device)

    def next_copy() -> _Moved | None:
        with torch.cuda.stream(copies):
            return next(moved, None)

    coming = next_copy()
    while coming is not None:
        now = coming
        _, micro = now
        here = torch.cuda.current_stream(device)
        here.wait_stream(copies)
        for tensor in micro.batch.values():
            # its memory is not given to another copy while it is read
            tensor.record_stream(here)
        coming = next_copy()
        yield now


def _loader(
    parts: ModelParts,
    source: _Source,
    requests: Iterable[_Request],
    workers: int,
    *,
    kept: bool = False,
) -> DataLoader[_Fetched]:
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


def _as_tensors(fetched: _Fetched) -> tuple[_Request, Batch]:
    """Tensors go from a loader process through shared memory, arrays through a pipe."""
    request, arrays = fetched
    return request, {name: torch.from_numpy(values) for name, values in arrays.items()}


def evaluation_batches(parts: ModelParts, split: Split) -> Iterator[tuple[Micro, np.ndarray]]:
    """This rank's batches of a split, and the indices of their samples; of like length where
    training is bucketed.

    Stand-ins are left out unless the model is sharded, whose forward passes are collective calls.
    """
    train = parts.train
    group = parts.group
    ranks = (group.rank, group.world_size)
    batch_size = train.eval_batch_size or train.batch_size
    lengths = sample_lengths(split) if train.bucket_batches else None
    if lengths is None:
        requests = _evaluation_requests(len(split), *ranks, batch_size)
    else:
        requests = _sorted_requests(lengths, *ranks, batch_size)
    is_sharded = parts.bare_model is parts.model and group.world_size > 1
    if not is_sharded:
        requests = (request for request in requests if request.real)
    source = _Source(split, train.seed, parts.task.spec.arrays)
    if not train.loader_workers:
        fetched = map(source.__getitem__, requests)
    else:
        if id(split) not in parts.loaders:
            loader = _loader(parts, source, list(requests), train.loader_workers, kept=True)
            parts.loaders[id(split)] = loader
        fetched = iter(parts.loaders[id(split)])
    for request, micro in _micros(parts, split, fetched):
        yield micro, request.indices
