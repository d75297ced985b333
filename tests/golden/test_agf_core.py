"""AGF against the authors' LRA core (padding mask, constant term fixed), and its filter against
their basis.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_files import arrays_of, golden_files

from subquad.plugin import Site
from subquad_plugins.agf import Config
from subquad_plugins.agf.filter import filtered_vectors, polynomial
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.numerics.jacobi import basis_steps, in_y, powers_of_y

FED = {"u": "preU", "v": "preV", "sigma": "preS", "value": "val"}


class Fed(torch.nn.Module):
    """Stands in for a projection whose result the golden file gives."""

    def __init__(self, heads: torch.Tensor):
        super().__init__()
        self.result = torch.nn.Parameter(heads.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.result


def heads_of(x: Any, num_heads: int) -> torch.Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@pytest.mark.parametrize("name", golden_files("agf core"))
def test_core_equals_the_authors_with_padding(golden, assert_close, name):
    arrays = golden(name)
    batch, num_heads, length, width = arrays["preU"].shape
    weight = float(arrays["reg"])
    config = Config(
        order=int(arrays["K"]),
        jacobi_a=float(arrays["a"]),
        jacobi_b=float(arrays["b"]),
        ortho_weight=weight,
    )
    mixer: Any = AGF(config, Site(dim=num_heads * width, num_heads=num_heads)).double()
    for ours, theirs in FED.items():
        setattr(mixer, ours, Fed(arrays[theirs]))
    mixer.out = torch.nn.Identity()
    with torch.no_grad():
        mixer.filter.theta.copy_(arrays["theta"][1:])

    x = torch.zeros(batch, length, num_heads * width, dtype=torch.float64)
    result = mixer(x, keep=arrays["mask"].bool())
    loss = weight * result.losses["ortho"]
    assert_close(heads_of(result.out, num_heads), arrays["out64"], 1e-12)
    assert_close(loss, arrays["orthoxreg64"], 1e-12)

    ((heads_of(result.out, num_heads) * arrays["grad_weighting"]).sum() + loss.sum()).backward()
    for ours, theirs in FED.items():
        assert_close(
            heads_of(mixer.get_parameter(f"{ours}.result").grad, num_heads),
            arrays[f"grad_{theirs}"],
            1e-12,
        )
    assert_close(mixer.filter.theta.grad, arrays["grad_theta"][1:], 1e-12)


@pytest.mark.parametrize("name", golden_files("agf basis"))
def test_basis_equals_the_authors_and_scipy(golden, assert_close, name):
    arrays = golden(name)
    terms = arrays["official"].shape[1]
    for number, (a, b) in enumerate(arrays["pairs"].tolist()):
        steps = basis_steps("jacobi", terms - 1, a, b)
        for k in range(terms):
            only_k = torch.eye(terms, dtype=torch.float64)[k]
            values = polynomial(arrays["x"], only_k, steps)
            for source in {"official", "scipy"} & set(arrays):
                assert_close(values, arrays[source][number, k], 1e-12)


@pytest.mark.parametrize("order", [5, 10])
def test_powers_equal_the_recurrence_where_they_are_used(golden, assert_close, order):
    arrays = golden("agf_jacobi_basis")
    used = 0
    for a, b in arrays["pairs"].tolist():
        steps = in_y(basis_steps("jacobi", order, a, b), "unit")
        matrix = powers_of_y(steps)
        used += matrix is not None
        for k, row in enumerate([] if matrix is None else torch.from_numpy(matrix)):
            only_k = torch.eye(order + 1, dtype=torch.float64)[k]
            assert_close(
                polynomial(arrays["x"], row, None), polynomial(arrays["x"], only_k, steps), 1e-13
            )
    assert used >= 5


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        (name, fixed)
        for name in golden_files("agf filter")
        for fixed in (False, True)
        if f"filter_fixI{int(fixed)}" in arrays_of(name)
    ],
)
def test_filter_equals_the_authors(golden, assert_close, name, fixed):
    arrays = golden(name)
    sigma = arrays["s"]
    inside = (sigma > 0) & (sigma < 1)
    c = arrays["theta"].float().double().tanh()  # the authors' parameters were rounded to float32
    if fixed:
        c[0] = 1.0
    steps = in_y(basis_steps("jacobi", len(c) - 1, float(arrays["a"]), float(arrays["b"])), "unit")
    expected = arrays[f"filter_fixI{int(fixed)}"]
    assert_close(polynomial(2 * sigma - 1, c, steps), expected, 1e-12)
    logits = torch.logit(sigma[inside])
    powers = c @ torch.from_numpy(powers_of_y(steps))
    for coefficients, chosen in ((powers, None), (c, steps)):
        values = filtered_vectors(torch.ones_like(logits), logits, coefficients, chosen)
        assert_close(values, expected[inside], 1e-12)
