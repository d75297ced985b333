"""What AGF's parameters accept, and the one line each refusal says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from subquad_plugins.agf import Config
from subquad_plugins.numerics.jacobi import pole

POLES = [
    (-0.5, -1.5, 2, 2),
    (0.0, -2.0, 4, 2),
    (-1.0, -1.0, 10, 2),
    (-1.5, -1.5, 3, 3),
    (-2.0, -2.0, 3, 3),
]


@pytest.mark.parametrize(("a", "b", "order", "k"), POLES)
def test_poles_are_refused_by_name(a, b, order, k):
    message = (
        rf"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by "
        rf"zero at k = {k}, and order is {order}; "
        rf"use order {k - 1} or less, or a jacobi_a \+ jacobi_b that is not -2, -3 or -4"
    )
    with pytest.raises(ValidationError, match=message):
        Config(order=order, jacobi_a=a, jacobi_b=b)
    assert Config(order=k - 1, jacobi_a=a, jacobi_b=b).order == k - 1


def test_poles_lie_only_where_the_message_says():
    for doubled in range(-8, 17):
        total = doubled / 2
        assert (pole(32, total - 1.5, 1.5) is not None) == (total in (-2.0, -3.0, -4.0))


def test_published_settings_are_accepted():
    for a, b, order in [
        (1.5, -1.5, 6),
        (2.0, 0.5, 9),
        (1.5, 2.0, 5),
        (2.0, 1.5, 10),
        (1.0, 0.0, 4),
        (2.0, -2.0, 5),
    ]:
        assert Config(order=order, jacobi_a=a, jacobi_b=b).order == order
