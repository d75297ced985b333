"""Facts that follow from a mixer's parameters, beside those of its variants."""

from __future__ import annotations

from typing import Any

import pytest

from subquad.registry import resolve

DECAY = {"operator": "circulant", "first_column": "decay"}
GIVEN = {"operator": "circulant", "first_column": (1.0, 0.0)}
HORNER = {"operator": "circulant", "evaluation": "reference"}
LOG, LEAK = "L log L", 1e-12

CLAIMED: list[tuple[str, dict[str, Any], str, bool, str | int | None, str, float]] = [
    ("mdfwa", {}, "optional", True, "site", LOG, LEAK),
    ("mdfwa", {"form": "hartley"}, "never", True, None, LOG, LEAK),
    ("mdfwa", {"form": "hartley", "frequencies": "learned"}, "never", True, "site", LOG, LEAK),
    ("mdfwa", {"period": 70}, "always", True, 70, LOG, LEAK),
    ("mdfwa", {"branches": "wavelet"}, "optional", True, None, "L", 0.0),
    ("mdfwa", {"wavelet": "db38", "level": 12}, "never", True, None, LOG, LEAK),
    (
        "mdfwa",
        {"scale_weights": "fixed", "include_approx": True},
        "always",
        True,
        "site",
        LOG,
        LEAK,
    ),
    ("mega", {}, "optional", True, "site", "L^2", LEAK),
    ("mega", {"max_positions": 99}, "optional", True, 99, "L^2", LEAK),
    ("mega", {"bias": "rotary"}, "optional", True, None, "L^2", LEAK),
    ("mega", {"chunk_size": 64}, "optional", True, None, LOG, LEAK),
    ("megacur", {}, "never", True, "site", LOG, LEAK),
    ("megacur", {"max_positions": 99}, "never", True, 99, LOG, LEAK),
    ("megacur", {"bias": "rotary"}, "never", True, None, LOG, LEAK),
    ("megacur", {"chunk_size": 64}, "never", True, None, LOG, LEAK),
    ("sfpc", {}, "never", True, None, "L", 0.0),
    ("sfpc", {"order": 64}, "never", True, None, "L", 0.0),
    ("sfpc", {"order": 129}, "never", True, None, LOG, LEAK),
    ("sfpc", {"evaluation": "fft"}, "never", True, None, LOG, LEAK),
    ("sfpc", {"order": 1024, "evaluation": "reference"}, "never", True, None, "L", 0.0),
    ("sfpc", {"basis": "monomial", "order": 12}, "never", True, None, "L", 0.0),
    ("sfpc", {"operator": "shift", "order": 256}, "always", True, None, "L", 0.0),
    ("sfpc", {"operator": "shift", "order": 257}, "always", True, None, LOG, LEAK),
    ("sfpc", {"operator": "cyclic"}, "never", True, None, "L", 0.0),
    ("sfpc", {"operator": "circulant"}, "never", False, "site", LOG, LEAK),
    ("sfpc", HORNER, "never", False, "site", LOG, LEAK),
    ("sfpc", DECAY, "never", False, None, LOG, LEAK),
    ("sfpc", GIVEN, "never", False, "site", LOG, LEAK),
]


def facts_of(mixer: str, params: dict[str, Any]) -> Any:
    plugin: Any = resolve("mixer", f"subquad:{mixer}").plugin
    return plugin.facts_of(plugin.config(**params))


@pytest.mark.parametrize(
    ("mixer", "params", "causal", "padding", "max_length", "complexity", "leak"), CLAIMED
)
def test_facts_follow_from_the_parameters(
    mixer, params, causal, padding, max_length, complexity, leak
):
    facts = facts_of(mixer, params)
    assert (facts.causal, facts.padding_invariant, facts.max_length) == (
        causal,
        padding,
        max_length,
    )
    assert (facts.complexity, facts.leak) == (complexity, leak)


@pytest.mark.parametrize(
    ("params", "equivariant", "cross"),
    [
        ({"mode": "different"}, True, True),
        ({"force_class": "always"}, None, False),
        ({"rotary": True}, None, False),
        ({"selection": "random", "mode": "different"}, None, True),
    ],
)
def test_cur_sees_no_order_and_crosses_where_its_parameters_let_it(params, equivariant, cross):
    facts = facts_of("cur", params)
    assert (facts.permutation_equivariant, facts.cross) == (equivariant, cross)
    assert (facts.causal, facts.padding_invariant, facts.complexity) == ("never", True, "L")
