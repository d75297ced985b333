"""Ranks that torchrun or srun started: each is a command of its own.

The first rank drives, as a command alone does. The others make no folder and print nothing: they
wait for it to begin work, and take part.
"""

from __future__ import annotations

import atexit
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from subquad.engine.group import Group
from subquad.engine.loop import PruneReason, no_reason
from subquad.errors import ConfigError, SubquadError, TrainingFailed, UserError, by_class
from subquad.execution.executor import GOES_ON
from subquad.execution.queue import END
from subquad.execution.signals import Signum, listening
from subquad.execution.worker import Take, work
from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room, this_machine

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES")
_PORTS = range(20_000, 40_000)
_POLL_SECONDS = 0.1
_LEAVE_SECONDS = 10.0
_OVER, _LEFT = "over", "left"
"""Keys of the store: the first rank has no more work; how many of the others know."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that were started together.

    Attributes:
        by: what started them.
        rank: 0 .. world_size - 1.
        local_rank: among those of this machine.
        machines: how many there are.
    """

    by: str
    rank: int
    world_size: int
    local_rank: int
    machines: int

    @cached_property
    def store(self) -> Store:
        """Where they find each other: the first rank's, or that of torchrun."""
        found = next(iter(rendezvous("env://", self.rank, self.world_size)))[0]
        if self.rank == 0:
            atexit.register(self._end)
        return found

    def room(self, resources: Resources) -> Room:
        """What the ranks have together.

        Raises:
            ConfigError: other numbers of workers are asked.
        """
        if not resources.fewest <= self.world_size <= resources.most:
            raise ConfigError(
                f"resources.workers: {resources.workers}, but {self.by} started "
                f"{self.world_size} ranks"
            )
        return Room(this_machine(shared=True).machines * self.machines, f"what {self.by} started")

    def lead(
        self, take: Take, resources: Resources, signum: Signum, prune_reason: PruneReason
    ) -> int:
        """On the first rank: do runs, with all ranks, until there are no more.

        Returns:
            the signal that stopped any of them, 0 where none did.

        Raises:
            TrainingFailed: a rank failed.
        """
        number = self.store.add("sessions", 1)
        self.store.set(f"session {number}", resources.model_dump_json())
        return self._work(number, take, resources, signum, prune_reason)

    def follow(self) -> int:
        """On another rank: take part until the first one ends.

        Returns:
            the exit code.

        Raises:
            TrainingFailed: a rank failed, or the first one is gone.
        """
        heard = 0
        number = 1
        with listening() as signum:
            while not self._is_over(number):
                resources = Resources.model_validate_json(self.store.get(f"session {number}"))
                # the first rank alone asks for runs
                heard = self._work(number, lambda _: END, resources, signum, no_reason) or heard
                number += 1
        return 128 + heard if heard else 0

    def _is_over(self, number: int) -> bool:
        """Wait for the first rank to begin work, or to have no more."""
        try:
            while not self.store.check([f"session {number}"]):
                if self.store.check([_OVER]):
                    self.store.add(_LEFT, 1)
                    return True
                time.sleep(_POLL_SECONDS)
        except RuntimeError as error:  # of torch: nobody answers
            raise TrainingFailed(f"rank {self.rank}: the first rank has gone") from error
        return False

    def _end(self) -> None:
        """Let the others go, before the store goes with this process."""
        until = time.monotonic() + _LEAVE_SECONDS
        self.store.set(_OVER, "")
        while self.store.add(_LEFT, 0) < self.world_size - 1 and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)

    def _work(
        self,
        number: int,
        take: Take,
        resources: Resources,
        signum: Signum,
        prune_reason: PruneReason,
    ) -> int:
        with self._group(number, resources) as group:
            try:
                work(take, group, signum, prune_reason=prune_reason)
                return max(group.gather(int(signum())))
            except SubquadError:
                raise
            except Exception as error:
                raise TrainingFailed(f"rank {self.rank}: {by_class(error)}; {GOES_ON}") from error

    @contextmanager
    def _group(self, number: int, resources: Resources) -> Iterator[Group]:
        device = torch.device("cpu")
        backend = "gloo"
        if resources.gpus_per_worker:
            device = torch.device("cuda", self.local_rank % torch.cuda.device_count())
            backend = "nccl"
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend,
            store=PrefixStore(f"group {number}", self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timedelta(seconds=resources.hang_timeout_s),
        )
        yield Group(self.rank, self.world_size, device)
        dist.destroy_process_group()


def _started_ranks() -> Ranks | None:
    """The ranks that this process is one of; None where it was started alone.

    Raises:
        UserError: a variable is no number, or none says where the ranks meet.
    """
    if all(name in os.environ for name in _TORCHRUN):
        rank, world_size, local_rank, local_size = _numbers(_TORCHRUN)
        found = Ranks("torchrun", rank, world_size, local_rank, math.ceil(world_size / local_size))
    elif all(name in os.environ for name in _SRUN):
        found = Ranks("srun", *_numbers(_SRUN))
    else:
        return None
    return found if found.world_size > 1 else None


def joined() -> Ranks | None:
    """The ranks that this process is the first one of; None where it was started alone. Another
    rank takes part until the first one ends, and ends too.

    Raises:
        UserError: see `_started_ranks`.
        TrainingFailed: see `Ranks.follow`.
    """
    ranks = _started_ranks()
    if ranks is not None:
        _meet(ranks)
        _ = ranks.store
        if ranks.rank > 0:
            raise SystemExit(ranks.follow())
    return ranks


def _meet(ranks: Ranks) -> None:
    """Say where ranks of srun meet, as torchrun does: on the first machine, at a port of their
    job's.

    Raises:
        UserError: no variable says which machine that is.
    """
    if "MASTER_ADDR" not in os.environ:
        address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR")
        if not address:
            raise UserError(f"MASTER_ADDR: set it to the machine of rank 0 of {ranks.by}")
        os.environ["MASTER_ADDR"] = address
    if "MASTER_PORT" not in os.environ:
        job, step = _numbers(("SLURM_JOB_ID", "SLURM_STEP_ID"))
        os.environ["MASTER_PORT"] = str(_PORTS[(31 * job + step) % len(_PORTS)])


def _numbers(names: tuple[str, ...]) -> list[int]:
    for name in names:
        if not os.environ[name].isdecimal():
            raise UserError(f"{name}: {os.environ[name]!r} is no number")
    return [int(os.environ[name]) for name in names]
