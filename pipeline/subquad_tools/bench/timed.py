"""Modules that are timed: mixers, their published forms and torch's attention, each built for one
length and warm.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import (
    SDPBackend,
    activate_flash_attention_impl,
    list_flash_attention_impls,
    restore_flash_attention_impl,
    sdpa_kernel,
)

from subquad.errors import PluginError, in_one_line
from subquad.nn import AttentionMixer, MixerOutput, as_output
from subquad.nn.kernels import using
from subquad.nn.numbers import dense
from subquad.plugin import Site
from subquad.registry import make_mixer
from subquad_tools.bench.clock import Warm, Within
from subquad_tools.bench.memory import is_out_of_memory
from subquad_tools.bench.rows import DTYPES, LeftOut, MixerChoice, SpeedSettings, torch_device

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

_BACKENDS = {
    "cpu": {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH},
    "cuda": {
        "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    },
}
"""Back ends of torch's attention that stand side by side, by type of device."""

SAME = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
"""How far two forms' numbers may be apart, over the largest of them, by precision."""

_NEGLIGIBLE = 1e-3
"""Share of the largest value: a gradient may be zero but for rounding, as that of a bias before a
softmax over the tokens.
"""

_MOVED = 0.05
"""Weights are moved by so much before two forms are compared: some start where parts of a mixer
do nothing.
"""


class Timed(Warm):
    """A module with inputs of one shape, drawn anew for every block: x (B, L, D), or q, k and v (B,
    H, L, E), as projections give them, where attention alone is timed.

    Args:
        name: of its row.
        module: takes the inputs, and returns a tensor or a `MixerOutput`.
        settings: of the comparison.
        length: L.
        within: see `Warm`.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        settings: SpeedSettings,
        length: int,
        within: Within = nullcontext,
    ):
        device = torch_device(settings.device)
        super().__init__(name, device, within)
        dense(module, torch.float32)
        self.module = module.to(device)
        self.module.train()
        self.dtype = DTYPES[settings.precision]
        self._length = length
        self._generator = torch.Generator(device).manual_seed(1)
        batch = settings.samples(length)
        shapes: list[tuple[int, ...]] = [(batch, length, settings.dim)]
        if settings.core:
            shapes = [(batch, settings.heads, length, settings.dim // settings.heads)] * 3
        dtype = self.dtype if settings.core else torch.float32
        self.inputs = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        self.refresh()

    def warm_up(self) -> Self:
        """The same, after a look at its numbers.

        Raises:
            PluginError: outputs or gradients are not finite.
        """
        with self.within():
            numbers = self.both()
        if not all(tensor is None or tensor.isfinite().all() for tensor in numbers):
            raise PluginError(
                f"{self.name}: its numbers at length {self._length} are not finite, so "
                "there is nothing to time"
            )
        return super().warm_up()

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self._called(self.inputs).out

    def _called(self, inputs: Sequence[Tensor]) -> MixerOutput:
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return as_output(self.module(*inputs))

    def ends(self) -> tuple[list[Tensor], list[Tensor]]:
        """Extra losses count if weighted."""
        given = [tensor.detach().requires_grad_() for tensor in self.inputs]
        result = self._called(given)
        given += [weight for weight in self.module.parameters() if weight.requires_grad]
        weights = getattr(self.module, "loss_weights", {})
        return given, [
            result.out,
            *[loss for name, loss in result.losses.items() if weights.get(name)],
        ]

    def both(self) -> Sequence[Tensor | None]:
        """Outputs, and the gradients of the inputs before those of the parameters."""
        given, made = self.ends()
        return [
            *made,
            *torch.autograd.grad(
                made, given, [torch.ones_like(end) for end in made], allow_unused=True
            ),
        ]

    def refresh(self) -> None:
        for tensor in self.inputs:
            tensor.normal_(generator=self._generator)


def timed_mixer(mixer: MixerChoice, settings: SpeedSettings, length: int) -> Timed:
    """A mixer at a length.

    Raises:
        SubquadError: it cannot be built or called so, or its outputs are not finite.
    """
    module = built_mixer(mixer, settings, length)
    if settings.core:
        if not isinstance(module, AttentionMixer):
            raise PluginError(f"{mixer.text}: no attention that can be timed without projections")
        module = module.core
    return Timed(
        mixer.text,
        module,
        settings,
        length,
        partial(using, mixer.kernels) if mixer.kernels else nullcontext,
    ).warm_up()


def timed_published(mixer: MixerChoice, own: Timed, settings: SpeedSettings, length: int) -> Timed:
    """The mixer's published form with the weights of `own`, after both have given the same numbers.

    Raises:
        SubquadError: it cannot be built or called so, or gives other numbers.
    """
    published = mixer.plugin.published
    assert published is not None
    module = built_mixer(
        replace(
            mixer,
            resolved=replace(mixer.resolved, plugin=replace(mixer.plugin, build=published.build)),
        ),
        settings,
        length,
    )
    name = f"{mixer.text} published"
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in own.module.parameters():
            weight += _MOVED * torch.randn(weight.shape, generator=generator).to(weight.device)
    try:
        module.load_state_dict(own.module.state_dict())
    except RuntimeError as error:
        reason = in_one_line(error)
        raise PluginError(f"{name}: it has other weights than {mixer.text}: {reason}") from None
    form = Timed(name, module, settings, length)
    form.inputs = own.inputs
    inner = len(list(module.parameters()))
    apart = largest_gap(form.both()[:-inner], own.both()[:-inner])
    if not apart <= SAME[settings.precision]:
        raise PluginError(
            f"{name}: at length {length} its numbers are {apart:.1e} of the "
            f"largest from {mixer.text}'s"
        )
    return form.warm_up()


def largest_gap(found: Sequence[Tensor | None], wanted: Sequence[Tensor | None]) -> float:
    """The largest difference of tensors from a reference's, over the largest value of its kind; of
    kinds that are next to nothing over that of all (`_NEGLIGIBLE`).

    Args:
        found, wanted: tensors and the reference's, kind by kind; None where there is none.
    """
    largest = max(
        [1e-30, *(float(value.detach().abs().max()) for value in wanted if value is not None)]
    )
    gaps = []
    for own, exact in zip(found, wanted, strict=True):
        if own is None or exact is None:
            single = exact if own is None else own
            gaps.append(math.inf if single is not None and single.any() else 0.0)
            continue
        exact = exact.detach().to(torch.promote_types(exact.dtype, torch.float64))
        gap = (own.detach() - exact).abs().max()
        gaps.append(float(gap / exact.abs().max().clamp_min(_NEGLIGIBLE * largest)))
    return float(torch.tensor(gaps).max())  # not a number where one is none


def timed_attention(settings: SpeedSettings, length: int, left_out: LeftOut) -> list[Timed]:
    """Torch's attention by each of its back ends that runs here, the fastest first; it is the
    baseline.
    """
    device = torch_device(settings.device).type
    backends: dict[str, Within] = {
        name: partial(sdpa_kernel, kind) for name, kind in _BACKENDS[device].items()
    }
    if device == "cuda":
        backends |= {name: partial(_by_flash, name) for name in list_flash_attention_impls()}
    found = []
    for name, within in backends.items():
        row = f"{BASELINE} ({name})"
        with left_out.noting(row, length, strict=False):
            module = _Attention(settings)
            timed = Timed(row, module.core if settings.core else module, settings, length, within)
            try:
                found.append(timed.warm_up())
            except (ImportError, RuntimeError, ValueError) as error:
                if is_out_of_memory(error):
                    raise
                raise PluginError(f"does not run here: {in_one_line(error)}") from None
    return sorted(found, key=lambda timed: min(timed.seconds("both") for _ in range(3)))


@contextmanager
def _by_flash(name: str) -> Iterator[None]:
    """Torch's FlashAttention by another implementation, which needs its package."""
    activate_flash_attention_impl(name)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            yield
    finally:
        restore_flash_attention_impl()


def built_mixer(mixer: MixerChoice, settings: SpeedSettings, length: int) -> nn.Module:
    """A mixer for a length, with weights that are the same every time.

    Raises:
        SubquadError: it cannot stand there.
    """
    facts = mixer.facts
    if settings.causal and facts.causal == "never":
        raise PluginError(f"{mixer.text}: never causal, so it cannot be timed with --causal")
    if isinstance(facts.max_length, int) and facts.max_length < length:
        raise PluginError(f"{mixer.text}: takes {facts.max_length} positions at most")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_mixer(
            mixer.resolved,
            mixer.config,
            Site(
                dim=settings.dim,
                num_heads=settings.heads,
                max_len=length,
                causal=settings.causal or facts.causal == "always",
            ),
        )


class _Core(nn.Module):
    """Torch's attention, q, k and v (B, H, L, E) to (B, H, L, E)."""

    def __init__(self, causal: bool):
        super().__init__()
        self._causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)


class _Attention(nn.Module):
    """The baseline, x (B, L, D) to (B, L, D)."""

    def __init__(self, settings: SpeedSettings):
        super().__init__()
        self._heads = settings.heads
        self.inputs = nn.Linear(settings.dim, 3 * settings.dim)
        self.out = nn.Linear(settings.dim, settings.dim)
        self.core = _Core(settings.causal)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(x).unflatten(-1, (3, self._heads, -1)).transpose(1, 3).unbind(2)
        return self.out(self.core(q, k, v).transpose(1, 2).flatten(-2))
