"""What a search may try: every range lies within the limits of its field, so that a space can be
derived from it.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from built_in import abouts
from pydantic import TypeAdapter, ValidationError

from subquad.errors import ConfigError
from subquad.plugin import Config, Range, Site, param
from subquad.plugin.effect import unmet_conditions
from subquad.registry import describe_config, resolve
from subquad.registry.loaded import check_site
from subquad_plugins.numerics.counts import CountedConfig

SEARCHED = [name for name, about in abouts().items() if about.searched]


def ends(search: dict[str, Any]) -> list[Any]:
    return search["choices"] if "choices" in search else [search["low"], search["high"]]


def accepts(config: type[Config], name: str, value: Any) -> bool:
    field = config.model_fields[name]
    kind = TypeAdapter(
        Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    )
    try:
        kind.validate_python(value, strict=not isinstance(value, (list, tuple)))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", SEARCHED)
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


@pytest.mark.parametrize("name", SEARCHED)
def test_the_default_is_among_what_a_search_tries(name):
    """Null, which means that the mixer decides, need not be; of a default that follows the length
    it is the one of long sequences.
    """
    config = resolve("mixer", name).plugin.config
    counted = dict([config.counted]) if issubclass(config, CountedConfig) else {}
    for row in describe_config(config):
        if row.search is None or row.default is None:
            continue
        if "choices" in row.search:
            assert counted.get(row.name, row.default) in row.search["choices"], row
        else:
            assert row.search["low"] <= row.default <= row.search["high"], row


@pytest.mark.parametrize(
    ("name", "field", "choices"),
    [("mdfwa", "level", [2, 3, 4, 5, 6]), ("sfpc", "order", [2, 4, 8, 16, 32, 64])],
)
def test_a_search_tries_what_is_accepted(name, field, choices):
    config = resolve("mixer", name).plugin.config
    (row,) = [row for row in describe_config(config) if row.name == field]
    assert row.search == {"choices": choices}


@pytest.mark.parametrize("order", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("operator", ["laplacian", "shift"])
def test_the_papers_orders_are_accepted(operator, order):
    config: Any = resolve("mixer", "sfpc").plugin.config
    assert config(order=order, operator=operator).order == order


def test_two_choices_and_a_range_are_told_apart():
    class Searched(Config):
        few: int = param(1, meaning="two choices", search=[1, 8])
        many: float = param(1.0, meaning="a range", search=Range(0.1, 10, log=True))

    few, many = describe_config(Searched)
    assert (few.search, few.search_text) == ({"choices": [1, 8]}, "1, 8")
    assert (many.search, many.search_text) == (
        {"low": 0.1, "high": 10, "log": True},
        "0.1 to 10, log scale",
    )


def drawn(name: str, random: np.random.Generator) -> dict[str, Any]:
    """One point of the space that follows from a mixer's fields: those whose conditions do not
    hold are left out.
    """
    rows = {row.name: row for row in describe_config(resolve("mixer", name).plugin.config)}
    point: dict[str, Any] = {}
    for row in rows.values():
        if row.search:
            point[row.name] = value_of(
                row.search, random, whole=row.value.startswith("a whole number")
            )
    values = {key: row.default for key, row in rows.items()} | point
    config = resolve("mixer", name).plugin.config
    return {key: value for key, value in point.items() if not unmet_conditions(config, key, values)}


def value_of(search: dict[str, Any], random: np.random.Generator, *, whole: bool) -> Any:
    if "choices" in search:
        return search["choices"][random.integers(len(search["choices"]))]
    low, high = (
        np.log([search["low"], search["high"]])
        if search["log"]
        else (search["low"], search["high"])
    )
    value = random.uniform(low, high)
    value = float(np.exp(value)) if search["log"] else float(value)
    return round(value) if whole else value


@pytest.mark.ci
@pytest.mark.parametrize("name", SEARCHED)
def test_most_points_of_the_space_are_accepted(name):
    """What is left to refuse are combinations of numbers, such as a pole of the Jacobi
    recurrence.
    """
    resolved, random = resolve("mixer", name), np.random.default_rng(0)
    refused = []
    for _ in range(300):
        point = drawn(name, random)
        try:
            check_site(
                resolved, resolved.plugin.config(**point), Site(dim=64, num_heads=2, max_len=16_384)
            )
        except (ValidationError, ConfigError) as error:
            refused.append(
                error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            )
    assert len(refused) <= 30, set(refused)


def test_a_condition_is_told_beside_what_a_search_may_try():
    class Searched(Config):
        kind: str = param("a", meaning="a kind", search=["a", "b"])
        size: int = param(1, meaning="of kind b alone", search=[1, 8], when={"kind": ["b"]})

    _, size = describe_config(Searched)
    assert (size.search, size.when) == ({"choices": [1, 8]}, "kind b")
