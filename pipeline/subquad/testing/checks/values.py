"""Other parameters, widths and heads: values are within their own bounds, and claims hold there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args, get_origin

import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from torch import Tensor

from subquad.effect import default_of, effect_of, same
from subquad.errors import ConfigError, SubquadError
from subquad.experiment import parameters
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad.testing.calls import call, outputs, settled_modes
from subquad.testing.cases import compares, shows
from subquad.testing.checks.influence import padding_masks
from subquad.testing.checks.shapes import passes
from subquad.testing.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    Meter,
    NotApplicable,
)
from subquad.testing.subject import CheckSubject, named_cause

LENGTH = 21
START = 13
"""Tokens before the first step of decoding."""
AMPLIFIED = 1e-4
"""Allowed: at its bounds a parameter may enlarge rounding a lot."""
LARGE = 64
"""Whole numbers above are left out: a size of a million would be built."""


@shows("defaults and search ranges are within the parameters' own bounds")
def _parameter_bounds(subject: CheckSubject) -> Finding:
    fields = type(subject.config).model_fields
    for name, spec in fields.items():
        kind = TypeAdapter[Any](Annotated[spec.annotation, name, *spec.metadata])  # pyright: ignore
        given = {} if spec.is_required() else {"its default": default_of(spec)}
        for what, value in {**given, **_searched(spec)}.items():
            try:
                kind.validate_python(value, strict=True)
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise CheckFailed(f"{name}: {what}, {value!r}, is refused: {reason}") from None
    return Finding(f"{len(fields)} parameters")


def _searched(spec: FieldInfo) -> dict[str, Any]:
    """What a search tries, by its place there."""
    extra = spec.json_schema_extra if isinstance(spec.json_schema_extra, dict) else {}
    search: Any = extra.get("search") or {}
    ends = {f"{end} of its search": search[end] for end in ("low", "high") if end in search}
    choices = enumerate(search.get("choices", ()))
    return ends | {f"choice {i} of its search": choice for i, choice in choices}


def _is_variant(subject: CheckSubject) -> str:
    return "" if subject.variant in ("default", "given") else "of the defaults"


@compares(
    "each allowed value of a parameter, alone, keeps the claims", AMPLIFIED, excluded=_is_variant
)
def _parameter_values(subject: CheckSubject) -> Comparisons:
    """Both values of a switch, all of a list, bounds, what a search tries, the middle between two
    bounds, and one more and one less of a whole number; on short sequences.

    What a mixer refuses when it is built, it need not keep. Samples are not told apart here: a
    published form that mixes them may be a parameter, and fails where it is asked for.
    """
    broken, tried = _broken_claims(subject), 0
    for values in _other_values(subject):
        if (changed := _built_with(subject, values)) is None:
            continue
        tried += 1
        words = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        yield from _claims(changed, words, broken)
    return f"{tried} values"


@compares("other widths and heads keep the claims", excluded=_is_variant)
def _other_sizes(subject: CheckSubject) -> Comparisons:
    """One head, and more channels and heads. What cannot be built so is left alone."""
    broken, tried = _broken_claims(subject), []
    for dim, heads in (
        (subject.dim, 1),
        (2 * subject.dim, 2 * subject.num_heads),
        (12 * subject.num_heads, subject.num_heads),
    ):
        changed, words = replace(subject, dim=dim, num_heads=heads), f"width {dim}, heads {heads}"
        try:
            changed.build(dtype=torch.float64)
        except Exception:
            continue
        tried.append(words)
        yield from _claims(changed, words, broken)
    return "; ".join(tried)


def _other_values(subject: CheckSubject) -> Iterator[dict[str, Any]]:
    """Parameters with one of them changed, and what that needs in order to have an effect."""
    now = subject.config.model_dump(mode="json")
    for name, spec in type(subject.config).model_fields.items():
        known = [now[name]]
        for value in _candidates(spec, now[name]):
            if any(same(value, other) for other in known):
                continue
            known.append(value)
            yield {**_needed(type(subject.config), name, now), name: value}


def _candidates(spec: FieldInfo, now: Any) -> Iterator[Any]:
    """Values that the annotation lists, bounds, what a search tries, and some near or between."""
    bounds = _bounds(spec)
    inclusive = [value for kind, value in bounds.items() if kind in (Ge, Le)]
    for value in (*_listed(spec.annotation), *inclusive, *_searched(spec).values()):
        if not isinstance(value, int) or value <= LARGE:
            yield value
    if isinstance(now, float) and len(bounds) == 2:
        yield sum(bounds.values()) / 2
    elif isinstance(now, int) and not isinstance(now, bool):
        yield from (now - 1, now + 1)


def _bounds(spec: FieldInfo) -> dict[type, Any]:
    """What limits a number, by the kind of limit."""
    names = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt"}
    limits = [limit for limit in spec.metadata if type(limit) in names]
    return {type(limit): getattr(limit, names[type(limit)]) for limit in limits}


def _listed(annotation: Any) -> Iterator[Any]:
    if annotation is bool:
        yield from (False, True)
    elif annotation is type(None):
        yield None
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _listed(part)


def _needed(config: type, name: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """Values of other parameters with which this one has an effect, as far as they are listed."""
    conditions = effect_of(config, name)[0]
    return {
        condition.key: condition.values[0]
        for condition in conditions
        if not condition.holds(now[condition.key]) and not condition.but
    }


def _built_with(subject: CheckSubject, values: Mapping[str, Any]) -> CheckSubject | None:
    """The subject with other parameters; None where they are refused, or do not fit causality."""
    try:
        config = parameters(subject.resolved, {**subject.given, **values})
        facts = subject.resolved.plugin.facts_of(config)  # pyright: ignore
        changed = replace(subject, config=config, facts=facts)
        if facts.causal == ("never" if subject.causal else "always"):
            return None
        changed.build(dtype=torch.float64)
    except ConfigError:
        return None
    return changed


def _broken_claims(subject: CheckSubject) -> set[str]:
    """Labels of comparisons that fail with its own parameters and sizes, numbers left out: other
    checks tell these.

    Raises:
        NotApplicable: it cannot be called so.
    """
    subject.first_call()
    broken, allowed = set(), subject.at_least(ROUNDING)
    try:
        for label, got, expected in _compared(subject, "as given"):
            meter = Meter(allowed)
            meter.compare(label, got, expected)
            if meter.failed:
                broken.add(_without_numbers(label))
    except Exception as failure:
        raise NotApplicable(f"another check tells: {named_cause(failure)}") from failure
    return broken


def _without_numbers(label: str) -> str:
    return re.sub(r"\d+", "", label)


def _claims(subject: CheckSubject, words: str, broken: set[str]) -> Iterator[Comparison]:
    """Comparisons of a subject's claims.

    Args:
        words: what is special about it.
        broken: labels of those that are left out.

    Raises:
        CheckFailed: it cannot be called.
    """
    try:
        for label, *pair in _compared(subject, words):
            if _without_numbers(label) not in broken:
                yield f"{label}, {words}", *pair
    except SubquadError:
        raise
    except Exception as error:
        raise CheckFailed(f"{words}: {cause(error)}") from error


def _compared(subject: CheckSubject, words: str) -> Iterator[Comparison]:
    """Finite in both modes; deterministic in evaluation; causal, padding invariant, equivariant and
    decoding as claimed.
    """
    mixer, length = subject.build(), subject.at_most(LENGTH)
    keep = padding_masks(length)["both sides"]
    x = subject.tokens(3, length)
    for mask in (None, keep):
        passes(words, mixer, x, mask)
    with torch.no_grad():
        first, second = (call(mixer, x, keep, seed=seed).out for seed in (0, 1))
    yield "a second call in evaluation", second, first
    for mode in settled_modes(mixer, x):
        if subject.facts.padding_invariant:
            noisy = torch.where(keep[..., None], x, 3 * x.flip(1) + 1)
            expected, got = (outputs(mixer, tokens, keep) for tokens in (x, noisy))
            label = f"output at real tokens in {mode}, other content in the padding"
            yield label, got[keep], expected[keep]
        if subject.causal:
            yield from _before_cuts(mixer, x[:1], mode)
        elif subject.facts.permutation_equivariant:
            expected, got = (outputs(mixer, tokens, dropout=False) for tokens in (x, x.flip(1)))
            yield f"outputs of reversed tokens in {mode}", got.flip(1), expected
    if mixer.caches and length > 1:
        yield from _steps(mixer, x)


def _before_cuts(mixer: TokenMixer, x: Tensor, mode: str) -> Iterator[Comparison]:
    length = x.shape[1]
    cuts = torch.arange(1, length)
    same = x.expand(len(cuts), -1, -1).contiguous()
    later = torch.arange(length) >= cuts[:, None]
    expected = outputs(mixer, same)
    got = outputs(mixer, torch.where(later[..., None], 3 * same.flip(1) + 1, same))
    label = f"output before each cut in {mode}, later tokens changed"
    yield label, got[~later], expected[~later]


@torch.no_grad()
def _steps(mixer: TokenMixer, x: Tensor) -> Iterator[Comparison]:
    expected = outputs(mixer, x)
    start = min(START, x.shape[1] - 1)
    out, cache = mixer.prefill(x[:, :start].contiguous())
    yield "prefill against forward", out, expected[:, :start]
    for i in range(start, x.shape[1]):
        out, cache = mixer.step(x[:, i].contiguous(), cache)
        yield f"step {i + 1} against forward", out, expected[:, i]
