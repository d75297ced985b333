"""A schema as rows."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from subquad.experiment.schema import Experiment
from subquad.plugin import Config, Range, param
from subquad.registry import describe_config


class Inner(Config):
    depth: int = param(2, meaning="layers", ge=1, lt=9)


class Outer(Config):
    order: int = param(
        3, meaning="degree of\n  the filter", symbol="K", search=Range(1, 8), ge=0, le=32
    )
    rate: float | None = param(None, meaning="step", unit="1/s", gt=0)
    form: Literal["a", "b"] = param("a", meaning="form")
    name: str = param(meaning="a name", min_length=1, max_length=9, pattern="^[a-z]+$")
    sizes: tuple[int, ...] = param((1, 2), meaning="sizes")
    table: dict[str, Any] = Field(default_factory=dict)
    even: Annotated[int, Field(multiple_of=2)] | None = None
    inner: Inner = Field(default_factory=Inner)
    maybe: Inner | None = None
    tree: "list[Outer] | None" = None


ROWS = {row.name: row for row in describe_config(Outer)}


def test_order_is_the_schemas_and_nested_names_are_dotted():
    assert list(ROWS) == [
        *(
            "order",
            "rate",
            "form",
            "name",
            "sizes",
            "table",
            "even",
            "inner.depth",
            "maybe.depth",
            "tree",
        )
    ]


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("order", "a whole number >= 0 and <= 32", "3"),
        ("rate", "a number > 0 or null", "null"),
        ("form", "one of a, b", '"a"'),
        (
            "name",
            "text of length <= 9 and that is not empty and matching ^[a-z]+$",
            "required",
        ),
        ("sizes", "a list of values, each a whole number", "[1, 2]"),
        ("table", "a mapping", "{}"),
        ("even", "a whole number divisible by 2 or null", "null"),
        ("inner.depth", "a whole number >= 1 and < 9", "2"),
        ("tree", "a list of values, each a mapping or null", "null"),
    ],
)
def test_what_it_may_be_and_its_default(name, value, default):
    row = ROWS[name]
    assert (row.value, row.default_text) == (value, default)


def test_symbol_search_unit_and_meaning():
    assert (ROWS["order"].symbol, ROWS["order"].search, ROWS["order"].meaning) == (
        "K",
        {"low": 1, "high": 8, "log": False},
        "degree of the filter",
    )
    assert (ROWS["rate"].unit, ROWS["rate"].search, ROWS["rate"].symbol) == ("1/s", None, "")


def test_a_schema_that_holds_itself_ends():
    class Node(Config):
        value: int = 1
        below: "Node | None" = None

    Node.model_rebuild(_types_namespace={"Node": Node})
    assert [row.name for row in describe_config(Node)] == ["value", "below"]


def test_the_experiment_schema_has_a_meaning_for_every_key():
    rows = describe_config(Experiment)
    assert {"train.lr", "resources.workers", "tracking.uri", "mixer.name"} <= {
        row.name for row in rows
    }
    assert [row.name for row in rows if not row.meaning] == []
