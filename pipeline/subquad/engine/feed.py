"""Batches on their way to the model: fetched here, or by loader processes, always in the plan's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from subquad.data import Array, ArrayBatch, Split
from subquad.engine.group import Group
from subquad.engine.requests import Request, requests
from subquad.engine.trimming import trimmed
from subquad.nn import Batch
from subquad.plan import Plan

Micro = tuple[Batch, bool]
"""A batch on its device, and whether it is real (a stand-in weighs nothing)."""


def to_device(arrays: ArrayBatch, device: torch.device, dtype: torch.dtype) -> Batch:
    """NumPy arrays as tensors on a device; floating ones in `dtype`."""
    batch = {}
    for name, values in arrays.items():
        tensor = torch.from_numpy(values)
        batch[name] = tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)
    return batch


def fetched(split: Split, request: Request, seed: int, arrays: Mapping[str, Array]) -> ArrayBatch:
    """What a request asks of a split, trimmed to its length; `arrays` are the data set's, with their axes."""
    batch = split.fetch(request.indices, epoch=request.epoch, seed=seed)
    return batch if request.length is None else trimmed(batch, request.length, arrays)


class _Fetched(TorchDataset):
    """A split behind requests instead of indices, for loader processes."""

    def __init__(self, split: Split, seed: int, arrays: Mapping[str, Array]):
        self._split = split
        self._seed = seed
        self._arrays = arrays

    def __getitem__(self, request: Request) -> ArrayBatch:  # type: ignore[override]
        return fetched(self._split, request, self._seed, self._arrays)


def _same(arrays: ArrayBatch) -> ArrayBatch:
    return arrays


def training_batches(
    split: Split,
    arrays: Mapping[str, Array],
    plan: Plan,
    start: int,
    group: Group,
    micro_batch: int | None,
    workers: int,
    dtype: torch.dtype,
) -> Iterator[list[Micro]]:
    """For each step from `start` to the plan's end, this rank's micro-batches.

    Args:
        arrays: the data set's, with their axes.
        workers: loader processes; 0 fetches here. The order is the same.
    """

    def wanted(step: int) -> list[Request]:
        return requests(plan, step, group.rank, group.world_size, micro_batch)

    if workers == 0:
        for step in range(start, plan.total_steps):
            micros = ((fetched(split, one, plan.seed, arrays), one.real) for one in wanted(step))
            yield [(to_device(batch, group.device, dtype), real) for batch, real in micros]
        return
    every = (one for step in range(start, plan.total_steps) for one in wanted(step))
    loader = iter(
        DataLoader(
            _Fetched(split, plan.seed, arrays),
            sampler=every,  # type: ignore[arg-type]
            batch_size=None,
            collate_fn=_same,  # type: ignore[arg-type]
            num_workers=workers,
            multiprocessing_context="spawn",
            # Without one of its own the loader draws from torch's global generator, and dropout would differ.
            generator=torch.Generator(),
        )
    )
    for step in range(start, plan.total_steps):
        yield [(to_device(next(loader), group.device, dtype), one.real) for one in wanted(step)]
