"""Speed of token mixers as a ratio over torch's own attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times the baseline, a few mixers, the baseline again,
a few more mixers, and so on; a mixer's ratio in a round is over the mean of the two baseline blocks around it. What is
reported are medians over rounds.

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from subquad.bench.clock import Clock, Roofline, one_thread, roofline
from subquad.cost import Count, count_pass
from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.experiment import parameters
from subquad.experiment.strict_yaml import parse_value
from subquad.nn import as_output
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Resolved, blocked, find_plugins, make_mixer, resolve

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""

_Part = Literal["forward", "both"]
_PARTS: tuple[_Part, ...] = ("forward", "both")
_CHOICE = re.compile(r"(?P<name>.+?)(?::(?P<params>\w+=.*))?", re.DOTALL)
_NEXT = re.compile(r",(?=\s*\w+=)")


@dataclass(frozen=True)
class MixerChoice:
    """One mixer with its parameters.

    Attributes:
        text: as it was asked for.
        resolved: the plugin.
        config: all its parameters.
        facts: what it claims with them.
    """

    text: str
    resolved: Resolved
    config: Config
    facts: Facts

    @property
    def params(self) -> dict[str, Any]:
        """All parameters, as plain values."""
        return self.config.model_dump(mode="json")


@dataclass(frozen=True, kw_only=True)
class SpeedSettings:
    """How it is measured.

    Attributes:
        lengths: L of each comparison.
        dim, heads: D and H.
        tokens: B L, the same at every length; one sample where L is longer.
        rounds: times that every mixer is timed at every length.
        device: "cpu", "cuda", "cuda:1".
        causal: build the baseline and all mixers causal.
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096)
    dim: int = 128
    heads: int = 2
    tokens: int = 8192
    rounds: int = 5
    device: str = "cpu"
    causal: bool = False

    def batch(self, length: int) -> int:
        """B at a length."""
        return max(1, self.tokens // length)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One mixer at one length.

    Attributes:
        mixer: its text, or `BASELINE`.
        length, batch: L and B.
        forward_us, both_us: microseconds per token, without and with the backward pass.
        forward_ratio, both_ratio: time over that of the baseline; below 1 is faster.
        gflop: operations of forward and backward, counted, in 1e9.
        mbytes: bytes they move, counted, in 1e6.
        gflops: operations reached per second, in 1e9.
        uncounted: operations left out of the counts, as nobody can count them.
    """

    mixer: str
    length: int
    batch: int
    forward_us: float
    both_us: float
    forward_ratio: float
    both_ratio: float
    gflop: float
    mbytes: float
    gflops: float
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """All that was measured.

    Attributes:
        settings: how.
        mixers: those that were asked for.
        speeds: by length, then the baseline and the mixers in their order.
        best: what the process reaches at best.
        skipped: what was not timed, and why.
    """

    settings: SpeedSettings
    mixers: tuple[MixerChoice, ...]
    speeds: tuple[Speed, ...]
    best: Roofline
    skipped: tuple[str, ...] = ()


def choose_mixer(text: str) -> MixerChoice:
    """A mixer from `NAME` or `NAME:key=value,key=value`; values follow YAML's rules for plain text.

    Raises:
        PluginError: there is no such mixer.
        ConfigError: a parameter is wrong, or given twice.
    """
    match = _CHOICE.fullmatch(text.strip())
    if match is None:
        raise ConfigError("a row needs a mixer: write NAME or NAME:key=value,key=value")
    resolved = resolve("mixer", match["name"])
    assert isinstance(resolved.plugin, MixerPlugin)
    try:
        config = parameters(resolved, _params(match["params"]))
    except ConfigError as error:
        raise ConfigError(f"row {text.strip()!r}: {error}") from None
    return MixerChoice(text.strip(), resolved, config, resolved.plugin.facts_of(config))


def choose_mixers(texts: Sequence[str]) -> tuple[list[MixerChoice], list[str]]:
    """The mixers asked for, or all that are installed, at their defaults, and why any of these is left out.

    Raises:
        PluginError, ConfigError: as `choose_mixer`, for mixers that were asked for.
    """
    if texts:
        return [choose_mixer(text) for text in dict.fromkeys(texts)], []
    installed = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    names = [found.name for found in installed]
    chosen, skipped = [], []
    for found in installed:
        text = found.name if names.count(found.name) == 1 else f"{found.distribution}:{found.name}"
        try:
            chosen.append(choose_mixer(text))
        except (PluginError, ConfigError) as error:
            skipped.append(f"{text}: {error}")
    return chosen, skipped


def time_mixers(
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    *,
    skipped: Sequence[str] = (),
    strict: bool = True,
    done: Callable[[int], None] = lambda length: None,
) -> Speeds:
    """Time all mixers, and the baseline, at all lengths.

    Args:
        mixers: what is timed beside the baseline.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.
        done: called after each length.

    Raises:
        SubquadError: a mixer cannot be built or called so, or its outputs are not finite.
    """
    clock = Clock(_device(settings.device))
    left_out, speeds = list(skipped), []
    with one_thread():
        best = roofline(clock)
        for length in settings.lengths:
            timed = [_Timed(None, settings, length, clock)]
            for mixer in mixers:
                try:
                    timed.append(_Timed(mixer, settings, length, clock))
                except SubquadError as error:
                    if strict:
                        raise
                    left_out.append(f"{mixer.text} at length {length}: {error}")
            gc.collect()
            for _ in range(settings.rounds):
                _round(timed, clock)
            speeds += [one.speed(settings) for one in timed]
            done(length)
    return Speeds(settings=settings, mixers=tuple(mixers), speeds=tuple(speeds), best=best, skipped=tuple(left_out))


class _Attention(nn.Module):
    """The baseline, x (B, L, D) to (B, L, D)."""

    def __init__(self, dim: int, heads: int, *, causal: bool):
        super().__init__()
        self._heads, self._causal = heads, causal
        self.inputs, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, keep: None = None, carry: None = None) -> Tensor:
        q, k, v = (part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class _Timed:
    """A mixer, or the baseline, at one length, and what was timed of it so far."""

    def __init__(self, mixer: MixerChoice | None, settings: SpeedSettings, length: int, clock: Clock):
        """Build, look at the outputs, warm up."""
        self.name, self.length = mixer.text if mixer else BASELINE, length
        self.module = _built(mixer, settings, length)
        generator = torch.Generator().manual_seed(1)
        shape = settings.batch(length), length, settings.dim
        self.x = torch.randn(*shape, generator=generator).to(settings.device)
        for what, values in (("outputs", [self.forward()]), ("gradients", self.both())):
            if not all(bool(torch.isfinite(one).all()) for one in values if one is not None):
                raise PluginError(f"{self.name}: {what} at length {length} are not finite, so there is nothing to time")
        self.repeats = {part: clock.repeats(getattr(self, part)) for part in _PARTS}
        self.seconds, self.ratios = ({part: list[float]() for part in _PARTS} for _ in range(2))

    def forward(self) -> Tensor:
        """Inference."""
        with torch.no_grad():
            return as_output(self.module(self.x)).out

    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients of input and parameters; extra losses count if weighted."""
        x = self.x.detach().requires_grad_()
        result = as_output(self.module(x))
        weights = getattr(self.module, "loss_weights", {})
        ends = [result.out, *(loss for name, loss in result.losses.items() if weights.get(name, 0.0))]
        wanted = [x, *(one for one in self.module.parameters() if one.requires_grad)]
        return torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)

    def time(self, part: _Part, clock: Clock) -> float:
        """Seconds of one more block."""
        seconds = clock.once(getattr(self, part), self.repeats[part])
        self.seconds[part].append(seconds)
        return seconds

    def speed(self, settings: SpeedSettings) -> Speed:
        forward, both = (statistics.median(self.seconds[part]) for part in _PARTS)
        batch = settings.batch(self.length)
        count = self._count()
        return Speed(
            mixer=self.name,
            length=self.length,
            batch=batch,
            forward_us=1e6 * forward / (batch * self.length),
            both_us=1e6 * both / (batch * self.length),
            forward_ratio=statistics.median(self.ratios["forward"]),
            both_ratio=statistics.median(self.ratios["both"]),
            gflop=count.flops / 1e9,
            mbytes=count.moved / 1e6,
            gflops=count.flops / 1e9 / both,
            uncounted=count.unknown,
        )

    def _count(self) -> Count:
        """Operations and bytes of `both`."""
        try:
            return count_pass(self.module, self.x)
        except Exception as error:  # it has run, so it is the counter that cannot follow
            return Count(flops=0, moved=0, operations=0, largest={}, unknown=(f"anything ({type(error).__name__})",))


def _built(mixer: MixerChoice | None, settings: SpeedSettings, length: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if mixer is None:
            module = _Attention(settings.dim, settings.heads, causal=settings.causal)
        else:
            module = make_mixer(mixer.resolved, mixer.config, _site(mixer, settings, length))
        return module.to(settings.device, torch.float32).train()


def _site(mixer: MixerChoice, settings: SpeedSettings, length: int) -> Site:
    causal, limit = settings.causal or mixer.facts.causal == "always", mixer.facts.max_length
    if causal and mixer.facts.causal == "never":
        raise PluginError(f"{mixer.text}: never causal, so it cannot be timed with --causal")
    if isinstance(limit, int) and limit < length:
        raise PluginError(f"{mixer.text}: takes {limit} positions at most")
    return Site(dim=settings.dim, num_heads=settings.heads, max_len=length, causal=causal)


def _params(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in _NEXT.split(text) if text else ():
        key, _, value = item.strip().partition("=")
        if key in found:
            raise ConfigError(f"{key} is given twice")
        found[key] = parse_value(value, key)
    return found


def _device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"--device {name}: give cpu, cuda or cuda:1")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no CUDA device here; use cpu")
    return torch.device(name)


def _round(timed: Sequence[_Timed], clock: Clock) -> None:
    baseline, others = timed[0], timed[1:]
    for part in _PARTS:
        before = baseline.time(part, clock)
        baseline.ratios[part].append(1.0)
        for group in _groups(others):
            times = [one.time(part, clock) for one in group]
            after = baseline.time(part, clock)
            for one, seconds in zip(group, times, strict=True):
                one.ratios[part].append(2 * seconds / (before + after))
            before = after


def _groups(timed: Sequence[_Timed]) -> Iterator[Sequence[_Timed]]:
    return (timed[start : start + _GROUP] for start in range(0, len(timed), _GROUP))
