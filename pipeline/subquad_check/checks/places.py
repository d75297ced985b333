"""Where a mixer stands: on a device, behind a class token, on a grid of image patches."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.errors import ConfigError
from subquad.registry.faults import cause
from subquad_check.calls import call, modes, outputs, passes, tensors_of
from subquad_check.cases import shows
from subquad_check.checks.shapes import LENGTH
from subquad_check.meter import CheckFailed, Finding, NotApplicable, kind
from subquad_check.subject import MAX_LEN, CheckSubject

GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


@shows("tensors it makes are on its tokens' device")
def _devices(subject: CheckSubject) -> Finding:
    """Without numbers, on torch's meta device, where no tensor of the CPU may take part."""
    case = subject.case(LENGTH)
    outputs(*case)  # what cannot be called anywhere is told by another check
    mixer, x, keep = (part.to("meta") for part in case)
    found: list[Any] = []
    try:
        with _Elsewhere(), mock.patch.object(torch.autocast, "__init__", _autocast_anywhere):
            for _ in modes(mixer):
                for mask in (None, keep):
                    result = call(mixer, x, mask)
                    found += [result.out, result.losses, result.carry]
            if mixer.caches:
                out, cache = mixer.prefill(x, keep=keep)
                found += [out, cache, mixer.step(x[:, 0], cache)]
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        raise NotApplicable(
            f"torch's meta device has no numbers to go on with: {cause(error)}"
        ) from None
    for tensor in tensors_of(found):
        if not tensor.is_meta:
            raise CheckFailed(f"for tokens on {x.device} it returns a tensor on {tensor.device}")
    return Finding("both modes, with and without a mask")


_AUTOCAST = torch.autocast.__init__


def _autocast_anywhere(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
    """torch has no autocast on the meta device, not even one that is switched off."""
    if device_type == "meta":
        device_type = "cpu"
    _AUTOCAST(self, device_type, *args, **kwargs)


_ALSO_OF_CPU = ("_to_copy", "copy_", "index", "index_put", "index_put_", "_pack_padded_sequence")
"""Operations that take a tensor of the CPU beside those of a GPU; the last one wants its lengths
there.
"""


class _Elsewhere(TorchDispatchMode):
    """Inside, an operation takes tensors of one device, but for CPU numbers and indices, as a GPU's
    does.

    Who asks for a number on the meta device gets 1; who takes a tensor from there to the CPU,
    zeros.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = tensors_of((args, kwargs))
        for meta in [tensor for tensor in tensors if tensor.is_meta][:1]:
            if name == "_local_scalar_dense":
                return torch.ones((), dtype=meta.dtype).item()
            device = torch.device(kwargs.get("device") or "meta")
            if name == "_to_copy" and device.type != "meta":
                dtype = kwargs.get("dtype") or meta.dtype
                return torch.zeros(meta.shape, dtype=dtype, device=device)
            for other in tensors:
                if other.dim() and not other.is_meta and name not in _ALSO_OF_CPU:
                    raise CheckFailed(
                        f"{name} takes a tensor {kind(other)} on {other.device} beside its "
                        "tokens' on meta"
                    )
        return func(*args, **kwargs)


@shows("works with a class token in front, also on a grid of image patches")
def _class_token(subject: CheckSubject) -> Finding:
    x, keep = subject.pair(LENGTH + 1)
    words = f"1 + {x.shape[1] - 1} tokens"
    sites = [{}]
    if subject.at_most(MAX_LEN) == MAX_LEN:
        sites.append({"grid": GRID})
        words += ", 1 + 7 x 9 patches"
    for site in sites:
        try:
            mixer = subject.build(num_prefix_tokens=1, **site)
        except ConfigError as error:
            raise NotApplicable(f"refuses such a place when built: {error}") from None
        if site:
            passes("image patches", mixer, subject.tokens(2, MAX_LEN), None)
        else:
            passes("class token in front", mixer, x, None)
            passes("class token in front, padded", mixer, x, keep)
    return Finding(words)
