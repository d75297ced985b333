"""What AGF's parameters accept, and the one line each refusal says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from subquad_plugins.agf import PLUGIN, Config
from subquad_plugins.numerics.jacobi import pole

REFUSED = [
    ({"order": 33}, "order\n  Input should be less than or equal to 32"),
    ({"order": -1}, "order\n  Input should be greater than or equal to 0"),
    ({"jacobi_b": -2.5}, "jacobi_b\n  Input should be greater than or equal to -2"),
    ({"rank": 3}, "rank\n  Extra inputs are not permitted"),
    ({"order": "3"}, "order\n  Input should be a valid integer"),
    (
        {"basis": "legendre", "jacobi_a": 0.5},
        "jacobi_a 0.5 has no effect with basis legendre: leave it at 1.0, or use basis jacobi",
    ),
    (
        {"basis": "chebyshev", "jacobi_b": 0.5},
        "jacobi_b 0.5 has no effect with basis chebyshev: leave it at 0.2, or use basis jacobi",
    ),
    (
        {"basis": "monomial", "jacobi_b": 0.5},
        "jacobi_b 0.5 has no effect with basis monomial: leave it at 0.2, or use basis jacobi",
    ),
    ({"form": "uv", "order": 5}, "order 5 has no effect with form uv: leave it at 3, or use form svd"),
    (
        {"form": "uv", "coeff_activation": "none"},
        "coeff_activation none has no effect with form uv: leave it at tanh, or use form svd",
    ),
    (
        {"form": "svd_scalar", "fix_identity": False},
        "fix_identity false has no effect with form svd_scalar: leave it at true, or use form svd",
    ),
    (
        {"form": "svd_scalar", "sigma_map": "symmetric"},
        "sigma_map symmetric has no effect with form svd_scalar: leave it at unit, or use form svd",
    ),
    (
        {"order": 0, "basis": "legendre"},
        "basis legendre has no effect with order 0: leave it at jacobi, or use order other than 0",
    ),
    (
        {"order": 0, "jacobi_a": 2.0},
        "jacobi_a 2.0 has no effect with order 0: leave it at 1.0, or use order other than 0",
    ),
    (
        {"order": 0, "coeff_activation": "none"},
        "coeff_activation none has no effect with order 0 and fix_identity true: leave it at tanh, or use "
        "order other than 0 or fix_identity false",
    ),
    (
        {"ortho_weight": 0.0, "ortho_norm": "frobenius"},
        "ortho_norm frobenius has no effect with ortho_weight 0.0: leave it at l1, or use ortho_weight other than 0",
    ),
]

POLES = [(-0.5, -1.5, 2, 2), (0.0, -2.0, 4, 2), (-1.0, -1.0, 10, 2), (-1.5, -1.5, 3, 3), (-2.0, -2.0, 3, 3)]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_settings_that_cannot_work_or_have_no_effect_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Config(**given)


@pytest.mark.parametrize(("a", "b", "order", "k"), POLES)
def test_poles_are_refused_by_name(a, b, order, k):
    message = (
        rf"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by zero at k = {k}, and order is {order}; "
        rf"use order {k - 1} or less, or a jacobi_a \+ jacobi_b that is not -2, -3 or -4"
    )
    with pytest.raises(ValidationError, match=message):
        Config(order=order, jacobi_a=a, jacobi_b=b)
    assert Config(order=k - 1, jacobi_a=a, jacobi_b=b).order == k - 1


def test_poles_lie_only_where_the_message_says():
    for doubled in range(-8, 17):
        total = doubled / 2
        assert (pole(32, total - 1.5, 1.5) is not None) == (total in (-2.0, -3.0, -4.0))


@pytest.mark.parametrize("basis", ["legendre", "chebyshev", "monomial"])
def test_a_default_may_be_written_out(basis):
    assert Config(basis=basis, jacobi_a=1.0, jacobi_b=0.2).basis == basis


def test_published_settings_are_accepted():
    for a, b, order in [(1.5, -1.5, 6), (2.0, 0.5, 9), (1.5, 2.0, 5), (2.0, 1.5, 10), (1.0, 0.0, 4), (2.0, -2.0, 5)]:
        assert Config(order=order, jacobi_a=a, jacobi_b=b).order == order


def test_every_parameter_says_what_it_means():
    assert all(field.description for field in Config.model_fields.values())
    assert PLUGIN.facts.causal == "never"
    assert PLUGIN.facts.padding_invariant
    assert PLUGIN.facts.complexity == "L"
