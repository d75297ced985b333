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
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from statistics import linear_regression, median

import click
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
) -> Measured:
    """Time all mixers, and the baseline, at all lengths.

    Args:
        mixers: what is timed beside the baseline.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.

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
    left_out = LeftOut(skipped, strict)
    speeds: list[Measured] = []
    gc.collect()
    with one_thread(), memory_bounded(device):
        best = roofline(device, DTYPES[settings.precision])
        for length in lengths_of(settings):
            speeds += _at(length, mixers, settings, left_out, best)
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


def lengths_of(settings: SpeedSettings) -> Iterator[int]:
    """Each length; a line for whoever waits at a terminal when it is done."""
    for length in settings.lengths:
        yield length
        if sys.stderr.isatty():
            click.echo(f"length {length}: done", err=True)


def _at(
    length: int,
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    left_out: LeftOut,
    best: dict[str, float],
) -> list[Measured]:
    """Everything at one length."""
    baseline = None
    rows: list[Timed] = []
    with left_out.noting(BASELINE, length):
        baseline, *rows = timed_attention(settings, length)
    for mixer in mixers:
        name = mixer.text
        with left_out.noting(name, length):
            own = timed_mixer(mixer, settings, length)
            rows.append(own)
            if settings.published and mixer.plugin.published:
                with left_out.noting(f"{name} published", length, strict=False):
                    rows.append(timed_published(mixer, own, settings, length))
    core = baseline and baseline.core
    core_times = times_in_turn(core, [row.core for row in rows if row.core], settings.rounds)
    times = times_in_turn(baseline, rows, settings.rounds)
    speeds = []
    for row, taken in times.items():
        core = row.core
        speeds.append(_speed(row, taken, core and core_times[core], settings, length, best))
    return speeds


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
    batch = settings.samples(length)
    tokens = batch * length
    found: Measured = {"mixer": row.name, "length": length, "batch": batch}
    for prefix, measured in {"": times, "core_": core}.items():
        for part in PARTS:
            microseconds = ratio = None
            if measured:
                taken, ratio = measured[part]
                microseconds = 1e6 * taken / tokens
            found[f"{prefix}{part}_us"] = microseconds
            found[f"{prefix}{part}_ratio"] = ratio
    forward, _ = times["forward"]
    both, _ = times["both"]
    count = row.count()
    gflop = count.flops / 1e9
    mbytes = count.moved / 1e6
    floor = max(gflop / best["gflops"], mbytes / 1e3 / best["gbytes"])
    return {
        **found,
        "forward_tokens": tokens / forward,
        "both_tokens": tokens / both,
        "gflop": gflop,
        "mbytes": mbytes,
        "gflops": gflop / both,
        "roof": None if count.unknown else floor / both,
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
    draw = partial(torch.randn, device=device, dtype=dtype)
    if not size:
        small = draw(512, 512)
        multiply = partial(torch.mm, small, small)
        tried = [seconds(multiply, device) for _ in range(2)]
        size = 2048 if min(tried) < _FAST else 512
    multiply = partial(torch.mm, draw(size, size), draw(size, size))
    source = torch.ones(copied // 4, device=device)
    copy_all = partial(torch.empty_like(source).copy_, source)
    blocks = [
        partial(seconds, multiply, device),
        partial(seconds, copy_all, device),
    ]
    products, copies = zip(*in_turn(blocks, rounds + 1)[1:], strict=True)
    product = median(products)
    copy = median(copies)
    return {
        "gflops": 2 * size**3 / product / 1e9,
        "gbytes": 2 * copied / copy / 1e9,
        "size": size,
    }


def _growth(mixers: Sequence[MixerChoice], speeds: Sequence[Measured]) -> list[Measured]:
    """How cost grows: exponents of L, the slopes of straight lines through the logarithms of what a
    sample costs.

    Returns:
        for each row of two or more lengths `mixer`; `declared`: its class of complexity; `forward`,
        `both`: of time; `flops`, `bytes`: as counted, None where not all is.
    """
    declared = {mixer.text: mixer.facts.complexity or "not claimed" for mixer in mixers}
    by_name: dict[str, list[Measured]] = {}
    for speed in speeds:
        by_name.setdefault(speed["mixer"], []).append(speed)
    grown = []
    for name, own in by_name.items():
        if len(own) < 2:
            continue
        plain_name = name.removesuffix(" published")
        row: Measured = {"mixer": name, "declared": declared.get(plain_name, "L^2")}
        for part in PARTS:
            key = f"{part}_us"
            row[part] = _exponent(own, [speed[key] * speed["length"] for speed in own])
        is_uncounted = any(speed["uncounted"] for speed in own)
        for kind, key in {"flops": "gflop", "bytes": "mbytes"}.items():
            costs = [speed[key] / speed["batch"] for speed in own]
            row[kind] = None
            if not is_uncounted:
                row[kind] = _exponent(own, costs)
        grown.append(row)
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
    ratios = []
    for speed in speeds:
        length = speed["length"]
        if length not in bases or speed["mixer"] == name:
            continue
        base = bases[length]
        row = {
            "mixer": speed["mixer"],
            "length": length,
            "speed": base["both_us"] / speed["both_us"],
            "memory": speed["peak_mib"] / base["peak_mib"],
        }
        ratios.append(row)
    return ratios


def _exponent(speeds: Sequence[Measured], costs: Sequence[float]) -> float | None:
    """Of L in the cost of a sample; None where one is 0."""
    if min(costs) <= 0:
        return None
    x = [math.log(speed["length"]) for speed in speeds]
    return linear_regression(x, [math.log(cost) for cost in costs]).slope
