"""What mixers refuse: settings that contradict each other, and places where they cannot stand.

One line says what is wrong, and what to do.
"""

from __future__ import annotations

from typing import Any

import pytest
from built_in import abouts
from pydantic import ValidationError

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad.registry import build_class, resolve
from subquad_plugins.numerics.jacobi import pole


def config_of(mixer: str, params: Any) -> Any:
    return resolve("mixer", f"subquad:{mixer}").plugin.config(**params)


def place(site: Any) -> Site:
    return Site(**{"dim": 8, "num_heads": 2, **site})


def cases(field: str) -> pytest.MarkDecorator:
    """Mixers and what each refuses, by a field of what they say of themselves."""
    found = [
        pytest.param(name, case, id=f"{name}: {case}")
        for name, about in abouts().items()
        for case in getattr(about, field)
    ]
    return pytest.mark.parametrize(("mixer", "case"), found)


@cases("refused_settings")
def test_settings_that_cannot_work_or_have_no_effect_are_refused(mixer, case):
    with pytest.raises(ValidationError, match=case.message):
        config_of(mixer, case.params)


@cases("refused_places")
def test_settings_that_cannot_work_where_the_mixer_stands_are_refused(mixer, case):
    config = config_of(mixer, case.params)
    with pytest.raises(ValueError, match=case.message):
        config.check(place(case.site))


@pytest.mark.parametrize(
    ("mixer", "params", "site"),
    [(name, *accepted) for name, about in abouts().items() for accepted in about.accepted],
)
def test_settings_at_their_limits_are_accepted(mixer, params, site):
    config_of(mixer, params).check(place(site))


@cases("refused_builds")
def test_what_cannot_be_built_is_refused(mixer, case):
    found = resolve("mixer", f"subquad:{mixer}")
    with pytest.raises(PluginError, match=case.message):
        build_class(found)(config_of(mixer, case.params), place(case.site))


POLES = [
    ("agf", -0.5, -1.5, 2, 2),
    ("agf", 0.0, -2.0, 4, 2),
    ("agf", -1.0, -1.0, 10, 2),
    ("agf", -1.5, -1.5, 3, 3),
    ("agf", -2.0, -2.0, 3, 3),
    ("sfpc", -1.5, -1.5, 3, 3),
    ("sfpc", -2.0, -2.0, 8, 3),
]
SUMS = {"agf": "-2, -3 or -4", "sfpc": "-3 or -4"}


@pytest.mark.parametrize(("mixer", "a", "b", "order", "k"), POLES)
def test_poles_of_the_jacobi_recurrence_are_refused_by_name(mixer, a, b, order, k):
    message = (
        rf"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by zero at k = {k}, "
        rf"and order is {order}; use order {k - 1} or less, or a jacobi_a \+ jacobi_b that is "
        rf"not {SUMS[mixer]}"
    )
    given = {"basis": "jacobi", "jacobi_a": a, "jacobi_b": b}
    with pytest.raises(ValidationError, match=message):
        config_of(mixer, {**given, "order": order})
    assert config_of(mixer, {**given, "order": k - 1}).order == k - 1


def test_poles_lie_only_where_the_message_says():
    for doubled in range(-8, 17):
        total = doubled / 2
        assert (pole(32, total - 1.5, 1.5) is not None) == (total in (-2.0, -3.0, -4.0))
