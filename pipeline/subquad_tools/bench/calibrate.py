"""How fast published forms are beside the authors' own code, and mixers beside their published
forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from subquad.experiment import parameters
from subquad_tools.bench.clock import PARTS, times_in_turn
from subquad_tools.bench.rows import LeftOut, Measured, MixerChoice, SpeedSettings
from subquad_tools.bench.timed import timed_attention, timed_mixer, timed_published

CALIBRATED = SpeedSettings(dim=128, heads=2, tokens=8192, rounds=9)
"""Where the speed of the authors' code is known: `plugin.Published.over_attention`."""

WITHIN = 0.15
"""A published form may be so much faster or slower than the authors' code, beside torch's
attention.
"""


def calibrations(
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
    for mixer in mixers:
        times = []
        for length in settings.lengths:
            ours = by_name.get((mixer.text, length))
            theirs = by_name.get((f"{mixer.text} published", length))
            if ours and theirs:
                times.append(_times_faster(ours, theirs))
        if times:
            known = _calibration(mixer, settings, left_out)
            if not known["calibrated"]:
                times = []
            found.append({"mixer": mixer.text, **known, "times": times})
    return found


def _calibration(mixer: MixerChoice, settings: SpeedSettings, left_out: LeftOut) -> Measured:
    """See `calibrate`; `_UNKNOWN` where nothing is known, or it cannot be measured."""
    published = mixer.plugin.published
    is_usual = (settings.device, settings.precision) == ("cpu", "fp32")
    if published and published.over_attention and is_usual:
        length = next(iter(published.over_attention))
        with left_out.noting(f"{mixer.text} published, to be calibrated", length, strict=False):
            return calibrate(mixer, left_out)
    return _UNKNOWN


_UNKNOWN: Measured = {"calibrated": False, "length": None, "measured": None, "known": None}


def _times_faster(ours: Measured, theirs: Measured) -> Measured:
    kind = "us" if ours["both_ratio"] is None else "ratio"
    times = {part: theirs[f"{part}_{kind}"] / ours[f"{part}_{kind}"] for part in PARTS}
    return {"length": ours["length"], **times}


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
    times = times_in_turn(baseline, [form], CALIBRATED.rounds, ["both"])
    measured = times[form]["both"].ratio
    assert measured is not None
    return {
        "calibrated": abs(measured / known - 1) <= WITHIN,
        "length": length,
        "measured": measured,
        "known": known,
    }
