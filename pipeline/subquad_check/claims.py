"""What a module that claims nothing could claim: found by making the checks of each claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

import torch

from subquad.errors import PluginError, SubquadError
from subquad.nn.bare import BareMixer, takes_causal, takes_mask
from subquad.plugin import Facts, MixerPlugin
from subquad.registry import build_class
from subquad.registry.faults import blamed
from subquad_check.calls import call
from subquad_check.cases import CheckCase, CheckOutcome
from subquad_check.checks import CHECKS
from subquad_check.checks.complexity import growth_of
from subquad_check.meter import ROUNDING, word
from subquad_check.subject import MAX_LEN, CheckSubject

CAUSAL = ("causal-outputs", "causal-gradients", "causal-lengths")
PADDING = ("padding-content", "padding-amount")
LEAKING = ("causal-outputs", "causal-gradients", "padding-content")
"""Checks that allow what is declared as leak, and nothing else."""


@dataclass(frozen=True)
class Claims:
    """What could be claimed.

    Attributes:
        facts: all that held.
        reasons: why the others did not, by the name of the fact.
    """

    facts: Facts
    reasons: Mapping[str, str]

    @property
    def code(self) -> str:
        """The facts as they stand in a class."""
        arguments = [
            f"{field.name}={getattr(self.facts, field.name)!r}"
            for field in fields(Facts)
            if field.name == "complexity" or getattr(self.facts, field.name) != field.default
        ]
        return f"facts = Facts({', '.join(arguments)})".replace("'", '"')


def claims_nothing(subject: CheckSubject) -> bool:
    """Whether it is a module of somebody's class without facts."""
    build = build_class(subject.resolved)
    return issubclass(build, BareMixer) and not build.claims


def refuse_unfit(subject: CheckSubject) -> None:
    """Call a bare module once, so that what does not fit at all is one line.

    Raises:
        PluginError: it cannot be built or called, or returns something else.
    """
    if not issubclass(build_class(subject.resolved), BareMixer):
        return
    mixer, x, _ = subject.case(MAX_LEN)
    label = (
        f"{subject.resolved.found} cannot be called with {word(x.dtype)} tokens {tuple(x.shape)}"
    )
    try:
        with torch.no_grad(), blamed(label, passing=(SubquadError,)):
            call(mixer, x)
    except PluginError as error:
        raise PluginError(f"{subject.resolved.found}: {error}") from None


def found_claims(subject: CheckSubject) -> Claims:
    """Make the checks of each claim as if it were made.

    Args:
        subject: a module that claims nothing.
    """
    facts = replace(subject.facts, leak=ROUNDING)
    reasons: dict[str, str] = {}
    leak = 0.0
    bare = build_class(subject.resolved).bare
    tried = (
        ("causal", "optional" if takes_causal(bare) else "always", CAUSAL),
        ("padding_invariant", True, PADDING),
        ("permutation_equivariant", True, ("permutation",)),
        ("permutation_equivariant", False, ("permutation",)),
    )
    for name, value, checks in tried:
        claimed = replace(facts, **{name: value})
        outcomes = _outcomes(subject, claimed, checks)
        *_, last = outcomes
        if last.status != "passed":
            reasons[name] = f"{last.check}: {last.detail}"
            if name == "padding_invariant" and not takes_mask(bare):
                reasons[name] += " (its forward takes no mask, so padding counts like any token)"
            continue
        facts = claimed
        reasons.pop(name, None)
        for outcome in outcomes:
            if outcome.check in LEAKING:
                leak = max(leak, outcome.figures["worst"])
        if name == "permutation_equivariant":
            break
    try:
        facts = replace(facts, complexity=growth_of(replace(subject, causal=False)))
    except SubquadError as error:
        reasons["complexity"] = str(error)
    if leak:  # a power of ten that is some times as large
        leak = 10.0 ** math.ceil(math.log10(3 * leak))
    return Claims(replace(facts, leak=leak), reasons)


def _outcomes(subject: CheckSubject, facts: Facts, names: Sequence[str]) -> list[CheckOutcome]:
    """Of some checks of a module with these facts, in each way it is built, up to the first that
    does not pass.
    """
    plugin = replace(cast(MixerPlugin, subject.resolved.plugin), facts=facts)
    resolved = replace(subject.resolved, plugin=plugin)
    # built causal or not, as far as the checks have something to see there
    ways = [names == CAUSAL]
    if names == PADDING and facts.causal != "never":
        ways.append(True)
    made = []
    for causal in ways:
        built = replace(subject, resolved=resolved, facts=facts, causal=causal)
        for check in CHECKS:
            if check.name in names:
                made.append(CheckCase(check, built).outcome())
                if made[-1].status != "passed":
                    return made
    return made
