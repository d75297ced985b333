"""Settings of the whole process that a mixer must leave as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Switch(NamedTuple):
    """A setting of the whole process, and two values of it, so that setting either shows."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    values: tuple[Any, Any] = (False, True)


def _flag(owner: Any, name: str) -> Switch:
    def read() -> Any:
        return getattr(owner, name)

    def write(value: Any) -> None:
        setattr(owner, name, value)

    return Switch(read, write)


SWITCHES = {
    "grad mode": Switch(torch.is_grad_enabled, torch.set_grad_enabled, (True, False)),
    "the number of threads": Switch(torch.get_num_threads, torch.set_num_threads, (1, 2)),
    "torch.backends.cudnn.benchmark": _flag(torch.backends.cudnn, "benchmark"),
    "torch.backends.cudnn.deterministic": _flag(torch.backends.cudnn, "deterministic"),
    "torch.use_deterministic_algorithms": Switch(
        torch.are_deterministic_algorithms_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=True),
    ),
    "torch.set_float32_matmul_precision": Switch(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        ("highest", "high"),
    ),
    "torch.set_flush_denormal": Switch(
        lambda: not (torch.full((1,), 1e-310, dtype=torch.float64) * 1).any().item(),
        torch.set_flush_denormal,
    ),
    "the flash kernel of torch's attention": Switch(
        torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp
    ),
}


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """What is changed inside is put back, so that a mixer which changes a switch is blamed for
    that alone and the next mixer, and the program, find what they had.
    """
    found = {name: switch.read() for name, switch in SWITCHES.items()}
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for name, switch in SWITCHES.items():
            if switch.read() != found[name]:
                switch.write(found[name])
