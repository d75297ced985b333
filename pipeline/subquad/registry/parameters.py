"""A parameter schema as rows: what `subquad show` and the docs print."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator
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
        search = self.search
        if search is None:
            return ""
        if "choices" in search:
            return ", ".join(map(str, search["choices"]))
        scale = ", log scale" if search["log"] else ""
        return f"{search['low']:g} to {search['high']:g}{scale}"

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
    above = (*above, config)
    for name, field in config.model_fields.items():
        full_name = f"{prefix}{name}"
        nested = [model for model in models_below(field) if model not in above]
        for model in nested:
            yield from _rows(model, f"{full_name}.", above)
        if not nested:
            yield _row(full_name, field)


def models_below(field: FieldInfo) -> list[type[BaseModel]]:
    """The schemas of a field that holds settings of its own, also where it may be null."""
    from pydantic import BaseModel

    return [
        option
        for option in _options(field.annotation)
        if isinstance(option, type) and issubclass(option, BaseModel)
    ]


def _row(name: str, field: FieldInfo) -> ParameterRow:
    from subquad.plugin.effect import default_of, extra_of, own_effect

    extra = extra_of(field)
    search = extra.get("search")
    limits = dict.fromkeys(_limits(field.metadata, field.annotation))
    conditions = [" and ".join(map(str, together)) for together in own_effect(field)]
    description = field.description or ""
    required = field.is_required()
    return ParameterRow(
        name=name,
        symbol=str(extra.get("symbol") or ""),
        type=_type_text(field.annotation),
        range=", ".join(limits),
        default=None if required else default_of(field),
        required=required,
        search=dict(search) if isinstance(search, dict) else None,
        when="; or ".join(conditions),
        unit=str(extra.get("unit") or ""),
        meaning=" ".join(description.split()),
    )


def _type_text(annotation: Any) -> str:
    """A type in a reader's words."""
    if annotation is None or annotation is type(None):
        return "null"
    if annotation is Any:
        return "any"
    if annotation is ...:
        return "..."
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    parts = map(_type_text, arguments)
    if origin in _UNIONS:
        return " or ".join(parts)
    if origin is not None:
        return f"{_type_text(origin)} of {', '.join(parts)}"
    return getattr(annotation, "__name__", str(annotation))


def _options(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in _UNIONS:
        return get_args(annotation)
    return (annotation,)


def _limits(marks: Iterable[Any], annotation: Any) -> Iterator[str]:
    for mark in marks:
        for key, sign in _SIGNS.items():
            bound = getattr(mark, key, None)
            if bound is not None:
                yield f"{sign} {getattr(bound, 'pattern', bound)}"
        # a Field(...) inside Annotated holds its own marks
        yield from _limits(getattr(mark, "metadata", []), None)
    for option in _options(annotation):
        if get_origin(option) is Annotated:
            yield from _limits(option.__metadata__, option.__origin__)
