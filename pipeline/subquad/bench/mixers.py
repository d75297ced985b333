"""Speed of token mixers as a ratio over torch's own attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times the baseline, a few mixers, the baseline again,
a few more mixers, and so on; a mixer's ratio in a round is over the mean of the two baseline blocks around it. What is
reported are medians over rounds.

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from subquad.bench.clock import in_turn, one_thread, seconds
from subquad.cost import Count, count_pass
from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.experiment import parameters
from subquad.experiment.strict_yaml import parse_value
from subquad.nn import as_output
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Resolved, blocked, find_plugins, make_mixer, resolve

BASELINE = "torch attention"
"""Full attention: four projections around torch's `scaled_dot_product_attention`."""

SHORTEST_BLOCK = 0.03
"""Seconds: shorter passes are repeated within a block, so that clocks and calls do not show."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""

_PARTS = ("forward", "both")
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


def _choose_mixer(text: str) -> MixerChoice:
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
        PluginError, ConfigError: there is no such mixer, or a parameter is wrong or given twice.
    """
    if texts:
        return [_choose_mixer(text) for text in dict.fromkeys(texts)], []
    installed = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    names = [found.name for found in installed]
    chosen, skipped = [], []
    for found in installed:
        text = found.name if names.count(found.name) == 1 else f"{found.distribution}:{found.name}"
        try:
            chosen.append(_choose_mixer(text))
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
) -> dict[str, Any]:
    """Time all mixers, and the baseline, at all lengths.

    Args:
        mixers: what is timed beside the baseline.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.
        done: called after each length.

    Returns:
        JSON values. `settings`; `best`: see `_roofline`; `mixers`: each `row` as it was asked for, with `mixer` and
        `params`; `speeds`: see `_speed`, by length, then the baseline and the mixers in their order; `skipped`: what
        was not timed, and why.

    Raises:
        SubquadError: a mixer cannot be built or called so, or its outputs are not finite.
    """
    device = _device(settings.device)
    left_out, speeds = list(skipped), []
    with one_thread():
        best = _roofline(device)
        for length in settings.lengths:
            timed = []
            for mixer in mixers:
                try:
                    timed.append(_Timed(mixer, settings, length))
                except SubquadError as error:
                    if strict:
                        raise
                    left_out.append(f"{mixer.text} at length {length}: {error}")
            speeds += _speeds(_Timed(None, settings, length), timed, settings.rounds)
            done(length)
    rows = [{"row": one.text, "mixer": one.resolved.found.name, "params": one.params} for one in mixers]
    return {"settings": asdict(settings), "best": best, "mixers": rows, "speeds": speeds, "skipped": left_out}


def _speeds(baseline: _Timed, others: Sequence[_Timed], rounds: int) -> list[dict[str, Any]]:
    """Time the baseline and the mixers in turn: the baseline before and after every few mixers."""
    gc.collect()
    order = [baseline]
    for start in range(0, len(others), _GROUP):
        order += [*others[start : start + _GROUP], baseline]
    taken = in_turn([partial(one.seconds, part) for part in _PARTS for one in order], rounds)
    forward, both = [row[: len(order)] for row in taken], [row[len(order) :] for row in taken]
    return [_speed(one, _medians(one, order, forward), _medians(one, order, both)) for one in (baseline, *others)]


def _medians(one: _Timed, order: Sequence[_Timed], rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Seconds of a call, and their ratio over the mean of the baseline blocks on either side; 1 of the baseline."""
    places, around = ([at for at, other in enumerate(order) if other is which] for which in (one, order[0]))
    sides = [(at, around[bisect_right(around, at) - 1], around[bisect_left(around, at)]) for at in places]
    ratio = median(2 * row[at] / (row[before] + row[after]) for row in rounds for at, before, after in sides)
    return median(row[at] for row in rounds for at in places), ratio


def _speed(one: _Timed, forward: tuple[float, float], both: tuple[float, float]) -> dict[str, Any]:
    """One mixer, or the baseline, at one length.

    Returns:
        `mixer`: its text, or `BASELINE`; `length` and `batch`: L and B; of the forward pass, and with the backward pass
        (`both_`), microseconds per token (`_us`) and time over that of the baseline, below 1 is faster (`_ratio`);
        operations and bytes of both passes, counted, in 1e9 and 1e6 (`gflop`, `mbytes`); operations reached per second,
        in 1e9 (`gflops`); operations left out of the counts, as nobody can count them (`uncounted`).
    """
    batch, length, _ = one.x.shape
    count, scale = one.count(), 1e6 / (batch * length)
    return {
        "mixer": one.name,
        "length": length,
        "batch": batch,
        "forward_us": scale * forward[0],
        "both_us": scale * both[0],
        "forward_ratio": forward[1],
        "both_ratio": both[1],
        "gflop": count.flops / 1e9,
        "mbytes": count.moved / 1e6,
        "gflops": count.flops / 1e9 / both[0],
        "uncounted": list(count.unknown),
    }


def _roofline(device: torch.device, *, rounds: int = 3, size: int = 2048, copied: int = 256 << 20) -> dict[str, float]:
    """What this process reaches at best, measured now, medians over rounds after a warm-up.

    Args:
        size: of a float32 matrix product.
        copied: bytes of a copy.

    Returns:
        `gflops`: of the product, GFLOP/s; `gbytes`: of the copy, read and written, GB/s.
    """
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    blocks = [lambda: seconds(lambda: torch.mm(a, b), device), lambda: seconds(lambda: target.copy_(source), device)]
    gemm, copy = (median(times) for times in zip(*in_turn(blocks, rounds + 1)[1:], strict=True))
    return {"gflops": 2 * size**3 / gemm / 1e9, "gbytes": 2 * copied / copy / 1e9}


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
    """A mixer, or the baseline, at one length."""

    def __init__(self, mixer: MixerChoice | None, settings: SpeedSettings, length: int):
        """Build, look at the outputs, warm up."""
        self.name = mixer.text if mixer else BASELINE
        self.module = _built(mixer, settings, length)
        generator = torch.Generator().manual_seed(1)
        shape = max(1, settings.tokens // length), length, settings.dim
        self.x = torch.randn(*shape, generator=generator).to(settings.device)
        for what, values in (("outputs", [self.forward()]), ("gradients", self.both())):
            if not all(bool(torch.isfinite(one).all()) for one in values if one is not None):
                raise PluginError(f"{self.name}: {what} at length {length} are not finite, so there is nothing to time")
        self._repeats: dict[str, int] = dict.fromkeys(_PARTS, 1)
        for part in _PARTS:
            self.seconds(part)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / max(self.seconds(part), 1e-6)))

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

    def seconds(self, part: str) -> float:
        """Of a call, by one more block."""
        return seconds(getattr(self, part), self.x.device, self._repeats[part])

    def count(self) -> Count:
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
