"""What SFPC's parameters accept, beside what `test_refusals.py` has."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from subquad_plugins.sfpc import PLUGIN, Config


@pytest.mark.parametrize("order", [1, 2, 8])
@pytest.mark.parametrize(("a", "b"), [(-1.0, -1.0), (-0.5, -1.5), (0.0, -2.0)])
def test_a_first_jacobi_polynomial_that_is_a_constant_is_refused(a, b, order):
    message = (
        f"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by zero "
        "at k = 2, and P_1 is a constant, "
        r"which mixes no tokens; use a jacobi_a \+ jacobi_b that is not -2"
    )
    with pytest.raises(ValidationError, match=message):
        Config(basis="jacobi", order=order, jacobi_a=a, jacobi_b=b)
    assert Config(basis="jacobi", order=order, jacobi_a=a, jacobi_b=b + 0.25).order == order


def test_variants_are_valid_and_every_parameter_says_what_it_means():
    for params in PLUGIN.variants.values():
        assert Config(**params).path in ("reference", "conv", "fft")
    assert all(field.description for field in Config.model_fields.values())
    assert Config().polynomials == "chebyshev"
    assert Config(operator="shift").polynomials == "monomial"
    assert Config(basis="monomial").path == "reference"
    assert Config(operator="shift", evaluation="conv").path == "conv"


def test_columns_may_be_given_as_a_list_in_a_file():
    text = '{"operator": "circulant", "first_column": [0.5, 0.25]}'
    assert Config.model_validate_json(text).first_column == (0.5, 0.25)
