"""What is certified: a mixer with one set of parameters, causal or not; and calls of it, with their gradients.

Shape letters: B batch, L length, D model width.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from subquad.errors import ConfigError
from subquad.experiment import parameters
from subquad.nn import MixerOutput, TokenMixer, as_output
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Found, Resolved, SourceFile, load_source, make_mixer, resolve
from subquad.registry.contract import check_plugin
from subquad.registry.foreign import blamed

MAX_LEN = 64
"""Positions a mixer is built for where a check says nothing else."""

FAR = 1100
"""Positions at which a check looks far down a sequence."""

MODES = {"evaluation": False, "training": True}
"""Most properties have to hold in both."""

STIR = 0.05
"""Noise added to all weights: at their starting values some methods do nothing (a filter of zeros, a gate shut)."""

Target = str | type | MixerPlugin | Resolved | SourceFile
"""A plugin's name, `./file.py:Class`, a `TokenMixer` or `AttentionCore` class with `Config` and `facts`, or plugin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckSubject:
    """One way of building a mixer.

    Attributes:
        resolved: the plugin.
        config: its parameters.
        facts: what it claims with these.
        causal: whether it is built to see no later position.
        variant: "default", the name of one of the plugin's variants, or "given" by the user.
        dim, num_heads: width and heads the checks build it with.
        compiler: backend of torch.compile that is compared with eager execution.
        device: where kernels are held against the reference.
        seed: of weights and tokens, and of what the mixer draws when it is built.
        stacked: build two layers with their residual, of which the first hands its carry to the second, the last.
    """

    resolved: Resolved
    config: Config
    facts: Facts
    causal: bool
    variant: str = "default"
    dim: int = 16
    num_heads: int = 2
    compiler: str = "aot_eager"
    device: str = "cpu"
    seed: int = 0
    stacked: bool = False

    def __str__(self) -> str:
        return f"{self.variant}, causal" if self.causal else self.variant

    def at_most(self, length: int) -> int:
        """`length`, or the most positions the mixer takes with any `Site`, where that is less."""
        limit = self.facts.max_length
        return min(length, limit) if isinstance(limit, int) else length

    def build(
        self,
        *,
        max_len: int = MAX_LEN,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        num_layers: int = 2,
        **site: Any,
    ) -> TokenMixer:
        """A new mixer in evaluation mode, its weights stirred; the same arguments give the same weights.

        Args:
            seed: of the weights.
            num_layers: 1: a mixer of the last layer.
            site: further attributes of the `Site`.
        """
        if self.stacked:
            one = replace(self, stacked=False)
            layers = (one.build(max_len=max_len, dtype=dtype, seed=i, layer_index=i, **site) for i in (0, 1))
            return _Stack(*layers).eval()
        longest = self.at_most(max_len)
        place = Site(
            dim=self.dim,
            num_heads=self.num_heads,
            max_len=longest,
            context_len=longest if site.get("role") == "cross" else 0,
            causal=self.causal,
            seed=self._drawn(seed),
            num_layers=num_layers,
            **site,
        )
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self._drawn(seed))
            mixer = make_mixer(self.resolved, self.config, place).to(dtype).eval()
            for parameter in mixer.parameters():
                parameter.add_(STIR * torch.randn_like(parameter))
        return mixer

    def tokens(self, batch: int, length: int, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
        """Standard normal tokens of the subject's width, (B, L, D)."""
        generator = torch.Generator().manual_seed(self._drawn(seed))
        return torch.randn(batch, length, self.dim, generator=generator, dtype=torch.float64).to(dtype)

    def _drawn(self, seed: int) -> int:
        return seed + 1000 * self.seed

    def again(self, checks: Iterable[str]) -> str:
        """What makes checks once more: a command, or a call where a class was handed over."""
        found, given = self.resolved.found, self.config.model_dump(mode="json", exclude_defaults=True)
        if not self.resolved.source and not found.distribution:
            params = f", {given}" if given else ""
            return f"check_mixer({found.name}{params}, only={list(checks)}, seed={self.seed})"
        words = ["subquad", "check", found.name, *(f"{key}={json.dumps(value)}" for key, value in given.items())]
        for option, name in {"dim": "dim", "heads": "num_heads", "compiler": "compiler", "device": "device"}.items():
            if (value := getattr(self, name)) != getattr(CheckSubject, name):
                words += [f"--{option}", str(value)]
        return shlex.join([*words, *(word for check in checks for word in ("--only", check)), "--seed", str(self.seed)])

    def pair(self, length: int) -> tuple[Tensor, Tensor]:
        """Tokens of two samples, (2, L, D), L at most what the mixer takes, and their mask: half of one is padding."""
        length = self.at_most(length)
        return self.tokens(2, length), padded(length, (length, (length + 1) // 2))


class _Stack(TokenMixer):
    """Two layers."""

    def __init__(self, first: TokenMixer, second: TokenMixer):
        super().__init__()
        self.first, self.second = first, second
        self.loss_weights = {f"layer {i} {name}": w for i in (0, 1) for name, w in first.loss_weights.items()}

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        below = as_output(self.first(x, keep=keep))
        above = as_output(self.second(x + below.out, keep=keep, carry=below.carry))
        losses = {f"layer {i} {key}": loss for i, one in enumerate((below, above)) for key, loss in one.losses.items()}
        return MixerOutput(above.out, losses)


def check_subjects(target: Target, params: Mapping[str, Any] | None = None, **options: Any) -> Iterator[CheckSubject]:
    """Every way that is certified: the given parameters, or else the defaults and each variant; causal where it can be.

    Args:
        options: further attributes of the subjects: dim, num_heads, compiler, device, seed.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
        ConfigError: the parameters are wrong.
    """
    resolved = _resolved(target)
    plugin = resolved.plugin
    if not isinstance(plugin, MixerPlugin):
        raise ConfigError(f"{resolved.found} is no mixer")
    chosen = {"given": params} if params else {"default": {}, **plugin.variants}
    for name, values in chosen.items():
        config = parameters(resolved, dict(values))
        with blamed(f"{resolved.found} cannot say what it claims"):
            facts = plugin.facts_of(config)
        for causal in {"never": (False,), "optional": (False, True), "always": (True,)}[facts.causal]:
            yield CheckSubject(resolved=resolved, config=config, facts=facts, causal=causal, variant=name, **options)


def _resolved(target: Target) -> Resolved:
    if isinstance(target, Resolved):
        return target
    if isinstance(target, SourceFile):
        return load_source(target)
    if isinstance(target, str):
        return resolve("mixer", target)
    build = target if isinstance(target, type) else target.build
    home, _, name = build.partition(":") if isinstance(build, str) else (build.__module__, "", build.__name__)
    found = Found("mixer", name, "", "not installed", f"{home}:{name}")
    return Resolved(check_plugin(found, target), found)


def padded(length: int, real: Sequence[int], *, lead: Sequence[int] = ()) -> Tensor:
    """Masks (B, L): `real` tokens of each sample after `lead` padded ones, none where that is empty."""
    place = torch.arange(length)
    starts = lead or [0] * len(real)
    return torch.stack([(place >= start) & (place < start + n) for start, n in zip(starts, real, strict=True)])


def call(
    mixer: Callable[..., Any],
    x: Tensor,
    keep: Tensor | None = None,
    *,
    seed: int = 0,
    autocast: bool = False,
    dropout: bool = True,
) -> MixerOutput:
    """What the mixer returns.

    Args:
        seed: random numbers that it draws start from it.
        autocast: to bf16, as the engine uses it: around the forward pass only.
        dropout: False: torch's dropout does nothing.
    """
    torch.manual_seed(seed)
    still = contextlib.nullcontext() if dropout else _NoDropout()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast), still:
        return as_output(mixer(x, keep=keep))


def afresh(mixer: nn.Module, weights: Mapping[str, Tensor] | None = None) -> Callable[..., Any]:
    """The mixer for one call, which leaves its buffers as they are in training, too; with other weights, by name."""
    buffers = {name: buffer.clone() for name, buffer in mixer.named_buffers()} if mixer.training else {}
    changed = {**buffers, **(weights or {})}
    return (lambda x, **masks: functional_call(mixer, changed, (x,), masks)) if changed else mixer


def outputs(mixer: nn.Module, x: Tensor, keep: Tensor | None = None, *, dropout: bool = True) -> Tensor:
    """(B, L, D), without a trace in the mixer's buffers, and detached from the graph that training makes."""
    with torch.set_grad_enabled(mixer.training):
        return call(afresh(mixer), x, keep, dropout=dropout).out.detach()


class _NoDropout(TorchFunctionMode):
    """Inside, torch's dropout does nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name and args:
            return args[0]
        if name == "scaled_dot_product_attention":
            args, kwargs = (*args[:4], *((0.0,) if args[4:] else ()), *args[5:]), kwargs | {"dropout_p": 0.0}
            kwargs = kwargs if len(args) < 5 else {k: v for k, v in kwargs.items() if k != "dropout_p"}
        return func(*args, **kwargs)


def modes(mixer: TokenMixer) -> Iterator[str]:
    """The modes' names, each after putting the mixer into it; it ends in evaluation."""
    for mode, training in MODES.items():
        mixer.train(training)
        yield mode
    mixer.eval()


def settled_modes(mixer: TokenMixer, x: Tensor) -> Iterator[str]:
    """`modes` without training where the mixer draws random numbers there besides torch's dropout.

    Without these and without dropout, sequences of two shapes can be compared.
    """
    for mode in modes(mixer):
        if mixer.training:
            outputs(mixer, x[:1], dropout=False)
            after = torch.get_rng_state()
            torch.manual_seed(0)  # as `call` does first
            if not torch.equal(after, torch.get_rng_state()):
                continue
        yield mode


def weighted(x: Tensor) -> Tensor:
    """`x` times fixed random numbers: the gradient of a sum of such has nothing that cancels."""
    generator = torch.Generator().manual_seed(11)
    return x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)


def total(result: MixerOutput, chosen: Tensor | slice = slice(None)) -> Tensor:
    """A scalar that the chosen outputs and all extra losses count in.

    Args:
        chosen: (B, L) bool, all where it is not given.
    """
    losses = ((1 + i) * loss.sum() for i, loss in enumerate(result.losses.values()))
    return sum(losses, weighted(result.out)[chosen].sum())


def trainable(mixer: nn.Module) -> dict[str, nn.Parameter]:
    """Weights with a gradient, by name."""
    return {name: weight for name, weight in mixer.named_parameters() if weight.requires_grad}


def gradients(value: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of a scalar by name; zeros where it does not depend on an input."""
    if not value.requires_grad:
        return {name: torch.zeros_like(one) for name, one in inputs.items()}
    found = torch.autograd.grad(
        value, list(inputs.values()), retain_graph=True, materialize_grads=True, allow_unused=True
    )
    return dict(zip(inputs, found, strict=True))
