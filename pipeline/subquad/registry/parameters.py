"""A parameter schema as rows: what `subquad show` and the docs print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter.

    Attributes:
        name: dotted where schemas nest.
        symbol: the paper's symbol, "" where it has none.
        value: what it may be: "a whole number >= 1", "one of ddp, fsdp2", ...
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
    value: str
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
            yield _row(above[0], full_name, field)


def models_below(field: FieldInfo) -> list[type[BaseModel]]:
    """The schemas of a field that holds settings of its own, also where it may be null."""
    from pydantic import BaseModel

    kind: Any = field.annotation
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [
        option for option in options if isinstance(option, type) and issubclass(option, BaseModel)
    ]


def _row(config: type[BaseModel], name: str, field: FieldInfo) -> ParameterRow:
    from subquad.plugin.effect import default_of, extra_of, own_effect
    from subquad.registry.allowed import allowed

    extra = extra_of(field)
    search = extra.get("search")
    conditions = [" and ".join(map(str, together)) for together in own_effect(field)]
    description = field.description or ""
    required = field.is_required()
    return ParameterRow(
        name=name,
        symbol=str(extra.get("symbol") or ""),
        value=allowed(config, tuple(name.split("."))) or "anything",
        default=None if required else default_of(field),
        required=required,
        search=dict(search) if isinstance(search, dict) else None,
        when="; or ".join(conditions),
        unit=str(extra.get("unit") or ""),
        meaning=" ".join(description.split()),
    )
