"""A small experiment on the recall control, and ways to run it in this process."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from command import Command
from safetensors.torch import load_file
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel
from waiting import until

import subquad.errors
from subquad.engine import checkpoint
from subquad.engine.group import Group
from subquad.engine.loop import Signals
from subquad.engine.run import train_run
from subquad.execution.queue import END, Done
from subquad.execution.worker import Take, work
from subquad.experiment import Run
from subquad.processes import forking_context, settle
from subquad.record.metrics import read_records
from subquad_check.calls import padded
from subquad_check.subject import check_subjects

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""

SMALL = """
name: small
protocol: honest
dataset:
  name: recall
  params: {num_pairs: 4, num_keys: 6, num_values: 5,
    train_size: 203, validation_size: 40, test_size: 60}
task: classification
backbone:
  name: encoder
  params: {num_layers: 1, dim: 16, num_heads: 2, ffn_dim: 32, dropout: 0.1, head: last}
mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}
train: {epochs: 3, batch_size: 16, lr: 1e-3, clip_norm: 1.0, log_every: 1}
tracking: {uri: off}
"""


def run_here(ticket: Run, asked_to_stop: Callable[[], int] = lambda: 0, device: str = "cpu") -> str:
    """Do a run in this process."""
    return train_run(ticket, Group(device=torch.device(device)), Signals(asked_to_stop))


def one_run(run: Run | dict[str, Any]) -> Take:
    """Gives a worker this run, or its plain values, and then no more.

    Raises:
        SubquadError: what was wrong with it.
    """
    left = [run]

    def take(done: Done | None) -> Any:
        if done and done.error:
            raise getattr(subquad.errors, done.kind)(done.error)
        return left.pop() if left else END

    return take


def stopped_at(step: int) -> Callable[[], int]:
    """Asks to stop, by SIGTERM's number, when it is called for that time."""
    calls = itertools.count(1)
    return lambda: 15 if next(calls) == step else 0


def digests(run: Path) -> dict[str, str]:
    """sha256 of the newest checkpoint's weights, optimiser state and generator states."""
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    found = {}
    for name in ("model", "optimizer", "rng"):
        state = hashlib.sha256()
        for key, tensor in sorted(load_file(newest / f"{name}.safetensors").items()):
            state.update(key.encode())
            state.update(tensor.contiguous().numpy().tobytes())
        found[name] = state.hexdigest()
    return found


def stop_ranks_at(
    step: float, plain: dict[str, Any], world_size: int, memory: int | None = None
) -> None:
    """Do a run on several gloo ranks, and ask the last one to stop when it looks for that time.

    Args:
        memory: bytes that each rank may take beyond those of its libraries.
    """
    with tempfile.TemporaryDirectory() as scratch:
        args = (world_size, f"{scratch}/rendezvous", plain, step, memory)
        on_ranks(_stopping_rank, args, world_size)


def on_ranks(act: Callable[..., None], args: tuple[Any, ...], world_size: int) -> None:
    """Call `act(rank, *args)` in processes that begin and end as the product's ranks do.

    They end at once. A process that first takes Python down, as `spawn` does, is aborted now and
    then by a thread of gloo, which a sharded model keeps alive after the group's end.
    """
    forking_context()
    settled = partial(_settled, act, dict(os.environ))
    multiprocessing.start_processes(settled, args, nprocs=world_size, start_method="forkserver")


def _settled(act: Callable[..., None], environment: dict[str, str], rank: int, *args: Any) -> None:
    settle(environment)
    act(rank, *args)


def _stopping_rank(
    rank: int,
    world_size: int,
    rendezvous: str,
    plain: dict[str, Any],
    step: float,
    memory: int | None,
) -> None:
    if memory:
        torch.set_num_threads(1)
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 17)  # what is freed goes back at once
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = psutil.Process().memory_info().data + memory
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        checkpoint.read_weights = partial(_unlimited, checkpoint.read_weights)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size
    )
    calls = iter(range(1, 10**6))
    group = Group(rank, world_size)
    hears = rank == world_size - 1
    asked_to_stop = lambda: 15 if next(calls) >= step and hears else 0  # noqa: E731
    work(one_run(plain), group, asked_to_stop, restarts=True)
    dist.destroy_process_group()


def _unlimited(read: Callable[..., Any], *given: Any) -> Any:
    """The system counts files that are mapped, of which a rank reads its rows."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return read(*given)


def add_up_gradients(rank: int, device: str, rendezvous: str) -> None:
    """The only rank of a group: a mixer's gradients through DDP are its own, and a sum over
    ranks is one's own.
    """
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=rendezvous, rank=rank, world_size=1
    )
    subject = next(iter(check_subjects("subquad:agf")))
    x, keep = subject.tokens(2, 33, dtype=torch.float32).to(device), padded(33, (33, 17)).to(device)
    found = []
    for wrapped in (False, True):
        mixer = subject.build(dtype=torch.float32).to(device)
        model = DistributedDataParallel(mixer) if wrapped else mixer
        model(x, keep=keep).out.square().mean().backward()
        found.append(
            [parameter.grad for parameter in mixer.parameters() if parameter.grad is not None]
        )
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted)
    total = torch.ones(5, device=device)
    dist.all_reduce(total)
    assert total.tolist() == [1.0] * 5
    dist.destroy_process_group()


def only_run(root: Path, name: str = "small") -> Path:
    """The folder of the only run below a root."""
    (folder,) = (root / "runs" / name).iterdir()
    return folder


def wait_for_steps(root: Path, steps: int, process: Command) -> None:
    """Until a run below `root` has come further than so many steps."""

    def has_come() -> bool:
        records = (read_records(folder) for folder in (root / "runs").glob("small/*"))
        return any(record.step > steps for record in itertools.chain.from_iterable(records))

    until(has_come, process)
