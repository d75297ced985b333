"""What a search may try: every range lies within the limits of its field, so that a space can be derived from it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from subquad.plugin import Config, Range, param
from subquad.registry import describe_config, find, resolve

OWN = sorted(row.name for row in find("mixer") if row.distribution == "subquad")
WITHOUT = {"identity", "softmax"}
"""Controls and references: there is nothing of the method to search."""


def ends(search: dict[str, Any]) -> list[Any]:
    return search["choices"] if "choices" in search else [search["low"], search["high"]]


def accepts(config: type[Config], name: str, value: Any) -> bool:
    field = config.model_fields[name]
    kind = TypeAdapter(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
    try:
        kind.validate_python(value, strict=not isinstance(value, (list, tuple)))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in OWN if name not in WITHOUT])
def test_every_value_of_a_range_is_allowed_by_its_field(name):
    config = resolve("mixer", name).plugin.config
    rows = [row for row in describe_config(config) if row.search]
    assert rows, "a method without anything to search"
    for row in rows:
        assert row.search
        assert all(accepts(config, row.name, value) for value in ends(row.search)), row
        if "low" in row.search:
            assert row.search["low"] < row.search["high"]
            assert not row.search["log"] or row.search["low"] > 0


@pytest.mark.parametrize("name", [name for name in OWN if name not in WITHOUT])
def test_the_default_is_among_what_a_search_tries(name):
    """Null, which means that the mixer decides, need not be."""
    for row in describe_config(resolve("mixer", name).plugin.config):
        if row.search is None or row.default is None:
            continue
        if "choices" in row.search:
            assert row.default in row.search["choices"], row
        else:
            assert row.search["low"] <= row.default <= row.search["high"], row


def test_two_choices_and_a_range_are_told_apart():
    class Searched(Config):
        few: int = param(1, meaning="two choices", search=[1, 8])
        many: float = param(1.0, meaning="a range", search=Range(0.1, 10, log=True))

    few, many = describe_config(Searched)
    assert (few.search, few.search_text) == ({"choices": [1, 8]}, "1, 8")
    assert (many.search, many.search_text) == ({"low": 0.1, "high": 10, "log": True}, "0.1 to 10, log scale")
