"""Other parameters, widths and heads: values are within their own bounds, and claims hold there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, get_args, get_origin

import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.plugin.effect import default_of, effect_of, extra_of, same
from subquad.registry.faults import cause
from subquad_check.calls import Form, alike, call, decoded, outputs, passes, settled_modes
from subquad_check.cases import compares
from subquad_check.checks.influence import before_cuts
from subquad_check.checks.samples import other_padding, padding_masks
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Meter,
    NotApplicable,
)
from subquad_check.subject import CheckSubject, named_cause

LENGTH = 21
START = 13
"""Tokens before the first step of decoding."""
AMPLIFIED = 1e-4
"""Allowed: at its bounds a parameter may enlarge rounding a lot."""
LARGE = 64
"""Whole numbers above are left out: a size of a million would be built."""


def _searched(spec: FieldInfo) -> dict[str, Any]:
    """What a search tries, by its place there."""
    search = extra_of(spec).get("search") or {}
    tried = {f"{end} of its search": search[end] for end in ("low", "high") if end in search}
    for i, choice in enumerate(search.get("choices", ())):
        tried[f"choice {i} of its search"] = choice
    return tried


def _is_variant(subject: CheckSubject) -> str:
    return "" if subject.variant in ("default", "given") else "of the defaults"


@compares(
    "each allowed value of a parameter, alone, keeps the claims", AMPLIFIED, excluded=_is_variant
)
def _parameter_values(subject: CheckSubject) -> Comparisons:
    """Both values of a switch, all of a list, bounds, what a search tries, and between two bounds
    the middle, and one more and one less of a whole number; on short sequences.

    What a mixer refuses when it is built, it need not keep. Samples are not told apart here: a
    published form that mixes them may be a parameter, and fails where it is asked for.

    Raises:
        CheckFailed: a default or a search range is not within the parameter's own bounds.
    """
    for name, spec in type(subject.config).model_fields.items():
        kind = TypeAdapter[Any](Annotated[spec.annotation, name, *spec.metadata])  # pyright: ignore
        given = _searched(spec)
        if not spec.is_required():
            given["its default"] = default_of(spec)
        for what, value in given.items():
            try:
                kind.validate_python(value, strict=True)
            except ValidationError as error:
                raise CheckFailed(
                    f"{name}: {what}, {value!r}, is refused: {error.errors()[0]['msg']}"
                ) from None
    _check_own(subject)
    tried = 0
    for values in other_values(subject):
        other = built_with(subject, values)
        if other is None:
            continue
        tried += 1
        words = ", ".join([f"{name} = {value!r}" for name, value in values.items()])
        yield from _claims(other, words)
    return f"{tried} values"


@compares("other widths and heads keep the claims", excluded=_is_variant)
def _other_sizes(subject: CheckSubject) -> Comparisons:
    """One head, and more channels and heads. What cannot be built so is left alone."""
    _check_own(subject)
    tried = []
    dim = subject.dim
    heads = subject.num_heads
    for width, number in ((dim, 1), (2 * dim, 2 * heads), (12 * heads, heads)):
        other = subject.altered(dim=width, num_heads=number)
        try:
            other.build(dtype=subject.dtype)
        except Exception:
            continue
        words = f"width {width}, heads {number}"
        tried.append(words)
        yield from _claims(other, words)
    return "; ".join(tried)


def other_values(subject: CheckSubject) -> Iterator[dict[str, Any]]:
    """Parameters with one of them changed, and what that needs in order to have an effect."""
    config = type(subject.config)
    now = subject.config.model_dump(mode="json")
    for name, spec in config.model_fields.items():
        known = [now[name]]
        # values of other parameters with which this one has an effect, as far as they are listed
        conditions, *_ = effect_of(config, name)
        needed = {
            condition.key: condition.values[0]
            for condition in conditions
            if not condition.holds(now[condition.key]) and not condition.but
        }
        for value in _candidates(spec, now[name]):
            if not any(same(value, other) for other in known):
                known.append(value)
                yield {**needed, name: value}


def _candidates(spec: FieldInfo, now: Any) -> Iterator[Any]:
    """What the annotation lists, bounds, what a search tries, and some between two bounds."""
    bounds = []
    values = [*_listed(spec.annotation), *_searched(spec).values()]
    for limit in spec.metadata:
        if isinstance(limit, (Ge, Gt, Le, Lt)):
            bounds += asdict(limit).values()
        if isinstance(limit, (Ge, Le)):
            values.append(bounds[-1])
    for value in values:
        if not isinstance(value, int) or value <= LARGE:
            yield value
    if len(bounds) == 2 and isinstance(now, float):
        yield sum(bounds) / 2
    elif len(bounds) == 2 and isinstance(now, int):
        yield from (now - 1, now + 1)


def _listed(annotation: Any) -> Iterator[Any]:
    """Those of a switch, of a list of choices, and None; not of what takes any number or word."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    kinds = get_args(annotation) or (annotation,)
    if type(None) in kinds:
        yield None
    if {*kinds} <= {bool, type(None)}:
        yield from (False, True)
    for kind in kinds:
        if get_args(kind):
            yield from _listed(kind)


def built_with(subject: CheckSubject, values: Mapping[str, Any]) -> CheckSubject | None:
    """The subject with other parameters; None where they are refused, or do not fit causality."""
    from subquad.experiment import parameters

    plugin: Any = subject.resolved.plugin
    try:
        config = parameters(subject.resolved, {**subject.given, **values})
        facts = plugin.facts_of(config)
        if facts.causal == ("never" if subject.causal else "always"):
            return None
        other = replace(subject, config=config, facts=facts)
        other.build(dtype=subject.dtype)
    except SubquadError as error:
        if isinstance(error, ConfigError) or isinstance(error.__cause__, _REFUSALS):
            return None
        raise
    return other


_REFUSALS = (ValueError, AssertionError)
"""With which constructors refuse a value."""


def _check_own(subject: CheckSubject) -> None:
    """With its own parameters and sizes.

    Raises:
        NotApplicable: a claim does not hold there, which other checks tell.
    """
    subject.first_call(subject.dtype)
    meter = Meter(subject.at_least(ROUNDING))
    try:
        meter.compare_all(_compared(subject, "as given"))
        meter.finding()
    except Exception as failure:
        raise NotApplicable(f"another check tells: {named_cause(failure)}") from failure


def _claims(subject: CheckSubject, words: str) -> Iterator[Comparison]:
    """Comparisons of a subject's claims, none where its call refuses in words.

    Args:
        words: what is special about it.

    Raises:
        CheckFailed: it cannot be called.
    """
    try:
        for label, *tensors in _compared(subject, words):
            yield f"{label}, {words}", *tensors
    except SubquadError as error:
        if not isinstance(error, PluginError):
            raise
    except Exception as error:
        raise CheckFailed(f"{words}: {cause(error)}") from error


def _compared(subject: CheckSubject, words: str) -> Iterator[Comparison]:
    """Finite in both modes; deterministic in evaluation; causal, padding invariant, equivariant and
    decoding as claimed.
    """
    mixer = subject.build()
    length = subject.at_most(LENGTH)
    x = subject.tokens(3, length)
    keep = padding_masks(length)["both sides"]
    for mask in (None, keep):
        passes(words, mixer, x, mask)
    with torch.no_grad():
        first, second = (call(mixer, x, keep, seed=seed).out for seed in (0, 1))
    yield "a second call in evaluation", second, first
    if subject.facts.padding_invariant:
        yield from alike(mixer, x, keep, other_padding(x, keep), about=", other padding")
        around = {"with padding around it": Form(x, keep, (slice(2, 3), keep[2]))}
        yield from alike(mixer, x[2:, keep[2]], None, around, dropout=False)
    if subject.causal:
        cuts = range(1, length)
        batch = x[:1].repeat(len(cuts), 1, 1)
        for mode in settled_modes(mixer, x):
            yield from before_cuts(mixer, batch, None, cuts, outputs(mixer, batch), mode)
    elif subject.facts.permutation_equivariant:
        order = torch.arange(length).flip(0)
        turned = {"of reversed tokens": Form(x[:, order], plain=(slice(None), order))}
        yield from alike(mixer, x, None, turned, dropout=False)
    if mixer.caches and length > 1:
        yield "outputs of decoding", decoded(mixer, x, min(START, length - 1)), outputs(mixer, x)
