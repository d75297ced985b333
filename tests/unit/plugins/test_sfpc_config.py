"""What SFPC's parameters accept, the one line each refusal says, and the facts that follow from
them.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from subquad.plugin import Site
from subquad_plugins.sfpc import PLUGIN, Config

REFUSED = [
    (
        {"operator": "circulant", "evaluation": "conv"},
        "evaluation conv with operator circulant: its kernel is as long as the "
        "sequence; use auto, fft or reference",
    ),
    (
        {"basis": "monomial", "order": 13},
        r"order 13 with basis monomial: powers of T reach 4\^13, so that on smooth "
        r"tokens fp32 loses every digit; use "
        "order 12 or less, or basis chebyshev",
    ),
    (
        {"basis": "monomial", "evaluation": "conv"},
        r"evaluation conv with basis monomial: the taps of T\^k add up to 0 from "
        r"parts as large as 4\^k, which fp32 "
        "loses; use auto or reference, or basis chebyshev",
    ),
    ({"basis": "monomial", "evaluation": "fft"}, "evaluation fft with basis monomial"),
    ({"basis": "monomial", "boundary": "periodic", "order": 64}, "order 64 with basis monomial"),
    (
        {"basis": "jacobi", "order": 65},
        "order 65 with basis jacobi: use order 64 or less, or basis chebyshev of a "
        "laplacian, or a shift, which go to "
        "1024",
    ),
    ({"basis": "monomial_rescaled", "order": 65}, "order 65 with basis monomial_rescaled"),
    ({"operator": "circulant", "order": 65}, "order 65 with operator circulant"),
    (
        {"operator": "circulant", "first_column": (1e5, 1.0)},
        r"first_column has magnitudes that add up to 100001: give a sum above 0 "
        r"and at most 5\.62e\+03, whose power 8 "
        "fp32 can hold",
    ),
    ({"operator": "circulant", "first_column": ()}, "first_column has magnitudes that add up to 0"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_settings_that_cannot_work_or_have_no_effect_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Config(**given)


@pytest.mark.parametrize(("a", "b", "order", "k"), [(-1.5, -1.5, 3, 3), (-2.0, -2.0, 8, 3)])
def test_poles_of_the_jacobi_recurrence_are_refused_by_name(a, b, order, k):
    message = (
        rf"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by "
        rf"zero at k = {k}, and order is {order}; "
        rf"use order {k - 1} or less, or a jacobi_a \+ jacobi_b that is not -3 or -4"
    )
    with pytest.raises(ValidationError, match=message):
        Config(basis="jacobi", order=order, jacobi_a=a, jacobi_b=b)
    assert Config(basis="jacobi", order=k - 1, jacobi_a=a, jacobi_b=b).order == k - 1


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


def test_a_given_column_must_fit_the_longest_sequence():
    config = Config(operator="circulant", first_column=(0.5, 0.25, 0.25))
    message = "first_column has 3 values and the longest sequence 8 tokens: give 8 values"
    with pytest.raises(ValueError, match=message):
        config.check(Site(dim=4, max_len=8))
    config.check(Site(dim=4, max_len=3))
    config.check(Site(dim=4))


@pytest.mark.parametrize(
    ("given", "causal", "padding", "length", "complexity", "leak"),
    [
        ({}, "never", True, None, "L", 0.0),
        ({"order": 64}, "never", True, None, "L", 0.0),
        ({"order": 129}, "never", True, None, "L log L", 1e-12),
        ({"evaluation": "fft"}, "never", True, None, "L log L", 1e-12),
        ({"order": 1024, "evaluation": "reference"}, "never", True, None, "L", 0.0),
        ({"basis": "monomial", "order": 12}, "never", True, None, "L", 0.0),
        ({"operator": "shift", "order": 256}, "always", True, None, "L", 0.0),
        ({"operator": "shift", "order": 257}, "always", True, None, "L log L", 1e-12),
        ({"operator": "cyclic"}, "never", True, None, "L", 0.0),
        ({"operator": "circulant"}, "never", False, "site", "L log L", 1e-12),
        (
            {"operator": "circulant", "evaluation": "reference"},
            "never",
            False,
            "site",
            "L log L",
            1e-12,
        ),
        (
            {"operator": "circulant", "first_column": "decay"},
            "never",
            False,
            None,
            "L log L",
            1e-12,
        ),
        (
            {"operator": "circulant", "first_column": (1.0, 0.0)},
            "never",
            False,
            "site",
            "L log L",
            1e-12,
        ),
    ],
)
def test_facts_follow_from_the_parameters(given, causal, padding, length, complexity, leak):
    facts = PLUGIN.facts_of(Config(**given))
    assert (facts.causal, facts.padding_invariant, facts.max_length) == (causal, padding, length)
    assert (facts.complexity, facts.leak) == (complexity, leak)


@pytest.mark.parametrize("order", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("operator", ["laplacian", "shift"])
def test_the_papers_orders_are_searched_and_accepted(order, operator):
    assert Config(order=order, operator=operator).order == order
    extra = Config.model_fields["order"].json_schema_extra
    assert isinstance(extra, dict)
    assert extra["search"] == {"choices": [2, 4, 8, 16, 32, 64]}


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
