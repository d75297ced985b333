"""Facts that follow from a mixer's parameters, beside those of its variants."""

from __future__ import annotations

from typing import Any

import pytest
from built_in import abouts

from subquad.registry import resolve


@pytest.mark.parametrize(
    ("mixer", "params", "claimed"),
    [(name, *follows) for name, about in abouts().items() for follows in about.follows],
)
def test_facts_follow_from_the_parameters(mixer, params, claimed):
    plugin: Any = resolve("mixer", f"subquad:{mixer}").plugin
    facts = plugin.facts_of(plugin.config(**params))
    assert {name: getattr(facts, name) for name in claimed} == claimed
