"""A parameter schema as rows: what `subquad show` and the docs print."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_SIGNS = {
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "multiple_of": "multiple of",
    "min_length": "length >=",
    "max_length": "length <=",
    "pattern": "matches",
}
_UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter.

    Attributes:
        name: dotted where schemas nest.
        symbol: the paper's symbol, "" where it has none.
        type: "int", "float or null", "ddp | fsdp2", ...
        range: limits, "" where there are none.
        default: the value when none is given; None also where one must be.
        required: whether a value must be given.
        search: what a search may try, {"choices": [...]} or {"low", "high", "log"}; None where it
            is not searched.
        when: what other parameters must be for it to have an effect, in words; "" where it always
            has one.
        unit: "" where it has none.
        meaning: one line.
    """

    name: str
    symbol: str
    type: str
    range: str
    default: Any
    required: bool
    search: dict[str, Any] | None
    when: str
    unit: str
    meaning: str

    @property
    def search_text(self) -> str:
        """What a search may try, in a few words."""
        if self.search is None:
            return ""
        if "choices" in self.search:
            return ", ".join(map(str, self.search["choices"]))
        return (
            f"{self.search['low']:g} to "
            f"{self.search['high']:g}{', log scale' if self.search['log'] else ''}"
        )

    @property
    def default_text(self) -> str:
        """The default as it would stand in an experiment file."""
        if self.required:
            return "required"
        return json.dumps(self.default, default=str)


def describe_config(config: type[BaseModel]) -> list[ParameterRow]:
    """The parameters of a schema in order; those of nested schemas under dotted names."""
    return list(_rows(config, "", ()))


def _rows(config: type[BaseModel], prefix: str, above: tuple[type, ...]) -> Iterator[ParameterRow]:
    for name, field in config.model_fields.items():
        nested = [model for model in models_below(field) if model not in (*above, config)]
        for model in nested:
            yield from _rows(model, f"{prefix}{name}.", (*above, config))
        if not nested:
            yield _row(prefix + name, field)


def models_below(field: FieldInfo) -> list[type[BaseModel]]:
    """The schemas of a field that holds settings of its own, also where it may be null."""
    from pydantic import BaseModel

    return [
        option
        for option in _options(field.annotation)
        if isinstance(option, type) and issubclass(option, BaseModel)
    ]


def _row(name: str, field: FieldInfo) -> ParameterRow:
    from subquad.effect import own_effect

    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    search = extra.get("search")
    return ParameterRow(
        name=name,
        symbol=str(extra.get("symbol") or ""),
        type=_type_text(field.annotation),
        range=", ".join(dict.fromkeys(_limits(field.metadata, field.annotation))),
        default=None
        if field.is_required()
        else field.get_default(call_default_factory=True, validated_data={}),
        required=field.is_required(),
        search=dict(search) if isinstance(search, dict) else None,
        when="; or ".join(" and ".join(map(str, conditions)) for conditions in own_effect(field)),
        unit=str(extra.get("unit") or ""),
        meaning=" ".join((field.description or "").split()),
    )


def _type_text(annotation: Any) -> str:
    """A type in a reader's words."""
    if annotation is None or annotation is type(None):
        return "null"
    if annotation in (Any, ...):
        return "any" if annotation is Any else "..."
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in _UNIONS:
        return " or ".join(map(_type_text, arguments))
    if origin is not None:
        return f"{_type_text(origin)} of {', '.join(map(_type_text, arguments))}"
    return getattr(annotation, "__name__", str(annotation))


def _options(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in _UNIONS:
        return get_args(annotation)
    return (annotation,)


def _limits(marks: list[Any], annotation: Any) -> Iterator[str]:
    for mark in marks:
        for key, sign in _SIGNS.items():
            if (bound := getattr(mark, key, None)) is not None:
                yield f"{sign} {getattr(bound, 'pattern', bound)}"
        # a Field(...) inside Annotated holds its own marks
        yield from _limits(getattr(mark, "metadata", []), None)
    for option in _options(annotation):
        if get_origin(option) is Annotated:
            yield from _limits(list(option.__metadata__), option.__origin__)
