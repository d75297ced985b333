"""SFPC's operators against dense matrices, and its error bound against dense spectra.

Keys of a file say what it holds: `<boundary>_<basis>[_perchannel]`, `out[_...]`,
`<filter>_k<order>_c/op/sup`.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from golden_files import arrays_of, golden_files

from subquad.errors import PluginError
from subquad_plugins.sfpc.naive import dense_operator
from subquad_plugins.sfpc.operator import sfpc
from subquad_plugins.sfpc.spectrum import eigenvalues

LAPLACIANS = golden_files("sfpc laplacian")
SHIFTS = golden_files("sfpc shift")
CIRCULANTS = golden_files("sfpc circulant")
BOUNDS = golden_files("sfpc bound")
JACOBI = {"jacobi_a": 0.5, "jacobi_b": -0.25}
FILTERS = {
    "abs": lambda t: (t + 2).abs(),
    "abs3": lambda t: (t + 2).abs() ** 3,
    "heat4": lambda t: torch.exp(4 * t),
}
PATHS = ["auto", "reference", "conv", "fft"]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def cases(names, pattern):
    """Every key of the files that the pattern matches, with its parts."""
    for name in names:
        for key in arrays_of(name):
            if found := re.fullmatch(pattern, key):
                yield pytest.param(name, key, *found.groups(), id=f"{name}-{key}")


LAPLACIAN_CASES = list(
    cases(
        LAPLACIANS,
        "(dirichlet|neumann|periodic)_(monomial|monomial_rescaled|chebyshev|jacobi)(_perchannel|)",
    )
)


@pytest.mark.parametrize(("name", "key", "boundary", "basis", "per_channel"), LAPLACIAN_CASES)
def test_laplacian_polynomials(golden, assert_close, name, key, boundary, basis, per_channel):
    arrays = golden(name)
    x, c = arrays["X"], arrays["ch" if per_channel else "c"]
    if basis == "monomial":
        c = c * 4.0 ** -torch.arange(c.shape[-1], dtype=torch.float64)
    more: Any = {"boundary": boundary, **(JACOBI if basis == "jacobi" else {})}
    for evaluation, (dtype, tolerance) in itertools.product(PATHS, TOLERANCE.items()):
        given = (x.to(dtype), c.to(dtype), "laplacian", basis)
        if basis == "monomial" and evaluation in ("conv", "fft") and dtype != torch.float64:
            with pytest.raises(PluginError, match=f"evaluation {evaluation} with basis monomial"):
                sfpc(*given, evaluation=evaluation, **more)
        else:
            assert_close(sfpc(*given, evaluation=evaluation, **more), arrays[key], tolerance)


@pytest.mark.parametrize(
    ("name", "key", "boundary"), list(cases(LAPLACIANS, "T_(dirichlet|neumann|periodic)"))
)
def test_laplacian_matrices_and_their_spectra(golden, assert_close, name, key, boundary):
    matrix = golden(name)[key]
    assert torch.equal(dense_operator(boundary, len(matrix)), matrix)
    identity = torch.eye(len(matrix), dtype=torch.float64)[None]
    coefficients = torch.tensor([0.0, 1.0]).double()
    once = sfpc(identity, coefficients, "laplacian", "monomial", boundary=boundary)
    assert_close(once[0], matrix, 1e-12)
    assert_close(
        eigenvalues(boundary, len(matrix)).sort().values, torch.linalg.eigvalsh(matrix), 1e-12
    )


@pytest.mark.parametrize("evaluation", PATHS)
@pytest.mark.parametrize(("name", "key", "which"), list(cases(SHIFTS, "out(_perchannel|_cbig|)")))
def test_shift_polynomials(golden, assert_close, name, key, which, evaluation):
    arrays = golden(name)
    c = arrays[{"": "c", "_perchannel": "ch", "_cbig": "cbig"}[which]]
    assert_close(sfpc(arrays["X"], c, "shift", evaluation=evaluation), arrays[key], 1e-12)
    assert_close(
        sfpc(arrays["X"].float(), c.float(), "shift", evaluation=evaluation), arrays[key], 2e-5
    )


@pytest.mark.parametrize("name", SHIFTS)
def test_the_shifts_polynomial_as_a_matrix(golden, assert_close, name):
    arrays = golden(name)
    eye = torch.eye(len(arrays["M"]), dtype=torch.float64)
    assert_close(sfpc(eye[None], arrays["c"], "shift")[0], arrays["M"], 1e-12)


@pytest.mark.parametrize("evaluation", ["auto", "reference", "fft"])
@pytest.mark.parametrize("name", CIRCULANTS)
def test_circulant_polynomials(golden, assert_close, name, evaluation):
    arrays = golden(name)
    assert torch.equal(dense_operator("circulant", len(arrays["f"]), arrays["f"]), arrays["C"])
    out = sfpc(arrays["X"], arrays["c"], "circulant", column=arrays["f"], evaluation=evaluation)
    assert_close(out, arrays["out"], 1e-12)


@pytest.mark.parametrize("evaluation", PATHS)
@pytest.mark.parametrize("name", CIRCULANTS)
def test_cyclic_polynomials(golden, assert_close, name, evaluation):
    arrays = golden(name)
    assert_close(
        sfpc(arrays["X"], arrays["c"], "cyclic", evaluation=evaluation), arrays["out_cyclic"], 1e-12
    )
    eye = torch.eye(len(arrays["M_cyclic"]), dtype=torch.float64)
    assert_close(
        sfpc(eye[None], arrays["c"], "cyclic", evaluation=evaluation)[0], arrays["M_cyclic"], 1e-12
    )


BOUND_LENGTH = 256
BOUND_CASES = list(cases(BOUNDS, r"(\w+)_k(\d+)_c"))


def gap(filter_name, c, spectrum):
    """|f - p| at the points of a spectrum, p in the Chebyshev basis."""
    p = np.polynomial.chebyshev.chebval(spectrum.numpy() / 2 + 1, c.numpy())
    return np.abs(FILTERS[filter_name](spectrum).numpy() - p)


@pytest.mark.parametrize(("name", "key", "filter_name", "order"), BOUND_CASES)
def test_error_in_the_operator_norm_is_that_on_the_spectrum(golden, name, key, filter_name, order):
    for evaluation in ["auto", "reference", "fft"]:
        arrays = golden(name)
        c = arrays[key]
        assert len(c) == int(order) + 1
        stored = {what: float(arrays[key.removesuffix("_c") + what]) for what in ("_op", "_sup")}
        values, vectors = torch.linalg.eigh(dense_operator("neumann", BOUND_LENGTH))
        exact = vectors @ torch.diag(FILTERS[filter_name](values)) @ vectors.T
        eye = torch.eye(BOUND_LENGTH, dtype=torch.float64)
        error = float(
            torch.linalg.matrix_norm(exact - sfpc(eye[None], c, evaluation=evaluation)[0], ord=2)
        )
        on_spectrum = gap(filter_name, c, eigenvalues("neumann", BOUND_LENGTH)).max()
        on_interval = gap(filter_name, c, torch.linspace(-4, 0, 4001, dtype=torch.float64)).max()
        assert error == pytest.approx(stored["_op"], abs=1e-12)
        assert error == pytest.approx(on_spectrum, abs=1e-12)
        assert on_interval == pytest.approx(stored["_sup"], abs=1e-12)
        assert error <= on_interval + 1e-12


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_fall_as_fast_as_the_theorem_says(golden, name):
    arrays = golden(name)
    orders = sorted(
        {int(found[1]) for key in arrays if (found := re.fullmatch(r"abs_k(\d+)_op", key))}
    )
    for filter_name, power, bound in (("abs", 1, 2.0), ("abs3", 3, 12.0)):
        scaled = [float(arrays[f"{filter_name}_k{k}_op"]) * k**power for k in orders]
        assert max(scaled) <= bound
        assert scaled == sorted(scaled)
    heat = [float(arrays[f"heat4_k{k}_op"]) for k in orders if k <= 16]
    falls = [after / before for before, after in itertools.pairwise(heat)]
    # smooth: each doubling of the order gains more than the one before
    assert falls == sorted(falls, reverse=True)
    assert heat[-1] < 1e-6
