"""A module whose weights lie in all kinds of memory, as modules of one's own have them, and one
with the same weights densely.
"""

from __future__ import annotations

import random

import torch
from torch import nn

REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = (torch.int64, torch.uint8, torch.bool)


def drawn(dtype, *shape):
    if dtype in WHOLE:
        return torch.randint(2, shape).to(dtype)
    return (0.1 * torch.randn(shape, dtype=torch.complex128 if dtype in COMPLEX else None)).to(
        dtype
    )


LAYOUTS = {
    "dense": lambda dtype, n: drawn(dtype, n, n),
    "every second column": lambda dtype, n: drawn(dtype, n, 2 * n)[:, ::2],
    "columns of a larger one": lambda dtype, n: drawn(dtype, n, n + 3)[:, 1 : n + 1],
    "rows of a larger one": lambda dtype, n: drawn(dtype, n + 2, n)[2:],
    "transposed": lambda dtype, n: drawn(dtype, n, n).t(),
    "transposed slice": lambda dtype, n: drawn(dtype, 2 * n, n)[::2].t(),
    "one row shown often": lambda dtype, n: drawn(dtype, 1, n).expand(n, n),
    "one number shown often": lambda dtype, n: drawn(dtype, 1).expand(n, n),
    "windows": lambda dtype, n: drawn(dtype, 2 * n - 1).unfold(0, n, 1),
    "moved axes": lambda dtype, n: drawn(dtype, n, 2, n).movedim(2, 0)[:, :, 1],
    "diagonal": lambda dtype, n: drawn(dtype, n, n, n).diagonal(),
}
OF_COMPLEX = {
    "conjugate": lambda dtype, n: drawn(dtype, n, n).conj(),
    "conjugate slice": lambda dtype, n: drawn(dtype, n, 2 * n)[:, ::2].mH,
}
PARTS = {
    "real part": lambda dtype, n: drawn(dtype, n, n).real,
    "negative view": lambda dtype, n: drawn(dtype, n, n).conj().imag,
}
"""Real numbers made of complex ones."""


def _shared(module, n):
    weight = drawn(torch.float32, n, n)
    module.first = nn.Parameter(weight)
    module.second = nn.Parameter(weight[:, n // 2 :])


def _buffer_of_weight(module, n):
    module.first = nn.Parameter(drawn(torch.float32, n, n))
    module.register_buffer("second", module.first.detach()[3])


def _two_buffers(module, n):
    module.register_buffer("first", drawn(torch.complex64, n))
    module.register_buffer("second", torch.view_as_real(module.first))


def _sparse(module, n):
    module.first = nn.Parameter(drawn(torch.float32, n, n).to_sparse())


def _meta(module, n):
    module.first = nn.Parameter(torch.empty(n, n, device="meta"))


def _inference(module, n):
    with torch.inference_mode():
        weight = drawn(torch.float32, n, n)
    module.register_buffer("first", weight)


def _half_bytes(module, n):
    module.register_buffer("first", torch.zeros(n, dtype=torch.uint8).view(torch.uint4))


REFUSED = {
    _shared: "second shares memory with .*first, ",
    _buffer_of_weight: "second shares memory with .*first, ",
    _two_buffers: "second shares memory with .*first, ",
    _sparse: "first is of torch.sparse_coo; a weight or buffer must be a plain tensor",
    _meta: "first is on the device meta, without values; ",
    _inference: "first is made in inference mode; ",
    _half_bytes: "first is of torch.uint4; ",
}
"""What is refused, with the words of the refusal."""


class Drawn(nn.Module):
    """Tokens through several weights.

    Args:
        seed: of what is drawn; -1: each layout once, trained.
        refused: place in REFUSED of what it has besides; -1: nothing.
        dense: all of it densely, in the kinds of number that training has.
    """

    def __init__(self, dim, seed=0, refused=-1, dense=False):
        super().__init__()
        draw = random.Random(seed)
        if seed < 0:
            rows = [(make, torch.float32, "weight") for make in LAYOUTS.values()]
            rows += [(make, torch.complex64, "weight") for make in OF_COMPLEX.values()]
            rows += [(make, torch.complex64, "weight") for make in PARTS.values()]
            rows += [(make, torch.complex64, "buffer") for make in LAYOUTS.values()]
        else:
            rows = [self._row(draw) for _ in range(draw.randint(1, 6))]
        for number, (make, dtype, role) in enumerate(rows):
            tensor = make(dtype, dim)
            if dense:
                tensor = (
                    tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
                )
            if role.endswith("weight"):
                weight = nn.Parameter(tensor, requires_grad=role == "weight")
                self.register_parameter(f"{role.replace(' ', '_')}_{number}", weight)
            else:
                self.register_buffer(f"{role}_{number}", tensor, persistent=role != "passing")
        if seed >= 0 and draw.random() < 0.3:
            self.tied = next(self.parameters(), None)
        if refused >= 0:
            [*REFUSED][refused](self, dim)

    def _row(self, draw):
        role = draw.choice(["weight", "weight", "frozen weight", "buffer", "state", "passing"])
        kinds = REAL + COMPLEX + (WHOLE if role in ("buffer", "passing") else ())
        dtype = draw.choice(kinds)
        makers = {**LAYOUTS, **(OF_COMPLEX | PARTS if dtype in COMPLEX else {})}
        return makers[draw.choice([*makers])], dtype, role

    def forward(self, x):
        x = x.cumsum(1) / 8
        out = x
        for name, numbers in [*self.named_parameters(), *self.named_buffers()]:
            if name.startswith("state") and self.training:
                with torch.no_grad():
                    numbers.mul_(0.9)
            if numbers.is_complex():
                wide = x.to(numbers.dtype)
                out = out + (wide @ numbers.conj()).real + (wide @ numbers).imag
            elif numbers.ndim == 2:
                out = out + x @ numbers.to(x.dtype)
        return out


class Pairs(nn.Module):
    """A complex weight, or as many pairs of real ones."""

    def __init__(self, dim, real=False):
        super().__init__()
        pairs = 0.1 * torch.randn(dim, 2)
        self.weight = nn.Parameter(pairs if real else torch.view_as_complex(pairs))
        self.real = real

    def forward(self, x):
        weight = torch.view_as_complex(self.weight) if self.real else self.weight
        return (x.cumsum(1) / 8 * weight.conj()).imag
