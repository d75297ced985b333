"""What is certified: a mixer with one set of parameters, causal or not.

Shape letters: B batch, L length, D model width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import ConfigError, SubquadError
from subquad.nn import MixerOutput, TokenMixer, as_output
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Found, Resolved, SourceFile, load_source, make_mixer, resolve
from subquad.registry.contract import check_plugin
from subquad.registry.faults import blamed, cause
from subquad.suggest import to_paste
from subquad_check.calls import (
    Intercepting,
    Mask,
    call,
    cast,
    normal,
    padded,
    passes,
    slope,
    tensors_of,
    trainable,
    weighted,
)
from subquad_check.meter import CheckFailed, looked, looking

MAX_LEN = 64
"""Positions a mixer is built for where a check says nothing else."""

FAR = 1100
"""Positions at which a check looks far down a sequence."""

_LOOKED_AT = 13
"""Positions of the call that tells in which precision a mixer computes."""
_DIRECTIONS = 4
"""Of these slopes any may show float32: along one alone its rounding may happen to be small."""
ROUNDING_SINGLE = 1e-5
"""As `ROUNDING`, of a mixer that computes in float32 inside."""

STIR = 0.05
"""Noise added to what is trained: at their starting values some methods do nothing (a filter of
zeros, a gate shut).
"""

Target = str | type | MixerPlugin | Resolved | SourceFile
"""A plugin's name, `./file.py:Class`, a `TokenMixer` or `AttentionCore` class with `Config` and
`facts`, or plugin.
"""


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
        stacked: build three layers with their residual, of which each hands its carry to the next.
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

    @cached_property
    def is_single(self) -> bool:
        """Whether it runs in float32 and not in float64, or some of a float64 call is computed in
        float32 or less, and shows: slopes along two steps are apart, as such rounding makes them.
        A mask of float32 shows nowhere.
        """
        if self._refusal:
            return self.is_single_alone
        mixer, x, keep = self.case(_LOOKED_AT, torch.float64)
        formats = set[torch.dtype]()

        def note(result: Any, args: Any) -> Any:
            formats.update(tensor.dtype for tensor in tensors_of(result))
            return result

        with looking(), torch.no_grad():
            with Intercepting(note):
                call(mixer, x, keep)
            numbers = [dtype for dtype in formats if dtype.is_floating_point or dtype.is_complex]
            if all(dtype.to_real() == torch.float64 for dtype in numbers):
                return False
            inputs = [x, *trainable(mixer).values()]

            def summed() -> float:
                return weighted(call(mixer, x, keep).out).sum().item()

            for drawn in range(_DIRECTIONS):
                steps = [
                    normal(tensor.shape, 100 * drawn + i).to(tensor)
                    for i, tensor in enumerate(inputs)
                ]
                ahead, further = (slope(summed, inputs, steps, size) for size in (1e-6, 1e-5))
                if not math.isclose(ahead, further, rel_tol=1e-4, abs_tol=1e-6):
                    return True
            return False

    def altered(self, **changes: Any) -> CheckSubject:
        """Built in another place or size; in the number format that was found for this one."""
        other = replace(self, **changes)
        vars(other).update(is_single=self.is_single, is_single_alone=self.is_single_alone)
        return other

    @cached_property
    def is_single_alone(self) -> bool:
        """Whether it runs in float32 and not in float64."""
        return bool(self._refusal) and not self._refusal_in(torch.float32)

    @property
    def dtype(self) -> torch.dtype:
        """In which its properties are tested: what is computed in float32 is called in it."""
        return torch.float32 if self.is_single else torch.float64

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """In which it runs."""
        return (torch.float32,) if self.is_single_alone else (torch.float64, torch.float32)

    def first_call(self, dtype: torch.dtype) -> None:
        """What every other check builds on: a call in evaluation, and one in training with its
        gradients, all finite; whatever the mixer raises goes through.
        """
        passes("its first call", *self.case(_LOOKED_AT, dtype))

    def obstacle(self, error: BaseException) -> str:
        """Why a check that raised this has nothing to judge: the first call fails, too, and in
        float32 neither works; "" where that is not so.
        """
        refusal = self._refusal
        if refusal is None or self.is_single_alone:
            return ""
        # what a check found stands, unless the first call is no better
        if isinstance(error, CheckFailed) and not isinstance(refusal, CheckFailed):
            return ""
        return f"its first call fails: {named_cause(refusal)}"

    @cached_property
    def _refusal(self) -> BaseException | None:
        return self._refusal_in(torch.float64)

    def _refusal_in(self, dtype: torch.dtype) -> BaseException | None:
        try:
            with looking():
                self.first_call(dtype)
        except (Exception, SystemExit) as error:
            return error
        return None

    @cached_property
    def hands_on(self) -> bool:
        """Whether it gives the next layer something, without which a later layer cannot be called
        alone.
        """
        mixer, x, _ = self.case(_LOOKED_AT)
        with torch.no_grad():
            return call(mixer, x).carry is not None

    def at_least(self, allowed: float) -> float:
        """What is allowed of a subject; more where it computes in float32, unless it is 0."""
        return max(allowed, ROUNDING_SINGLE) if allowed and self.is_single else allowed

    @property
    def given(self) -> dict[str, Any]:
        """Parameters that are not the defaults."""
        return self.config.model_dump(mode="json", exclude_defaults=True)

    @property
    def claims(self) -> dict[str, Any]:
        """Its facts by name."""
        return asdict(self.facts)

    def at_most(self, length: int) -> int:
        """`length`, or the most positions the mixer takes with any `Site`, where that is less."""
        limit = self.facts.max_length
        return min(length, limit) if isinstance(limit, int) else length

    def build(
        self,
        *,
        max_len: int = MAX_LEN,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        num_layers: int = 2,
        **site: Any,
    ) -> TokenMixer:
        """A new mixer in evaluation mode, its weights stirred; the same arguments give the same
        weights.

        Args:
            seed: of the weights.
            num_layers: 1: a mixer of the last layer.
            site: further attributes of the `Site`.
        """
        dtype = dtype or self.dtype  # before the seed is set: finding it out calls a mixer
        if self.stacked:
            single = self.altered(stacked=False)
            site |= {"max_len": max_len, "dtype": dtype, "num_layers": len(LAYERS)}
            layers = {
                name: single.build(seed=i, layer_index=i, **site) for i, name in enumerate(LAYERS)
            }
            return _Stack(layers).eval()
        looked().note(role=site.get("role", "self"))
        drawn = self._drawn(seed)
        place = self.site(max_len=max_len, seed=drawn, num_layers=num_layers, **site)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(drawn)
            mixer = make_mixer(self.resolved, self.config, place).eval()
            cast(mixer, dtype)
            for weight in trainable(mixer).values():
                weight.add_(STIR * torch.randn_like(weight))
        return mixer

    def site(self, *, max_len: int = MAX_LEN, num_layers: int = 2, **site: Any) -> Site:
        """Where it is built; `site` has further attributes."""
        longest = self.at_most(max_len)
        return Site(
            dim=self.dim,
            num_heads=self.num_heads,
            max_len=longest,
            context_len=longest if site.get("role") == "cross" else 0,
            causal=self.causal,
            num_layers=num_layers,
            **site,
        )

    def tokens(
        self, batch: int, length: int, *, dtype: torch.dtype | None = None, seed: int = 1
    ) -> Tensor:
        """Standard normal tokens of the subject's width, (B, L, D)."""
        return normal((batch, length, self.dim), self._drawn(seed)).to(dtype or self.dtype)

    def _drawn(self, seed: int) -> int:
        return seed + 1000 * self.seed

    def again(self, checks: Iterable[str]) -> str:
        """What makes checks once more: a command, or a call where a class was handed over."""
        found = self.resolved.found
        if not self.resolved.source and not found.distribution:
            params = f", {self.given}" if self.given else ""
            return f"check_mixer({found.name}{params}, only={list(checks)}, seed={self.seed})"
        words = [found.name, *(f"{key}={json.dumps(value)}" for key, value in self.given.items())]
        for name in ("dim", "num_heads", "compiler", "device"):
            value = getattr(self, name)
            if value != getattr(CheckSubject, name):
                words += [f"--{name.removeprefix('num_')}", str(value)]
        for check in checks:
            words += ["--only", check]
        return to_paste("check", *words, "--seed", self.seed)

    def pair(self, length: int, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Tokens of two samples, (2, L, D), L at most what the mixer takes, and their mask: half
        of one is padding.
        """
        length = self.at_most(length)
        return self.tokens(2, length, dtype=dtype), padded(length, (length, (length + 1) // 2))

    def lengths(self, *lengths: int) -> list[int]:
        """Of these, each at most what the mixer takes, and once."""
        return list(dict.fromkeys(map(self.at_most, lengths)))

    def case(
        self, length: int, dtype: torch.dtype | None = None
    ) -> tuple[TokenMixer, Tensor, Tensor]:
        """A new mixer that takes so many positions, or `MAX_LEN`, and a `pair` for it."""
        return self.build_for(length, dtype=dtype), *self.pair(length, dtype)

    def build_for(self, length: int, **options: Any) -> TokenMixer:
        """A new mixer that takes so many positions, or `MAX_LEN`.

        Args:
            options: further arguments of `build`.
        """
        return self.build(max_len=max(length, MAX_LEN), **options)

    def build_elsewhere(self, length: int, **options: Any) -> TokenMixer:
        """As `build_for`, as the last of three layers, of a decoder where it is causal.

        Where it hands something on it is the first of two, as its later layers need that.
        """
        if not (self.stacked or self.hands_on):
            role = "decoder" if self.causal else "self"
            options = {"role": role, "layer_index": 2, "num_layers": 3, **options}
        return self.build_for(length, **options)


LAYERS = ("first", "second", "third")
"""Of a stack, by the name of each."""


class _Stack(TokenMixer):
    """Layers, the last of which adds no residual."""

    def __init__(self, layers: dict[str, TokenMixer]):
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.loss_weights = {
            f"{layer} {name}": weight
            for layer, mixer in layers.items()
            for name, weight in mixer.loss_weights.items()
        }

    def forward(self, x: Tensor, *, keep: Mask = None, carry: Any = None) -> MixerOutput:
        result = MixerOutput(torch.zeros_like(x), carry=carry)
        losses = {}
        for name, layer in self.layers.items():
            x = x + result.out
            result = as_output(layer(x, keep=keep, carry=result.carry))
            losses |= {f"{name} {key}": loss for key, loss in result.losses.items()}
        return MixerOutput(result.out, losses)


def named_cause(error: BaseException) -> str:
    """What a mixer raised, in one line; an error of subquad says itself where it comes from."""
    if isinstance(error, SubquadError):
        return f"{type(error).__name__}: {error}"
    return cause(error)


def check_subjects(
    target: Target, params: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[CheckSubject]:
    """Every way that is certified: the given parameters, or else the defaults and each variant;
    causal where it can be.

    Args:
        options: further attributes of the subjects: dim, num_heads, compiler, device, seed.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
        ConfigError: the parameters are wrong.
    """
    from subquad.experiment import parameters  # here: storage and YAML are imported with it

    resolved = _resolved(target)
    plugin = resolved.plugin
    if not isinstance(plugin, MixerPlugin):
        raise ConfigError(f"{resolved.found} is no mixer")
    chosen = {"given": params} if params else {"default": {}, **plugin.variants}
    for name, values in chosen.items():
        config = parameters(resolved, dict(values))
        with blamed(f"{resolved.found} cannot say what it claims"):
            facts = plugin.facts_of(config)
        own = {"resolved": resolved, "config": config, "facts": facts, "variant": name, **options}
        for causal, other in ((False, "always"), (True, "never")):
            if facts.causal != other:
                yield CheckSubject(**own, causal=causal)


def _resolved(target: Target) -> Resolved:
    if isinstance(target, Resolved):
        return target
    if isinstance(target, SourceFile):
        return load_source(target)
    if isinstance(target, str):
        return resolve("mixer", target)
    build = target if isinstance(target, type) else target.build
    if not isinstance(build, str):
        build = f"{build.__module__}:{build.__name__}"
    _, _, name = build.partition(":")
    found = Found("mixer", name, "", "not installed", build)
    return Resolved(check_plugin(found, target), found)
