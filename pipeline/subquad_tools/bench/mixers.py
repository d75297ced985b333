"""Speed of token mixers as a ratio over torch's own attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times the baseline, a few mixers,
the baseline again, a few more mixers, and so on; a mixer's ratio in a round is over the mean of the
two baseline blocks around it. What is reported are medians over rounds. The baseline is the fastest
of torch's attentions that run here; the others are rows. A mixer's published form stands beside it,
and ratios over that form are given only where it is as fast, beside torch's attention, as the
authors' own code was (`calibrate`).

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import linear_regression
from typing import Any

import click

from subquad.experiment import parameters
from subquad.nn.kernels import REFERENCE, recording, using
from subquad_tools.bench.clock import PARTS, one_thread, roofline, times_in_turn, times_longer
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
    Timed,
    timed_attention,
    timed_mixer,
    timed_published,
)


def time_mixers(
    mixers: Sequence[MixerChoice], settings: SpeedSettings, left_out: LeftOut
) -> Measured:
    """Time all mixers, and torch's attention, at all lengths.

    Args:
        mixers: what is timed beside the baseline.
        settings: how.
        left_out: gets what cannot be timed.

    Returns:
        JSON values. `settings`; `best`: see `roofline`; `mixers`: each `row` as it was asked for,
        with `mixer` and `params`; `baselines`: the fastest of torch's attentions at each length
        where one fits; `speeds`: see `_speed`, by length, then the baseline, torch's other
        attentions and the mixers in their order, each before its published form; `slower`: see
        `_slower`; `growth`: see `_growth`; `published`: see `_calibrations`; `skipped`: what was
        not timed, and why.

    Raises:
        SubquadError: a mixer cannot be built or called so, or its outputs are not finite.
    """
    found: Measured = {
        "settings": settings.model_dump(),
        "baselines": {},
        "speeds": [],
        "slower": [],
    }
    with measuring(settings) as found["best"]:
        for length in lengths_of(settings):
            _at(length, mixers, settings, left_out, found)
        published = _calibrations(mixers, settings, found["speeds"], left_out)
    return {
        **found,
        "mixers": [
            {"row": mixer.text, "mixer": mixer.resolved.found.name, "params": mixer.params}
            for mixer in mixers
        ],
        "growth": _growth(mixers, found["speeds"]),
        "published": published,
        "skipped": left_out.lines,
    }


@contextmanager
def measuring(settings: SpeedSettings) -> Iterator[dict[str, Any]]:
    """One thread and as much memory as there is; what the process reaches at best (`roofline`)."""
    gc.collect()
    device = torch_device(settings.device)
    with one_thread(), memory_bounded(device):
        yield roofline(device, DTYPES[settings.precision])


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
    found: Measured,
) -> None:
    """Add everything at one length."""
    rows = timed_attention(settings, length, left_out)
    baseline = rows.pop(0) if rows else None
    if baseline:
        found["baselines"][length] = baseline.name
    for mixer in mixers:
        with left_out.noting(mixer.text, length):
            own = timed_mixer(mixer, settings, length)
            rows.append(own)
            if not mixer.kernels:
                found["slower"] += _slower(own, settings, length, left_out)
            if settings.published and mixer.plugin.published and not settings.core:
                with left_out.noting(f"{mixer.text} published", length, strict=False):
                    rows.append(timed_published(mixer, own, settings, length))
    batch = settings.samples(length)
    for row, times in times_in_turn(baseline, rows, settings.rounds).items():
        count = row.count()
        found["speeds"].append(
            {
                "mixer": row.name,
                "length": length,
                "batch": batch,
                **row.measured(times, count, found["best"], batch * length),
                "mbytes": count.moved / 1e6,
                "uncounted": list(count.unknown),
            }
        )


def _slower(
    own: Timed, settings: SpeedSettings, length: int, left_out: LeftOut
) -> Iterator[Measured]:
    """Where another implementation makes the mixer faster than the one that runs by itself.

    Each that may run by itself, and takes the arguments, is forced in turn with the chosen one.

    Returns:
        `mixer`, `length`, `operation`; `chosen`; `faster`: the other; `times`: see `times_longer`.
    """
    with using() as ran, recording() as calls:
        own.ends()
    forms = []
    for operation in dict.fromkeys(operation for operation, *_ in calls):
        for form in operation.implementations:
            takes = [form.takes(*args, **kw) for called, args, kw in calls if called is operation]
            if all(takes) and form.name not in ran[operation.name].split(", "):
                forms.append((operation.name, form.name))
            if form.name == REFERENCE:
                break
    calls.clear()  # and what they hold
    others = {}
    for operation, name in forms:
        with left_out.noting(f"{own.name} by {name}", length, strict=False):
            other = Timed(
                own.name, own.module, settings, length, partial(using, {operation: name})
            ).warm_up()
            others[other] = {"operation": operation, "chosen": ran[operation], "faster": name}
    times = times_in_turn(own, list(others), settings.rounds, ["both"])
    for other, names in others.items():
        longer = times_longer(times[own], times[other])
        if longer:
            yield {"mixer": own.name, "length": length, **names, "times": longer}


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
        lengths = [speed["length"] for speed in own]
        counted = not any(speed["uncounted"] for speed in own)
        row: Measured = {
            "mixer": name,
            "declared": declared.get(name.removesuffix(" published"), "L^2"),
        }
        for part in PARTS:
            row[part] = _exponent(lengths, [speed[f"{part}_us"] for speed in own]) + 1
        for kind, key in {"flops": "gflop", "bytes": "mbytes"}.items():
            costs = [speed[key] / speed["batch"] for speed in own]
            row[kind] = _exponent(lengths, costs) if counted and min(costs) > 0 else None
        grown.append(row)
    return grown


def _exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """Of L in the cost of a sample."""
    return linear_regression(list(map(math.log, lengths)), list(map(math.log, costs))).slope


CALIBRATED = SpeedSettings(dim=128, heads=2, tokens=8192, rounds=9)
"""Where the speed of the authors' code is known: `plugin.Published.over_attention`."""

WITHIN = 0.15
"""A published form may be so much faster or slower than the authors' code, beside torch's
attention.
"""

_UNKNOWN: Measured = {"calibrated": False, "length": None, "measured": None, "known": None}


def _calibrations(
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    speeds: Sequence[Measured],
    left_out: LeftOut,
) -> list[Measured]:
    """How much faster mixers are than their published forms.

    Returns:
        for each mixer that stood beside its form `mixer`; `calibrated`: whether the form is as fast
        as the authors' code; `measured` and `known`: time over that of torch's attention, of the
        form here and of the authors' code; `length`: where; `times`: where it is calibrated, for
        each length the form's time over the mixer's (`length`, `forward`, `both`).
    """
    found = []
    by_name = {(speed["mixer"], speed["length"]): speed for speed in speeds}
    is_usual = (settings.device, settings.precision) == ("cpu", "fp32")
    for mixer in mixers:
        name = f"{mixer.text} published"
        times = [
            _times_faster(by_name[mixer.text, length], by_name[name, length])
            for length in settings.lengths
            if {(mixer.text, length), (name, length)} <= by_name.keys()
        ]
        if not times:
            continue
        known = _UNKNOWN
        published = mixer.plugin.published
        if published and published.over_attention and is_usual:
            length = next(iter(published.over_attention))
            with left_out.noting(f"{name}, to be calibrated", length, strict=False):
                known = calibrate(mixer, left_out)
        found.append({"mixer": mixer.text, **known, "times": times if known["calibrated"] else []})
    return found


def _times_faster(ours: Measured, theirs: Measured) -> Measured:
    kind = "us" if ours["both_ratio"] is None else "ratio"
    return {
        "length": ours["length"],
        **{part: theirs[f"{part}_{kind}"] / ours[f"{part}_{kind}"] for part in PARTS},
    }


def calibrate(mixer: MixerChoice, left_out: LeftOut) -> Measured:
    """Hold the published form against what is known of the authors' code, now, at the shape where
    it is known.

    Returns:
        `calibrated`, `length`, `measured` and `known` of `_calibrations`.
    """
    published = mixer.plugin.published
    assert published is not None
    length, known = next(iter(published.over_attention.items()))
    usual = replace(mixer, config=parameters(mixer.resolved, dict(published.params)))
    baseline, *_ = timed_attention(CALIBRATED, length, left_out)
    form = timed_published(usual, timed_mixer(usual, CALIBRATED, length), CALIBRATED, length)
    measured = times_in_turn(baseline, [form], CALIBRATED.rounds, ["both"])[form]["both"].ratio
    assert measured is not None
    return {
        "calibrated": abs(measured / known - 1) <= WITHIN,
        "length": length,
        "measured": measured,
        "known": known,
    }
