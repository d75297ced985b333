"""Modules that are timed: mixers, their published forms and torch's attention, each built for one
length and warm.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from subquad.cost import Count, count_pass
from subquad.errors import PluginError, in_one_line
from subquad.nn import AttentionMixer, MixerOutput, as_output
from subquad.nn.numbers import dense
from subquad.plugin import Site
from subquad.registry import make_mixer
from subquad_tools.bench.clock import Warm
from subquad_tools.bench.rows import DTYPES, MixerChoice, SpeedSettings, torch_device

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

BACKENDS = {"cuda": {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}}
"""Back ends of torch's attention that stand side by side, by type of device; elsewhere torch
chooses.
"""

SAME = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
"""How far two forms' numbers may be apart, over the largest of them, by precision."""

_NO_KERNEL = re.compile("No available kernel|No viable backend")
"""What torch says where a back end does not run."""

_MOVED = 0.05
"""Weights are moved by so much before two forms are compared: some start where parts of a mixer
do nothing.
"""


class Timed(Warm):
    """A module with inputs of one shape, drawn anew for every block.

    Args:
        name: of its row.
        module: takes the inputs, and returns a tensor or a `MixerOutput`.
        settings: of the comparison.
        length: L.
        takes_heads: the inputs are q, k and v (B, H, L, E), as projections give them, and not
            x (B, L, D).

    Attributes:
        core: attention alone, without projections; None where it cannot be told apart, or is not
            asked for.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        settings: SpeedSettings,
        length: int,
        takes_heads: bool = False,
    ):
        device = torch_device(settings.device)
        super().__init__(name, device)
        dense(module, torch.float32)
        self.module = module.to(device)
        self.module.train()
        self.dtype = DTYPES[settings.precision]
        self.core: Timed | None = None
        self._length = length
        self._generator = torch.Generator(device).manual_seed(1)
        count = 1
        dtype = torch.float32
        shape: tuple[int, ...] = (settings.samples(length), length, settings.dim)
        if takes_heads:
            count = 3
            dtype = self.dtype
            heads = settings.heads
            shape = (settings.samples(length), heads, length, settings.dim // heads)
        self.inputs: list[Tensor] = []
        for _ in range(count):
            self.inputs.append(torch.empty(*shape, device=device, dtype=dtype))
        self.refresh()

    def warm_up(self) -> Self:
        """The same, after a look at its numbers.

        Raises:
            PluginError: outputs or gradients are not finite.
        """
        self._check_finite("outputs", [self.forward()])
        self._check_finite("gradients", self.both())
        return super().warm_up()

    def _check_finite(self, what: str, tensors: Sequence[Tensor | None]) -> None:
        for tensor in tensors:
            if tensor is not None and not tensor.isfinite().all():
                raise PluginError(
                    f"{self.name}: {what} at length {self._length} are not finite, so "
                    "there is nothing to time"
                )

    def forward(self) -> Tensor:
        with torch.no_grad():
            result = self._called(self.inputs)
        return result.out

    def _called(self, inputs: Sequence[Tensor]) -> MixerOutput:
        with self._precision():
            result = self.module(*inputs)
        return as_output(result)

    def result(self) -> tuple[list[Tensor], MixerOutput]:
        """A forward pass with a graph: the inputs and what the module makes of them."""
        inputs = [tensor.detach().requires_grad_() for tensor in self.inputs]
        return inputs, self._called(inputs)

    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients of inputs and parameters; extra losses
        count if weighted.
        """
        wanted, result = self.result()
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                wanted.append(parameter)
        weights = getattr(self.module, "loss_weights", {})
        ends = [result.out]
        for name, loss in result.losses.items():
            if weights.get(name):
                ends.append(loss)
        grads = [torch.ones_like(end) for end in ends]
        return torch.autograd.grad(ends, wanted, grads, allow_unused=True)

    def refresh(self) -> None:
        for tensor in self.inputs:
            tensor.normal_(generator=self._generator)

    def count(self) -> Count:
        """Operations and bytes of `both`."""
        try:
            with self._precision():
                return count_pass(self.module, *self.inputs)
        except Exception as error:  # it has run, so it is the counter that cannot follow
            return Count(unknown=(f"anything ({type(error).__name__})",))

    def numbers(self) -> dict[str, Tensor]:
        """Output, losses, and the gradient of the input."""
        (given,), result = self.result()
        values = {"output": result.out, **result.losses}
        values = {name: value.float() for name, value in values.items()}
        squares = [value.square().sum() for value in values.values()]
        (gradient,) = torch.autograd.grad(squares, given)
        values["gradient"] = gradient
        return values

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


def timed_mixer(mixer: MixerChoice, settings: SpeedSettings, length: int) -> Timed:
    """A mixer at a length.

    Raises:
        SubquadError: it cannot be built or called so, or its outputs are not finite.
    """
    return _layer(mixer.text, built_mixer(mixer, settings, length), settings, length)


def timed_published(mixer: MixerChoice, own: Timed, settings: SpeedSettings, length: int) -> Timed:
    """The mixer's published form with the weights of `own`, after both have given the same numbers.

    Raises:
        SubquadError: it cannot be built or called so, or gives other numbers.
    """
    published = mixer.plugin.published
    assert published is not None
    resolved = replace(mixer.resolved, plugin=replace(mixer.plugin, build=published.build))
    module = built_mixer(replace(mixer, resolved=resolved), settings, length)
    name = f"{mixer.text} published"
    generator = torch.Generator()
    generator.manual_seed(2)
    with torch.no_grad():
        for weight in own.module.parameters():
            weight += _MOVED * torch.randn(weight.shape, generator=generator).to(weight.device)
    weights = own.module.state_dict()
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = in_one_line(error)
        raise PluginError(f"{name}: it has other weights than {mixer.text}: {reason}") from None
    form = Timed(name, module, settings, length)
    form.inputs = own.inputs
    reference = own.numbers()
    found = form.numbers()
    apart = math.inf
    if found.keys() == reference.keys():
        apart = largest_gap([(found[name], reference[name]) for name in reference])
    if not apart <= SAME[settings.precision]:
        raise PluginError(
            f"{name}: at length {length} its numbers are {apart:.1e} of the "
            f"largest from {mixer.text}'s"
        )
    return _layer(name, module, settings, length)


def largest_gap(pairs: Sequence[tuple[Tensor | None, Tensor | None]], share: float = 0.0) -> float:
    """The largest difference of tensors from a reference's, over the largest value of its kind.

    Args:
        pairs: a tensor and the reference's of the same kind; None where there is none.
        share: of the largest value of all, below which no kind's largest value counts.
    """
    least = 1e-30
    for _, wanted in pairs:
        if wanted is not None:
            least = max(least, share * float(wanted.detach().abs().max()))
    gaps = []
    for found, wanted in pairs:
        if found is None or wanted is None:
            single = found if wanted is None else wanted
            has_value = single is not None and bool(single.any())
            gaps.append(math.inf if has_value else 0.0)
            continue
        wide = torch.promote_types(wanted.dtype, torch.float64)
        exact = wanted.detach().to(wide)
        largest = (found.detach() - exact).abs().max() / exact.abs().max().clamp_min(least)
        gaps.append(float(largest))
    worst = torch.tensor(gaps).max()  # not a number where one is none
    return float(worst)


def timed_attention(settings: SpeedSettings, length: int) -> list[Timed]:
    """Torch's attention by each of its back ends that runs here, the fastest first; it is the
    baseline.
    """
    backends = BACKENDS.get(torch_device(settings.device).type, {})
    found = []
    for name, backend in backends.items():
        module = _Attention(settings, backend)
        try:
            found.append(_layer(f"{BASELINE} ({name})", module, settings, length))
        except RuntimeError as error:
            if not _NO_KERNEL.search(str(error)):
                raise
    if not found:
        found.append(_layer(BASELINE, _Attention(settings, None), settings, length))
    if len(found) > 1:
        found.sort(key=_fastest)
    return found


def _fastest(timed: Timed) -> float:
    """Seconds of the fastest of three blocks."""
    return min([timed.seconds("both") for _ in range(3)])


def timed_core(settings: SpeedSettings, length: int) -> Timed:
    """Torch's attention without projections."""
    return _core(BASELINE, _Core(settings.causal, None), settings, length)


def _core(name: str, core: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    return Timed(name, core, settings, length, takes_heads=True).warm_up()


def _layer(name: str, module: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    timed = Timed(name, module, settings, length)
    timed.warm_up()
    if settings.core and isinstance(module, AttentionMixer | _Attention):
        core = module.core
        timed.core = core and _core(name, core, settings, length)
    return timed


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
    site = Site(
        dim=settings.dim,
        num_heads=settings.heads,
        max_len=length,
        causal=settings.causal or facts.causal == "always",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_mixer(mixer.resolved, mixer.config, site)


class _Core(nn.Module):
    """Torch's attention, q, k and v (B, H, L, E) to (B, H, L, E)."""

    def __init__(self, causal: bool, backend: SDPBackend | None):
        super().__init__()
        self._causal = causal
        self._backend = backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        forced = nullcontext()
        if self._backend:
            forced = sdpa_kernel(self._backend)
        with forced:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)


class _Attention(nn.Module):
    """The baseline, x (B, L, D) to (B, L, D)."""

    def __init__(self, settings: SpeedSettings, backend: SDPBackend | None):
        super().__init__()
        dim = settings.dim
        self._heads = settings.heads
        self.inputs = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.core = _Core(settings.causal, backend)

    def forward(self, x: Tensor, *, keep: None = None) -> Tensor:
        q, k, v = self.inputs(x).unflatten(-1, (3, self._heads, -1)).transpose(1, 3).unbind(2)
        return self.out(self.core(q, k, v).transpose(1, 2).flatten(-2))
