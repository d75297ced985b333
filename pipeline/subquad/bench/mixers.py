"""Speed of token mixers as a ratio over torch's own attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times the baseline, a few mixers, the baseline again,
a few more mixers, and so on; a mixer's ratio in a round is over the mean of the two baseline blocks around it. What is
reported are medians over rounds. A mixer's published form stands beside it, and ratios over that form are given only
where it is as fast, beside torch's attention, as the authors' own code was (`calibrate`).

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from statistics import linear_regression, median
from typing import Any, Protocol, TypeVar

import torch

from subquad.bench.clock import in_turn, one_thread, seconds
from subquad.bench.memory import is_out_of_memory, memory_bounded
from subquad.bench.rows import DTYPES, MixerChoice, SpeedSettings, torch_device
from subquad.bench.timed import BASELINE, PARTS, Timed, timed_attention, timed_mixer, timed_published
from subquad.errors import SubquadError
from subquad.experiment import parameters

CALIBRATED = SpeedSettings(dim=128, heads=2, tokens=8192, rounds=9)
"""Where the speed of the authors' code is known: `plugin.Published.over_attention`."""

WITHIN = 0.15
"""A published form may be so much faster or slower than the authors' code, beside torch's attention."""

Times = dict[str, tuple[float, float | None]]
"""Seconds of a call, and their ratio over the baseline, by part (`timed.PARTS`)."""

_FAST = 0.1
"""Seconds: a matrix product of size 512 that takes longer is made of a CPU's slow instructions."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""


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
        JSON values. `settings`; `best`: see `roofline`; `mixers`: each `row` as it was asked for, with `mixer` and
        `params`; `speeds`: see `_speed`, by length, then the baseline and the mixers in their order, each before its
        published form; `growth`: see `_growth`; `published`: see `_calibrations`; `skipped`: what was not timed, and
        why, memory that ran out included.

    Raises:
        SubquadError: a mixer cannot be built or called so, or its outputs are not finite.
    """
    device = torch_device(settings.device)
    left_out, speeds = LeftOut(list(skipped), strict), []
    gc.collect()
    with one_thread(), memory_bounded(device):
        best = roofline(device, DTYPES[settings.precision])
        for length in settings.lengths:
            speeds += _at(length, mixers, settings, left_out, best)
            done(length)
        published = _calibrations(mixers, settings, speeds, left_out)
    rows = [{"row": one.text, "mixer": one.resolved.found.name, "params": one.params} for one in mixers]
    return {
        "settings": asdict(settings),
        "best": best,
        "mixers": rows,
        "speeds": speeds,
        "growth": _growth(mixers, speeds),
        "published": published,
        "skipped": left_out.lines + left_out.too_large(speeds),
    }


class LeftOut:
    """What cannot be timed, and why.

    Attributes:
        lines: reasons.
    """

    def __init__(self, lines: list[str], strict: bool):
        self.lines, self._strict, self._large = lines, strict, dict[str, list[int]]()

    def attempt(self, name: str, length: int, make: Callable[[], Any], *, strict: bool = True) -> Any:
        """What `make` returns, or None where that cannot be timed.

        Raises:
            SubquadError: of `make`, where it is strict.
        """
        try:
            return make()
        except SubquadError as error:
            if strict and self._strict:
                raise
            self.lines.append(f"{name} at length {length}: {error}")
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._large.setdefault(name, []).append(length)
        return None

    def too_large(self, speeds: Sequence[dict[str, Any]]) -> list[str]:
        """Whose memory ran out where, and the largest length that fits."""
        lines = []
        for name, lengths in self._large.items():
            fits = [one["length"] for one in speeds if one["mixer"].partition(" (")[0] == name]
            told = f"the largest that fits is {max(fits)}" if fits else "none of these fits"
            lines.append(f"{name}: out of memory at length {', '.join(map(str, lengths))}; {told}")
        return lines


def _at(
    length: int, mixers: Sequence[MixerChoice], settings: SpeedSettings, left_out: LeftOut, best: dict[str, float]
) -> list[dict[str, Any]]:
    """Everything at one length."""
    attention = left_out.attempt(BASELINE, length, lambda: timed_attention(settings, length)) or []
    others = attention[1:]
    for mixer in mixers:
        own = left_out.attempt(mixer.text, length, partial(timed_mixer, mixer, settings, length))
        others += [own] if own else []
        if own and settings.published and mixer.plugin.published:
            name, make = f"{mixer.text} published", partial(timed_published, mixer, own, settings, length)
            form = left_out.attempt(name, length, make, strict=False)
            others += [form] if form else []
    baseline = attention[0] if attention else None
    cores = times_in_turn(baseline and baseline.core, [one.core for one in others if one.core], settings.rounds)
    times = times_in_turn(baseline, others, settings.rounds)
    by_name = {one.name: core for one, core in cores}
    return [_speed(one, found, by_name.get(one.name), settings, length, best) for one, found in times]


class _Clocked(Protocol):
    def seconds(self, part: str) -> float: ...


_One = TypeVar("_One", bound=_Clocked)


def times_in_turn(baseline: _One | None, others: Sequence[_One], rounds: int) -> list[tuple[_One, Times]]:
    """Time the baseline and others in turn, the baseline before and after every few of them: for each its times."""
    between = [] if baseline is None else [baseline]
    order = [*between]
    for start in range(0, len(others), _GROUP):
        order += [*others[start : start + _GROUP], *between]
    taken = in_turn([partial(one.seconds, part) for part in PARTS for one in order], rounds)
    width = len(order)
    parts = {part: [row[at * width : (at + 1) * width] for row in taken] for at, part in enumerate(PARTS)}
    return [
        (one, {part: _medians(one, order, rows, baseline) for part, rows in parts.items()})
        for one in (*between, *others)
    ]


def _medians(
    one: object, order: Sequence[object], rounds: Sequence[Sequence[float]], baseline: object | None
) -> tuple[float, float | None]:
    """Seconds of a call, and their ratio over the mean of the baseline blocks on either side; 1 of the baseline."""
    places, around = ([at for at, other in enumerate(order) if other is which] for which in (one, baseline))
    taken = median(row[at] for row in rounds for at in places)
    if baseline is None:
        return taken, None
    sides = [(at, around[bisect_right(around, at) - 1], around[bisect_left(around, at)]) for at in places]
    return taken, median(2 * row[at] / (row[before] + row[after]) for row in rounds for at, before, after in sides)


def _speed(
    one: Timed,
    times: Times,
    core: Times | None,
    settings: SpeedSettings,
    length: int,
    best: dict[str, float],
) -> dict[str, Any]:
    """One mixer, or the baseline, at one length.

    Returns:
        `mixer`: its name; `length` and `batch`: L and B; of the forward pass, and with the backward pass (`both_`),
        microseconds per token (`_us`), tokens per second (`_tokens`) and time over that of the baseline, below 1 is
        faster, None without a baseline (`_ratio`); the same of attention without projections (`core_`), None where
        that was not timed; operations and bytes of both passes, counted, in 1e9 and 1e6 (`gflop`, `mbytes`);
        operations reached per second, in 1e9 (`gflops`); the least time that this process's best rates allow over the
        time that it took (`roof`), None where not all is counted; what both passes add to memory at their peak, in MiB
        (`peak_mib`); operations left out of the counts, as nobody can count them (`uncounted`).
    """
    batch, count = settings.samples(length), one.count()
    tokens, taken = batch * length, times["both"][0]
    floor = max(count.flops / 1e9 / best["gflops"], count.moved / 1e9 / best["gbytes"])
    found: dict[str, Any] = {"mixer": one.name, "length": length, "batch": batch}
    for prefix, measured in (("", times), ("core_", core)):
        for part in PARTS:
            value, ratio = measured[part] if measured else (None, None)
            found[f"{prefix}{part}_us"] = None if value is None else 1e6 * value / tokens
            found[f"{prefix}{part}_ratio"] = ratio
    return {
        **found,
        "forward_tokens": tokens / times["forward"][0],
        "both_tokens": tokens / taken,
        "gflop": count.flops / 1e9,
        "mbytes": count.moved / 1e6,
        "gflops": count.flops / 1e9 / taken,
        "roof": None if count.unknown else floor / taken,
        "peak_mib": one.memory / 2**20,
        "uncounted": list(count.unknown),
    }


def roofline(
    device: torch.device, dtype: torch.dtype, *, rounds: int = 3, size: int = 0, copied: int = 256 << 20
) -> dict[str, float]:
    """What this process reaches at best, measured now, medians over rounds after a warm-up.

    Args:
        dtype: of the matrix product.
        size: of a matrix product; 0: 2048, or 512 where the machine has no fast product of this dtype.
        copied: bytes of a copy.

    Returns:
        `gflops`: of the product, GFLOP/s; `gbytes`: of the copy, read and written, GB/s; `size`: of the product.
    """
    if not size:
        small = torch.randn(512, 512, device=device, dtype=dtype)
        size = 2048 if min(seconds(lambda: torch.mm(small, small), device) for _ in range(2)) < _FAST else 512
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    blocks = [lambda: seconds(lambda: torch.mm(a, b), device), lambda: seconds(lambda: target.copy_(source), device)]
    gemm, copy = (median(times) for times in zip(*in_turn(blocks, rounds + 1)[1:], strict=True))
    return {"gflops": 2 * size**3 / gemm / 1e9, "gbytes": 2 * copied / copy / 1e9, "size": size}


def _growth(mixers: Sequence[MixerChoice], speeds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How cost grows: exponents of L, the slopes of straight lines through the logarithms of what a sample costs.

    Returns:
        for each row of two or more lengths `mixer`; `declared`: its class of complexity; `forward`, `both`: of time;
        `flops`, `bytes`: as counted, None where not all is.
    """
    declared = {one.text: str(one.facts.complexity) for one in mixers}
    grown = []
    for name in dict.fromkeys(one["mixer"] for one in speeds):
        own = [one for one in speeds if one["mixer"] == name]
        if len(own) < 2:
            continue
        counted = not any(one["uncounted"] for one in own)
        grown.append(
            {
                "mixer": name,
                "declared": declared.get(name.removesuffix(" published"), "L^2"),
                "forward": _exponent(own, "forward_us", "length"),
                "both": _exponent(own, "both_us", "length"),
                "flops": _exponent(own, "gflop") if counted else None,
                "bytes": _exponent(own, "mbytes") if counted else None,
            }
        )
    return grown


def _exponent(speeds: Sequence[dict[str, Any]], key: str, times: str = "") -> float | None:
    """Of L in a quantity for each token (`times` "length") or for each batch; None where one is 0."""
    values = [one[key] * one["length"] if times else one[key] / one["batch"] for one in speeds]
    if min(values) <= 0:
        return None
    return linear_regression([math.log(one["length"]) for one in speeds], list(map(math.log, values))).slope


def _calibrations(
    mixers: Sequence[MixerChoice], settings: SpeedSettings, speeds: Sequence[dict[str, Any]], left_out: LeftOut
) -> list[dict[str, Any]]:
    """How much faster mixers are than their published forms.

    Returns:
        for each mixer that stood beside its form `mixer`; `calibrated`: whether the form is as fast as the authors'
        code; `measured` and `known`: time over that of torch's attention, of the form here and of the authors' code;
        `length`: where; `times`: where it is calibrated, for each length the form's time over the mixer's (`length`,
        `forward`, `both`).
    """
    found = []
    by_name = {(one["mixer"], one["length"]): one for one in speeds}
    for mixer in mixers:
        pairs = [
            (by_name.get((mixer.text, at)), by_name.get((f"{mixer.text} published", at))) for at in settings.lengths
        ]
        both = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
        if both:
            known = _calibration(mixer, settings, left_out) or _UNKNOWN
            times = [_times_faster(ours, theirs) for ours, theirs in both] if known["calibrated"] else []
            found.append({"mixer": mixer.text, **known, "times": times})
    return found


def _calibration(mixer: MixerChoice, settings: SpeedSettings, left_out: LeftOut) -> dict[str, Any] | None:
    """See `calibrate`; None where nothing is known, or it cannot be measured."""
    published = mixer.plugin.published
    if not published or not published.over_attention or (settings.device, settings.precision) != ("cpu", "fp32"):
        return None
    name, length = f"{mixer.text} published, to be calibrated", next(iter(published.over_attention))
    return left_out.attempt(name, length, partial(calibrate, mixer), strict=False)


_UNKNOWN: dict[str, Any] = {"calibrated": False, "length": None, "measured": None, "known": None}


def _times_faster(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    ratios = {}
    for part in PARTS:
        kind = "us" if ours[f"{part}_ratio"] is None else "ratio"
        ratios[part] = theirs[f"{part}_{kind}"] / ours[f"{part}_{kind}"]
    return {"length": ours["length"], **ratios}


def calibrate(mixer: MixerChoice) -> dict[str, Any]:
    """Hold the published form against what is known of the authors' code, now, at the shape where it is known.

    Returns:
        `calibrated`, `length`, `measured` and `known` of `_calibrations`.
    """
    published = mixer.plugin.published
    assert published is not None
    length, known = next(iter(published.over_attention.items()))
    config = parameters(mixer.resolved, dict(published.params))
    usual = MixerChoice(mixer.text, mixer.resolved, config, mixer.plugin.facts_of(config))
    (baseline,) = timed_attention(CALIBRATED, length)
    form = timed_published(usual, timed_mixer(usual, CALIBRATED, length), CALIBRATED, length)
    order = [baseline, form, baseline]
    taken = in_turn([partial(one.seconds, "both") for one in order], CALIBRATED.rounds)
    measured = _medians(form, order, taken, baseline)[1]
    assert measured is not None
    near = abs(measured / known - 1) <= WITHIN
    return {"calibrated": near, "length": length, "measured": measured, "known": known}
