"""Speed of token mixers as a ratio over torch's own attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times the baseline, a few mixers,
the baseline again, a few more mixers, and so on; a mixer's ratio in a round is over the mean of the
two baseline blocks around it. What is reported are medians over rounds. A mixer's published form
stands beside it, and ratios over that form are given only where it is as fast, beside torch's
attention, as the authors' own code was (`calibrate`).

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from statistics import linear_regression, median

import torch

from subquad_tools.bench.calibrate import calibrations
from subquad_tools.bench.clock import PARTS, Times, in_turn, one_thread, seconds, times_in_turn
from subquad_tools.bench.memory import memory_bounded
from subquad_tools.bench.rows import (
    DTYPES,
    LeftOut,
    Measured,
    MixerChoice,
    SpeedSettings,
    torch_device,
)
from subquad_tools.bench.timed import (
    BASELINE,
    Timed,
    timed_attention,
    timed_mixer,
    timed_published,
)

_FAST = 0.1
"""Seconds: a matrix product of size 512 that takes longer is made of a CPU's slow instructions."""


def time_mixers(
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    *,
    skipped: Sequence[str] = (),
    strict: bool = True,
    done: Callable[[int], None] = lambda length: None,
) -> Measured:
    """Time all mixers, and the baseline, at all lengths.

    Args:
        mixers: what is timed beside the baseline.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.
        done: called after each length.

    Returns:
        JSON values. `settings`; `best`: see `roofline`; `mixers`: each `row` as it was asked for,
        with `mixer` and `params`; `speeds`: see `_speed`, by length, then the baseline and the
        mixers in their order, each before its published form; `growth`: see `_growth`; `over`: see
        `_over`; `published`: see `calibrations`; `skipped`: what was not timed, and why, memory
        that ran out included.

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
        published = calibrations(mixers, settings, speeds, left_out)
    rows = [
        {"row": mixer.text, "mixer": mixer.resolved.found.name, "params": mixer.params}
        for mixer in mixers
    ]
    return {
        "settings": asdict(settings),
        "best": best,
        "mixers": rows,
        "speeds": speeds,
        "growth": _growth(mixers, speeds),
        "over": _over(settings.over, speeds),
        "published": published,
        "skipped": left_out.lines + left_out.too_large(speeds),
    }


def _at(
    length: int,
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    left_out: LeftOut,
    best: dict[str, float],
) -> list[Measured]:
    """Everything at one length."""
    attention = left_out.attempt(BASELINE, length, lambda: timed_attention(settings, length)) or []
    others = attention[1:]
    for mixer in mixers:
        own = left_out.attempt(mixer.text, length, partial(timed_mixer, mixer, settings, length))
        others += [own] if own else []
        if own and settings.published and mixer.plugin.published:
            name, make = (
                f"{mixer.text} published",
                partial(timed_published, mixer, own, settings, length),
            )
            form = left_out.attempt(name, length, make, strict=False)
            others += [form] if form else []
    baseline = attention[0] if attention else None
    cores = times_in_turn(
        baseline and baseline.core, [other.core for other in others if other.core], settings.rounds
    )
    times = times_in_turn(baseline, others, settings.rounds)
    by_name = {row.name: core for row, core in cores}
    return [
        _speed(time, found, by_name.get(time.name), settings, length, best) for time, found in times
    ]


def _speed(
    row: Timed,
    times: Times,
    core: Times | None,
    settings: SpeedSettings,
    length: int,
    best: dict[str, float],
) -> Measured:
    """One mixer, or the baseline, at one length.

    Returns:
        `mixer`: its name; `length` and `batch`: L and B; of the forward pass, and with the backward
        pass (`both_`), microseconds per token (`_us`), tokens per second (`_tokens`) and time over
        that of the baseline, below 1 is faster, None without a baseline (`_ratio`); the same of
        attention without projections (`core_`), None where that was not timed; operations and bytes
        of both passes, counted, in 1e9 and 1e6 (`gflop`, `mbytes`); operations reached per second,
        in 1e9 (`gflops`); the least time that this process's best rates allow over the time that it
        took (`roof`), None where not all is counted; what both passes add to memory at their peak,
        in MiB (`peak_mib`); operations left out of the counts, as nobody can count them
        (`uncounted`).
    """
    batch, count = settings.samples(length), row.count()
    tokens, taken = batch * length, times["both"][0]
    floor = max(count.flops / 1e9 / best["gflops"], count.moved / 1e9 / best["gbytes"])
    found: Measured = {"mixer": row.name, "length": length, "batch": batch}
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
        "peak_mib": row.memory / 2**20,
        "uncounted": list(count.unknown),
    }


def roofline(
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int = 3,
    size: int = 0,
    copied: int = 256 << 20,
) -> dict[str, float]:
    """What this process reaches at best, measured now, medians over rounds after a warm-up.

    Args:
        dtype: of the matrix product.
        size: of a matrix product; 0: 2048, or 512 where the machine has no fast product of this
            dtype.
        copied: bytes of a copy.

    Returns:
        `gflops`: of the product, GFLOP/s; `gbytes`: of the copy, read and written, GB/s; `size`: of
            the product.
    """
    if not size:
        small = torch.randn(512, 512, device=device, dtype=dtype)
        size = (
            2048
            if min(seconds(lambda: torch.mm(small, small), device) for _ in range(2)) < _FAST
            else 512
        )
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    blocks = [
        lambda: seconds(lambda: torch.mm(a, b), device),
        lambda: seconds(lambda: target.copy_(source), device),
    ]
    gemm, copy = (median(times) for times in zip(*in_turn(blocks, rounds + 1)[1:], strict=True))
    return {"gflops": 2 * size**3 / gemm / 1e9, "gbytes": 2 * copied / copy / 1e9, "size": size}


def _growth(mixers: Sequence[MixerChoice], speeds: Sequence[Measured]) -> list[Measured]:
    """How cost grows: exponents of L, the slopes of straight lines through the logarithms of what a
    sample costs.

    Returns:
        for each row of two or more lengths `mixer`; `declared`: its class of complexity; `forward`,
        `both`: of time; `flops`, `bytes`: as counted, None where not all is.
    """
    declared = {mixer.text: mixer.facts.complexity or "not claimed" for mixer in mixers}
    grown = []
    for name in dict.fromkeys(speed["mixer"] for speed in speeds):
        own = [speed for speed in speeds if speed["mixer"] == name]
        if len(own) < 2:
            continue
        counted = not any(core["uncounted"] for core in own)
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


def _over(name: str, speeds: Sequence[Measured]) -> list[Measured]:
    """What tables of speed and memory print: both of a row over those of another one.

    Args:
        name: the other row.

    Returns:
        for each row at each length `mixer`, `length`; `speed`: how many times as fast, forward and
        backward; `memory`: its peak over the other's. Nothing where the other was not timed.
    """
    bases = {speed["length"]: speed for speed in speeds if speed["mixer"] == name}
    return [
        {
            "mixer": speed["mixer"],
            "length": speed["length"],
            "speed": bases[speed["length"]]["both_us"] / speed["both_us"],
            "memory": speed["peak_mib"] / bases[speed["length"]]["peak_mib"],
        }
        for speed in speeds
        if speed["length"] in bases and speed["mixer"] != name
    ]


def _exponent(speeds: Sequence[Measured], key: str, times: str = "") -> float | None:
    """Of L in a quantity for each token (`times` "length") or for each batch; None where one is
    0.
    """
    values = [
        speed[key] * speed["length"] if times else speed[key] / speed["batch"] for speed in speeds
    ]
    if min(values) <= 0:
        return None
    return linear_regression(
        [math.log(speed["length"]) for speed in speeds], list(map(math.log, values))
    ).slope
