"""Settings of the whole process that a mixer must leave as they are."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch


class Switch(NamedTuple):
    """A setting of the whole process.

    Attributes:
        values: two values, so that setting either shows; none where a mixer needs the setting as
            it is.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    values: tuple[()] | tuple[Any, Any] = (False, True)


def _flag(owner: Any, name: str) -> Switch:
    return Switch(partial(getattr, owner, name), partial(setattr, owner, name))


def _numpy_state() -> tuple[Any, ...]:
    """Of the global generator, as values that can be compared."""
    name, keys, *place = np.random.get_state()
    return (name, tuple(keys), *place)


def _set_numpy_state(state: tuple[Any, ...]) -> None:
    name, keys, *place = state
    np.random.set_state((name, np.array(keys), *place))


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
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest", "high")
    ),
    "torch.set_flush_denormal": Switch(
        lambda: not (torch.full((1,), 1e-310, dtype=torch.float64, device="cpu") * 1).any().item(),
        torch.set_flush_denormal,
    ),
    "the flash kernel of torch's attention": Switch(
        torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp
    ),
    "the default dtype": Switch(torch.get_default_dtype, torch.set_default_dtype, ()),
    "the default device": Switch(torch.get_default_device, torch.set_default_device, ()),
    "torch's anomaly mode": Switch(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, ()),
    "autocast": Switch(
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        (),
    ),
    "NumPy's handling of errors": Switch(np.geterr, lambda found: np.seterr(**found), ()),
    "NumPy's random generator": Switch(_numpy_state, _set_numpy_state, ()),
    "Python's random generator": Switch(random.getstate, random.setstate, ()),
}


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """What is changed inside is put back, so that a mixer which changes a switch is blamed for
    that alone and the next mixer, and the program, find what they had.
    """
    found = {name: switch.read() for name, switch in SWITCHES.items()}
    try:
        yield
    finally:
        for name, switch in SWITCHES.items():
            if switch.read() != found[name]:
                switch.write(found[name])
