"""The parameters of a plugin: a schema, its fields, and what is refused as having no effect."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from subquad.plugin.effect import (
    When,
    as_written,
    conditions_of,
    default_of,
    effect_of,
    extra_of,
    same,
    unmet_conditions,
)


class Misfit(ValueError):
    """Parameters that do not fit each other, or where they stand. A validator of a `Config`, or
    `MixerConfig.check`, may raise any ValueError; this one tells a refusal which line to name.

    Attributes:
        names: the fields that it is about.
    """

    def __init__(self, message: str, *names: str):
        super().__init__(message)
        self.names = names


class Config(BaseModel):
    """Base of every plugin's parameters: frozen, strict, unknown keys forbidden.

    One schema feeds `subquad show`, config errors, search spaces and the docs, so declare fields
    with `param`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name in cls.model_fields:
            effect_of(cls, name)  # refuses conditions on what is no field, and circles

    @model_validator(mode="after")
    def _every_setting_has_an_effect(self) -> Self:
        values = dict(self)
        for name in type(self).model_fields:
            unmet = unmet_conditions(type(self), name, values)
            if unmet and not self.is_default(name):
                met = dict.fromkeys(
                    f"{condition.key} {as_written(values[condition.key])}" for condition in unmet
                )
                message = self.no_effect(name, " and ".join(met), " or ".join(map(str, unmet)))
                raise Misfit(message, name, *(condition.key for condition in unmet))
        return self

    def is_default(self, name: str) -> bool:
        """Whether a field has the value that it has when none is given."""
        spec = type(self).model_fields[name]
        return not spec.is_required() and same(getattr(self, name), default_of(spec))

    def no_effect(self, name: str, where: str, instead: str = "") -> str:
        """One line that refuses a field without effect; for limits that no `when` can say, as those
        of a `Site`.

        Args:
            name: the field, which is not at its default.
            where: what takes its effect away.
            instead: what gives it one; "" where nothing short does.
        """
        default = default_of(type(self).model_fields[name])
        message = (
            f"{name} {as_written(getattr(self, name))} has no effect with {where}: "
            f"leave it at {as_written(default)}"
        )
        if instead:
            return f"{message}, or use {instead}"
        return message


@dataclass(frozen=True)
class Range:
    """What a search may vary a number over.

    Attributes:
        low: smallest value, included.
        high: largest value, included.
        log: whether equal ratios, not equal differences, are equally likely.
    """

    low: float
    high: float
    log: bool = False


def param(
    default: Any = ...,
    *,
    meaning: str,
    symbol: str | None = None,
    unit: str | None = None,
    search: Sequence[Any] | Range | None = None,
    when: When | Sequence[When] | None = None,
    path: bool = False,
    **limits: Any,
) -> Any:
    """A field of a `Config`.

    Args:
        default: the value when the user gives none; leave out for a required parameter.
        meaning: one line for `subquad show` and the docs.
        symbol: the paper's symbol.
        unit: the unit, where there is one.
        search: what a search may sensibly try: a list of choices, or a `Range`. A field without one
            is not searched.
        when: what other fields must be for this one to have an effect: `{"basis": ("jacobi",)}` or
            `{"order": Not(0)}`. All that a mapping names must hold, and of several mappings one. A
            field without effect gives none to others. Where it has none, any value but the default
            is refused, and a search leaves it alone.
        path: the value is a path; a relative one is taken from the caller's working directory, not
            the worker's.
        limits: pydantic's constraints: ge, gt, le, lt, min_length, ...
    """
    tried = asdict(search) if isinstance(search, Range) else search and {"choices": list(search)}
    extra = {
        "symbol": symbol,
        "unit": unit,
        "search": tried,
        "when": conditions_of(when),
        "path": path,
    }
    kept = {key: value for key, value in extra.items() if value}
    return Field(default, description=meaning, json_schema_extra=kept or None, **limits)


def inherited(base: type[Config], name: str, *, when: When | Sequence[When]) -> Any:
    """A field of another `Config` as it is there, but with a `when` of its own."""
    spec = copy(base.model_fields[name])
    spec.json_schema_extra = {**extra_of(spec), "when": conditions_of(when)}  # pyright: ignore[reportAttributeAccessIssue]
    return spec
