"""The ranks of a run: who we are, small exact reductions, and wrapping a model for DDP or FSDP2."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from subquad.errors import SubquadError
from subquad.nn import Backbone

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

CPU = torch.device("cpu")
Item = TypeVar("Item")
Result = TypeVar("Result")
Shard = Callable[[nn.Module], nn.Module]
"""Leaves this rank its rows of a module's parameters, in place, and returns the module."""


@dataclass(frozen=True)
class Group:
    """This process among the ranks.

    Attributes:
        rank: 0 .. world_size-1.
        world_size: number of training processes; with more than 1 a torch process group is up.
        device: where this rank computes.
        peers: torch's process group for `gather`; None: the one that computes.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU
    peers: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over the ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """A small object of every rank, in rank order, on every rank. Between our own processes
        only.
        """
        if self.world_size == 1:
            return [value]
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value, group=self.peers)
        return found

    def join(self, values: list[Item]) -> list[Item]:
        """The items of all ranks' lists, in rank order, on every rank; see `gather`."""
        return list(chain.from_iterable(self.gather(values)))

    def together(self, action: Callable[..., Result], *given: Any) -> Result:
        """Do something without collective calls on every rank; where it fails on any, every rank
        raises.

        Otherwise the ranks on which it worked would wait for the others until the collective time
        limit.
        """
        result = None
        failure = None
        picklable = None
        try:
            result = action(*given)
        except (SubquadError, OSError) as error:
            failure = picklable = error
        except Exception as error:
            failure = error
            picklable = RuntimeError(repr(error))
        failures = [found for found in self.gather(picklable) if found]
        if failures:
            shared = failure or failures[0]
            if isinstance(shared, SubquadError):
                shared.shared = True
            raise shared
        return cast("Result", result)

    def of_first(self, action: Callable[..., Result], *given: Any) -> Result:
        """What the first rank gets by an action, on every rank; see `together`."""
        return self.gather(self.together(lambda: action(*given) if self.first else None))[0]

    def agree(self, model: nn.Module, stop: bool) -> bool:
        """Whether a rank leaves its forward passes here: by itself, or where those of a sharded
        model are collective calls, because any rank wants to.
        """
        if not _sharded_parts(model):
            return stop
        return self.add(torch.tensor(int(stop), device=self.device)).item() > 0

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the first rank's buffers, so that all evaluate and save the same
        model.
        """
        if self.world_size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def wrap(
        self,
        model: Backbone,
        shard: Shard | None,
        compile_blocks: bool,
        recompute: bool = False,
        *,
        search: bool = True,
    ) -> nn.Module:
        """Let each block be computed again in the backward pass, and compile it, where asked; then
        replicate or shard.

        FSDP2 works in place and returns the same module; its parameters become sharded tensors.

        Args:
            shard: see `sharder`; None replicates.
            search: DDP looks in each step for parameters without a gradient. Without it DDP lays
                its buckets out anew after the first backward pass of a process, so the caller makes
                one that does not count: else the first step after a resume would add gradients in
                another order than the run that went on.
        """
        for block in model.blocks:
            if recompute:  # around what is compiled: inside, torch would leave the block as it is
                forward = torch.compile(block.forward) if compile_blocks else block.forward
                block.forward = partial(checkpoint, forward, use_reentrant=False)
            elif compile_blocks:
                block.compile()
        if self.world_size == 1:
            return model
        if shard is None:
            return DistributedDataParallel(model, find_unused_parameters=search)
        for part in (*model.blocks, model):
            if not hasattr(part, "unshard"):
                shard(part)
        return model

    def sharder(self, strategy: str) -> Shard | None:
        """What shards over the ranks, where the strategy does; every rank makes one."""
        if strategy != "fsdp2" or self.world_size == 1:
            return None
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world_size,))
        return cast("Shard", partial(fully_shard, mesh=mesh))

    def make_whole(self, model: nn.Module) -> None:
        """Give each rank all parameters of a sharded model for good: only `forward` gathers them
        by itself.
        """
        for part in _sharded_parts(model):
            part.set_reshard_after_forward(False)
            part.unshard()

    def reshard(self, model: nn.Module) -> None:
        """Take a sharded model apart again: after a forward pass without a backward pass a part of
        it stays whole.

        Meanwhile it has other parameters than its optimiser, and writing to those has no effect on
        it.
        """
        for part in _sharded_parts(model):
            part.reshard()


ALONE = Group()


class Background:
    """What the ranks of a sharded run do beside the training, one thing after the other.

    Args:
        group: the ranks; every one makes this.
    """

    def __init__(self, group: Group):
        self._group = replace(group, peers=dist.new_group(backend="gloo"))
        self._thread = ThreadPoolExecutor(1)
        self._newest: Future[None] | None = None

    def start(self, act: Callable[..., None], *given: Any) -> None:
        """Begin something, on every rank: `act(group, *given)`."""
        self._newest = self._thread.submit(act, self._group, *given)

    def finish(self) -> None:
        """Wait for what was begun.

        Raises:
            Exception: it failed; of what a rank raised alone every rank is told.
        """
        newest = self._newest
        self._newest = None
        if newest:
            newest.result()

    def close(self) -> None:
        """Wait, whatever comes of it."""
        self._thread.shutdown()


def _sharded_parts(model: nn.Module) -> list[FSDPModule]:
    """Without torch's own class, whose import would cost time where nothing is sharded."""
    return [cast("FSDPModule", part) for part in model.modules() if hasattr(part, "unshard")]
