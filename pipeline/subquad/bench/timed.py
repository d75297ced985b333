"""Modules that are timed: mixers, their published forms and torch's attention, each built for one length and warm.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from subquad.bench.clock import seconds
from subquad.bench.memory import added_memory
from subquad.bench.rows import DTYPES, MixerChoice, SpeedSettings, torch_device
from subquad.cost import Count, count_pass
from subquad.errors import PluginError
from subquad.nn import AttentionMixer, MixerOutput, as_output
from subquad.registry import make_mixer

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

SHORTEST_BLOCK = 0.03
"""Seconds: shorter passes are repeated within a block, so that clocks and calls do not show."""

PARTS = ("forward", "both")
"""What is timed: inference, and a training step's share."""

BACKENDS = {"cuda": {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}}
"""Back ends of torch's attention that stand side by side, by type of device; elsewhere torch chooses."""

SAME = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
"""How far two forms' numbers may be apart, over the largest of them, by precision."""

_MOVED = 0.05
"""Weights are moved by so much before two forms are compared: some start where parts of a mixer do nothing."""


class Timed:
    """A module with inputs of one shape, drawn anew for every block.

    Args:
        name: of its row.
        module: takes the inputs, and returns a tensor or a `MixerOutput`.
        shapes: of the inputs.
        settings: of the comparison.
        dtype: of the inputs.

    Attributes:
        core: attention alone, without projections; None where it cannot be told apart, or is not asked for.
        memory: bytes that a pass forward and backward adds at its peak.

    Raises:
        PluginError: outputs or gradients are not finite.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        shapes: Sequence[Sequence[int]],
        settings: SpeedSettings,
        dtype: torch.dtype = torch.float32,
    ):
        self.name, self.module, self.device = name, module, torch_device(settings.device)
        self.dtype = DTYPES[settings.precision]
        self.core: Timed | None = None
        self._generator = torch.Generator(self.device).manual_seed(1)
        made = {"generator": self._generator, "device": self.device, "dtype": dtype}
        self.inputs = [torch.randn(*shape, **made) for shape in shapes]
        self._repeats: dict[str, int] = dict.fromkeys(PARTS, 1)

    def warm_up(self) -> Timed:
        """Look at its outputs and its memory, and find how often a block repeats it."""
        for what, values in (("outputs", [self.forward()]), ("gradients", self.both())):
            if not all(bool(torch.isfinite(one).all()) for one in values if one is not None):
                length = self.inputs[0].shape[-2]
                raise PluginError(f"{self.name}: {what} at length {length} are not finite, so there is nothing to time")
        self.memory = added_memory(self.both, self.device)
        for part in PARTS:
            self.seconds(part)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / max(self.seconds(part), 1e-6)))
        return self

    def forward(self) -> Tensor:
        """Inference."""
        with torch.no_grad(), self._precision():
            return as_output(self.module(*self.inputs)).out

    def result(self) -> tuple[list[Tensor], MixerOutput]:
        """A forward pass with a graph: the inputs and what the module makes of them."""
        inputs = [one.detach().requires_grad_() for one in self.inputs]
        with self._precision():
            return inputs, as_output(self.module(*inputs))

    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients of inputs and parameters; extra losses count if weighted."""
        inputs, result = self.result()
        weights = getattr(self.module, "loss_weights", {})
        ends = [result.out, *(loss for name, loss in result.losses.items() if weights.get(name, 0.0))]
        wanted = [*inputs, *(one for one in self.module.parameters() if one.requires_grad)]
        return torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)

    def refresh(self) -> None:
        """Draw other inputs."""
        for one in self.inputs:
            one.normal_(generator=self._generator)

    def seconds(self, part: str) -> float:
        """Of a call, by one more block, with fresh inputs."""
        self.refresh()
        return seconds(getattr(self, part), self.device, self._repeats[part])

    def count(self) -> Count:
        """Operations and bytes of `both`."""
        try:
            with self._precision():
                return count_pass(self.module, *self.inputs)
        except Exception as error:  # it has run, so it is the counter that cannot follow
            return Count(flops=0, moved=0, operations=0, largest={}, unknown=(f"anything ({type(error).__name__})",))

    def _precision(self) -> AbstractContextManager[object]:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)


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
    form = replace(mixer, resolved=replace(mixer.resolved, plugin=plugin))
    module, name = built_mixer(form, settings, length), f"{mixer.text} published"
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for weight in own.module.parameters():
            weight += _MOVED * torch.randn(weight.shape, generator=generator).to(weight.device)
    try:
        module.load_state_dict(own.module.state_dict())
    except RuntimeError as error:
        raise PluginError(f"{name}: it has other weights than {mixer.text}: {' '.join(str(error).split())}") from None
    apart = _apart(own.module, module, own.inputs[0], own)
    if not apart <= SAME[settings.precision]:
        raise PluginError(f"{name}: at length {length} its numbers are {apart:.1e} of the largest from {mixer.text}'s")
    return _layer(name, module, settings, length)


def timed_attention(settings: SpeedSettings, length: int) -> list[Timed]:
    """Torch's attention by each of its back ends that runs here, the fastest first; it is the baseline."""
    found = []
    for name, backend in BACKENDS.get(torch_device(settings.device).type, {}).items():
        module = _built(_Attention(settings.dim, settings.heads, causal=settings.causal, backend=backend), settings)
        try:
            found.append(_layer(f"{BASELINE} ({name})", module, settings, length))
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
    if not found:
        module = _built(_Attention(settings.dim, settings.heads, causal=settings.causal), settings)
        found.append(_layer(BASELINE, module, settings, length))
    return sorted(found, key=lambda one: min(one.seconds("both") for _ in range(3))) if len(found) > 1 else found


def timed_core(settings: SpeedSettings, length: int) -> Timed:
    """Torch's attention without projections."""
    return _core(BASELINE, _Core(settings.causal, None), settings, length)


def _core(name: str, core: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    heads = (settings.samples(length), settings.heads, length, settings.dim // settings.heads)
    dtype = DTYPES[settings.precision]  # as projections give it
    return Timed(name, core, [heads] * 3, settings, dtype).warm_up()


def _layer(name: str, module: nn.Module, settings: SpeedSettings, length: int) -> Timed:
    timed = Timed(name, module, settings.shape(length), settings).warm_up()
    core = module.core if isinstance(module, AttentionMixer | _Attention) and settings.core else None
    timed.core = None if core is None else _core(name, core, settings, length)
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


def _apart(ours: nn.Module, theirs: nn.Module, x: Tensor, own: Timed) -> float:
    """The largest difference of outputs, losses and gradients of x, over the largest value of its kind."""
    found = []
    for module in (ours, theirs):
        given = x.detach().requires_grad_()
        with own._precision():
            result = as_output(module(given))
        values = {"output": result.out.float(), **{name: loss.float() for name, loss in result.losses.items()}}
        (grad,) = torch.autograd.grad([one.square().sum() for one in values.values()], given)
        found.append({key: one.detach() for key, one in values.items()} | {"gradient": grad})
    if found[0].keys() != found[1].keys():
        return math.inf
    gaps = [(found[1][key] - one).abs().max() / one.abs().max().clamp_min(1e-30) for key, one in found[0].items()]
    return max(float(gap) for gap in gaps)


class _Core(nn.Module):
    """Torch's attention, q, k and v (B, H, L, E) to (B, H, L, E)."""

    def __init__(self, causal: bool, backend: SDPBackend | None):
        super().__init__()
        self._causal, self._backend = causal, backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with nullcontext() if self._backend is None else sdpa_kernel(self._backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)


class _Attention(nn.Module):
    """The baseline, x (B, L, D) to (B, L, D)."""

    def __init__(self, dim: int, heads: int, *, causal: bool, backend: SDPBackend | None = None):
        super().__init__()
        self._heads = heads
        self.inputs, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.core = _Core(causal, backend)

    def forward(self, x: Tensor, *, keep: None = None, carry: None = None) -> Tensor:
        q, k, v = (part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        return self.out(self.core(q, k, v).transpose(1, 2).flatten(-2))
