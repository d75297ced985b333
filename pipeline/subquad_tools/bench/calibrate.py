"""How fast published forms are beside the authors' own code, and mixers beside their published
forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from subquad.experiment import parameters
from subquad_tools.bench.clock import PARTS, in_turn, medians
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
        pairs = [
            (by_name.get((mixer.text, at)), by_name.get((f"{mixer.text} published", at)))
            for at in settings.lengths
        ]
        both = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
        if both:
            known = _calibration(mixer, settings, left_out) or _UNKNOWN
            times = (
                [_times_faster(ours, theirs) for ours, theirs in both]
                if known["calibrated"]
                else []
            )
            found.append({"mixer": mixer.text, **known, "times": times})
    return found


def _calibration(mixer: MixerChoice, settings: SpeedSettings, left_out: LeftOut) -> Measured | None:
    """See `calibrate`; None where nothing is known, or it cannot be measured."""
    published = mixer.plugin.published
    if (
        not published
        or not published.over_attention
        or (settings.device, settings.precision) != ("cpu", "fp32")
    ):
        return None
    name, length = f"{mixer.text} published, to be calibrated", next(iter(published.over_attention))
    return left_out.attempt(name, length, partial(calibrate, mixer), strict=False)


_UNKNOWN: Measured = {"calibrated": False, "length": None, "measured": None, "known": None}


def _times_faster(ours: Measured, theirs: Measured) -> Measured:
    ratios = {}
    for part in PARTS:
        kind = "us" if ours[f"{part}_ratio"] is None else "ratio"
        ratios[part] = theirs[f"{part}_{kind}"] / ours[f"{part}_{kind}"]
    return {"length": ours["length"], **ratios}


def calibrate(mixer: MixerChoice) -> Measured:
    """Hold the published form against what is known of the authors' code, now, at the shape where
    it is known.

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
    taken = in_turn([partial(row.seconds, "both") for row in order], CALIBRATED.rounds)
    measured = medians(form, order, taken, baseline)[1]
    assert measured is not None
    near = abs(measured / known - 1) <= WITHIN
    return {"calibrated": near, "length": length, "measured": measured, "known": known}
