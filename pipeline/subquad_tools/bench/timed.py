"""Modules that are timed: mixers, their published forms and torch's attention, each built for one
length and warm.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from subquad.cost import Count, count_pass
from subquad.errors import PluginError
from subquad.nn import AttentionMixer, MixerOutput, as_output
from subquad.registry import make_mixer
from subquad_tools.bench.clock import PARTS, seconds
from subquad_tools.bench.memory import added_memory
from subquad_tools.bench.rows import DTYPES, MixerChoice, SpeedSettings, torch_device

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

SHORTEST_BLOCK = 0.03
"""Seconds: shorter passes are repeated within a block, so that clocks and calls do not show."""

BACKENDS = {"cuda": {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}}
"""Back ends of torch's attention that stand side by side, by type of device; elsewhere torch
chooses.
"""

SAME = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
"""How far two forms' numbers may be apart, over the largest of them, by precision."""

_MOVED = 0.05
"""Weights are moved by so much before two forms are compared: some start where parts of a mixer
do nothing.
"""


class Warm(ABC):
    """What is timed in blocks, each long enough for a clock.

    Attributes:
        name: of its row.
        device: where it runs.
        memory: bytes that a pass forward and backward adds at its peak.
    """

    memory: int

    def __init__(self, name: str, device: torch.device):
        self.name, self.device = name, device
        self._repeats: dict[str, int] = dict.fromkeys(PARTS, 1)

    @abstractmethod
    def forward(self) -> Any:
        """Inference."""

    @abstractmethod
    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients."""

    @abstractmethod
    def refresh(self) -> None:
        """Take other inputs."""

    def warm_up(self) -> Self:
        """Measure its memory, and find how often a block repeats it."""
        self.both()
        self.memory = added_memory(self.both, self.device)
        for part in PARTS:
            self.seconds(part)
            once = max(self.seconds(part), 1e-6)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / once))
        return self

    def seconds(self, part: str) -> float:
        """Of a call, by one more block, with other inputs."""
        self.refresh()
        return seconds(getattr(self, part), self.device, self._repeats[part])


class Timed(Warm):
    """A module with inputs of one shape, drawn anew for every block.

    Args:
        name: of its row.
        module: takes the inputs, and returns a tensor or a `MixerOutput`.
        shapes: of the inputs.
        settings: of the comparison.
        dtype: of the inputs.

    Attributes:
        core: attention alone, without projections; None where it cannot be told apart, or is not
            asked for.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        shapes: Sequence[Sequence[int]],
        settings: SpeedSettings,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(name, torch_device(settings.device))
        self.module = module
        self.dtype = DTYPES[settings.precision]
        self.core: Timed | None = None
        self._generator = torch.Generator(self.device).manual_seed(1)
        made = {"generator": self._generator, "device": self.device, "dtype": dtype}
        self.inputs = [torch.randn(*shape, **made) for shape in shapes]

    def warm_up(self) -> Self:
        """The same, after a look at its numbers.

        Raises:
            PluginError: outputs or gradients are not finite.
        """
        for what, values in (("outputs", [self.forward()]), ("gradients", self.both())):
            if not all(tensor.isfinite().all() for tensor in values if tensor is not None):
                length = self.inputs[0].shape[-2]
                raise PluginError(
                    f"{self.name}: {what} at length {length} are not finite, so "
                    "there is nothing to time"
                )
        return super().warm_up()

    def forward(self) -> Tensor:
        with torch.no_grad(), self._precision():
            return as_output(self.module(*self.inputs)).out

    def result(self) -> tuple[list[Tensor], MixerOutput]:
        """A forward pass with a graph: the inputs and what the module makes of them."""
        inputs = [tensor.detach().requires_grad_() for tensor in self.inputs]
        with self._precision():
            return inputs, as_output(self.module(*inputs))

    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients of inputs and parameters; extra losses
        count if weighted.
        """
        wanted, result = self.result()
        wanted += [weight for weight in self.module.parameters() if weight.requires_grad]
        weights = getattr(self.module, "loss_weights", {})
        losses = [loss for name, loss in result.losses.items() if weights.get(name)]
        ends = [result.out, *losses]
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
            unknown = (f"anything ({type(error).__name__})",)
            return Count(flops=0, moved=0, operations=0, largest={}, unknown=unknown)

    def numbers(self, x: Tensor) -> dict[str, Tensor]:
        """Output, losses, and the gradient of x."""
        given = x.detach().requires_grad_()
        with self._precision():
            result = as_output(self.module(given))
        values = {"output": result.out.float()}
        for name, loss in result.losses.items():
            values[name] = loss.float()
        (grad,) = torch.autograd.grad([value.square().sum() for value in values.values()], given)
        return {**values, "gradient": grad}

    def _precision(self) -> torch.autocast:
        is_narrow = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype, enabled=is_narrow)


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
    plugin = replace(mixer.plugin, build=published.build)
    published_mixer = replace(mixer, resolved=replace(mixer.resolved, plugin=plugin))
    module = built_mixer(published_mixer, settings, length)
    name = f"{mixer.text} published"
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for weight in own.module.parameters():
            weight += _MOVED * torch.randn(weight.shape, generator=generator).to(weight.device)
    try:
        module.load_state_dict(own.module.state_dict())
    except RuntimeError as error:
        raise PluginError(
            f"{name}: it has other weights than {mixer.text}: {' '.join(str(error).split())}"
        ) from None
    form = Timed(name, module, settings.shape(length), settings)
    reference = own.numbers(own.inputs[0])
    found = form.numbers(own.inputs[0])
    apart = math.inf
    if found.keys() == reference.keys():
        apart = largest_gap([*found.values()], [*reference.values()])
    if not apart <= SAME[settings.precision]:
        raise PluginError(
            f"{name}: at length {length} its numbers are {apart:.1e} of the "
            f"largest from {mixer.text}'s"
        )
    return _layer(name, module, settings, length)


def largest_gap(
    given: Sequence[Tensor | None], reference: Sequence[Tensor | None], share: float = 0.0
) -> float:
    """The largest difference of tensors from a reference's, over the largest value of its kind.

    Args:
        given, reference: tensors of the same kinds in the same order; None where there is none.
        share: of the largest value of all, below which no kind's largest value counts.
    """
    largest = [float(wanted.detach().abs().max()) for wanted in reference if wanted is not None]
    least = max(share * max(largest), 1e-30)
    gaps = []
    for found, wanted in zip(given, reference, strict=True):
        if found is None or wanted is None:
            single = found if wanted is None else wanted
            gaps.append(0.0 if single is None or not single.any() else math.inf)
            continue
        wide = torch.promote_types(wanted.dtype, torch.float64)
        exact = wanted.detach().to(wide)
        gap = (found.detach().to(wide) - exact).abs().max()
        gaps.append(float(gap / exact.abs().max().clamp_min(least)))
    return float(torch.tensor(gaps).max())  # not a number where one is none


def timed_attention(settings: SpeedSettings, length: int) -> list[Timed]:
    """Torch's attention by each of its back ends that runs here, the fastest first; it is the
    baseline.
    """

    def attention(name: str, backend: SDPBackend | None) -> Timed:
        module = _Attention(settings, backend)
        return _layer(name, _built(module, settings), settings, length)

    found = []
    for name, backend in BACKENDS.get(torch_device(settings.device).type, {}).items():
        try:
            found.append(attention(f"{BASELINE} ({name})", backend))
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
    if len(found) > 1:
        found.sort(key=lambda candidate: min(candidate.seconds("both") for _ in range(3)))
    return found or [attention(BASELINE, None)]


def timed_core(settings: SpeedSettings, length: int) -> Timed:
    """Torch's attention without projections."""
    return _core(BASELINE, _Core(settings.causal, None), settings, length)


def _core(name: str, core: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    heads = (settings.samples(length), settings.heads, length, settings.dim // settings.heads)
    dtype = DTYPES[settings.precision]  # as projections give it
    return Timed(name, core, [heads] * 3, settings, dtype).warm_up()


def _layer(name: str, module: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    timed = Timed(name, module, settings.shape(length), settings).warm_up()
    if settings.core and isinstance(module, AttentionMixer | _Attention):
        timed.core = module.core and _core(name, module.core, settings, length)
    return timed


def built_mixer(mixer: MixerChoice, settings: SpeedSettings, length: int) -> nn.Module:
    """A mixer for a length, with weights that are the same every time.

    Raises:
        SubquadError: it cannot stand there.
    """
    if settings.causal and mixer.facts.causal == "never":
        raise PluginError(f"{mixer.text}: never causal, so it cannot be timed with --causal")
    limit = mixer.facts.max_length
    if isinstance(limit, int) and limit < length:
        raise PluginError(f"{mixer.text}: takes {limit} positions at most")
    site = settings.site(length, causal=mixer.facts.causal == "always")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _built(make_mixer(mixer.resolved, mixer.config, site), settings)


def _built(module: nn.Module, settings: SpeedSettings) -> nn.Module:
    return module.to(settings.device, torch.float32).train()


class _Core(nn.Module):
    """Torch's attention, q, k and v (B, H, L, E) to (B, H, L, E)."""

    def __init__(self, causal: bool, backend: SDPBackend | None):
        super().__init__()
        self._causal, self._backend = causal, backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(self._backend) if self._backend else nullcontext():
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)


class _Attention(nn.Module):
    """The baseline, x (B, L, D) to (B, L, D)."""

    def __init__(self, settings: SpeedSettings, backend: SDPBackend | None):
        super().__init__()
        dim = settings.dim
        self._heads = settings.heads
        self.inputs, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.core = _Core(settings.causal, backend)

    def forward(self, x: Tensor, *, keep: None = None) -> Tensor:
        heads = self.inputs(x).unflatten(-1, (3, self._heads, -1))
        q, k, v = heads.transpose(1, 3).unbind(2)
        return self.out(self.core(q, k, v).transpose(1, 2).flatten(-2))
