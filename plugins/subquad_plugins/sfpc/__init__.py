"""SFPC: tokens mixed by a polynomial of a fixed L x L matrix, p(T) = sum_k c_k T^k, whose
coefficients are learned.

Light half: parameters and descriptor.
`naive.py` has the mathematics, docs/reference/mixers/sfpc.md the choices and numbers.
Reference: Hussain et al. 2025, Sub-Quadratic Token Mixing via Spectral Filtering and Polynomial
Functional Calculus, doi 10.5281/zenodo.18051154.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Range, Site, param
from subquad_plugins.numerics.jacobi import POLE_DISTANCE, jacobi_param, pole

MOST_TAPS = 257
"""Longest kernel that `auto` leaves to the convolution; beyond, the FFT is as quick (one CPU
core, D = 128).
"""

LARGEST_MONOMIAL_ORDER = 12
"""Powers of T in [-4, 0]: 4^12 = 2^24, so that beyond, fp32's rounding of the tokens outgrows
the tokens.
"""

LARGEST_ORDER = 64
"""For all but the Chebyshev basis and the shifts, whose terms stay within [-1, 1] and cost one
or two taps each.
"""

HELD_IN_FP32 = 1e30
"""Largest power of a given circulant's norm: well below the 3e38 that fp32 ends at."""


_JACOBI = (-0.5, 0.0, 0.5, 1.0, 1.5, 2.0)


class Config(MixerConfig):
    """Parameters of SFPC."""

    operator: Literal["laplacian", "shift", "cyclic", "circulant"] = param(
        "laplacian",
        meaning="the fixed matrix: second difference, shift by "
        "one (causal), shift around the end, or circulant",
        symbol="T",
    )
    boundary: Literal["neumann", "dirichlet", "periodic"] = param(
        "neumann",
        meaning="ends of the Laplacian: constants kept, zeros beyond, or the ends joined",
        search=("neumann", "dirichlet", "periodic"),
        when={"operator": ("laplacian",)},
    )
    order: int = param(
        8,
        meaning="degree of the polynomial",
        symbol="k",
        ge=1,
        le=1024,
        search=(2, 4, 8, 16, 32, 64),
    )
    basis: Literal["auto", "monomial", "monomial_rescaled", "chebyshev", "jacobi"] = param(
        "auto",
        meaning="basis of the polynomial; auto: chebyshev for a Laplacian, monomial else. Of a "
        "Laplacian, monomial is in T, all others in T / 2 + I",
        search=("auto", "monomial_rescaled", "jacobi"),
        when={"operator": ("laplacian",)},
    )
    jacobi_a: float = jacobi_param("a", 0.0, search=_JACOBI, when={"basis": ("jacobi",)})
    jacobi_b: float = jacobi_param("b", 0.0, search=_JACOBI, when={"basis": ("jacobi",)})
    coefficients: Literal["shared", "head", "channel"] = param(
        "channel",
        meaning="one polynomial for all channels (the paper), "
        "one for each head or one for each channel",
        search=("shared", "head", "channel"),
    )
    first_column: Literal["learned", "decay"] | tuple[float, ...] = param(
        "learned",
        meaning="first column of the circulant: learned, a fixed exponential decay, or its values",
        symbol="f",
        search=("learned", "decay"),
        when={"operator": ("circulant",)},
    )
    decay_length: float = param(
        16.0,
        meaning="tokens over which the circulant's first column "
        "falls to 1/e, at the start if it is learned",
        unit="tokens",
        gt=0,
        search=Range(1.0, 256.0, log=True),
        when={"first_column": ("learned", "decay")},
    )
    projections: bool = param(
        True,
        meaning="a learned projection on either side; false: the bare operator, only "
        "coefficients are learned",
    )
    gate: Literal["none", "silu", "sigmoid"] = param(
        "none",
        meaning="multiply by an activated projection of the input",
        search=("none", "silu", "sigmoid"),
        when={"projections": (True,)},
    )
    evaluation: Literal["auto", "reference", "conv", "fft"] = param(
        "auto",
        meaning="how p(T) x is computed: Horner's or Clenshaw's scheme, a convolution with k + 1 "
        "or 2 k + 1 taps, Fourier, cosine or sine transforms, or the quickest that holds in fp32; "
        "a Laplacian's monomial takes Horner's scheme alone",
    )

    @property
    def matrix(self) -> str:
        """The operator in one word: a Laplacian by its boundary."""
        return self.boundary if self.operator == "laplacian" else self.operator

    @property
    def polynomials(self) -> str:
        """The basis, decided."""
        if self.basis != "auto":
            return self.basis
        return default_basis(self.operator)

    @property
    def path(self) -> str:
        """The evaluation, decided from the parameters alone, so that the cost grows in one way
        with the length.
        """
        if self.evaluation != "auto":
            return self.evaluation
        return quickest(self.operator, self.order, self.polynomials)

    def check(self, site: Site) -> None:
        given = self.first_column
        if isinstance(given, tuple) and site.max_len and len(given) != site.max_len:
            raise ValueError(
                f"first_column has {len(given)} values and the longest "
                f"sequence {site.max_len} tokens: give {site.max_len} values"
            )

    def narrow(self, facts: Facts) -> Facts:
        if self.operator == "shift":
            facts = replace(facts, causal="always")
        if self.operator == "circulant":
            bound = None if self.first_column == "decay" else "site"
            return replace(
                facts, padding_invariant=False, max_length=bound, complexity="L log L", leak=1e-12
            )
        if self.path == "fft":
            return replace(facts, complexity="L log L", leak=1e-12)
        return facts

    @model_validator(mode="after")
    def _evaluation_holds_in_fp32(self) -> Config:
        if self.operator == "circulant" and self.evaluation == "conv":
            raise ValueError(
                "evaluation conv with operator circulant: its kernel is "
                "as long as the sequence; use auto, fft or reference"
            )
        if self.evaluation in ("conv", "fft") and cancels(self.operator, self.polynomials):
            raise ValueError(
                f"evaluation {self.evaluation} with basis monomial: the "
                "taps of T^k add up to 0 from parts as large as 4^k, which "
                "fp32 loses; use auto or reference, or basis chebyshev"
            )
        return self

    @model_validator(mode="after")
    def _order_can_be_computed(self) -> Config:
        if (
            self.operator == "laplacian"
            and self.basis == "monomial"
            and self.order > LARGEST_MONOMIAL_ORDER
        ):
            raise ValueError(
                f"order {self.order} with basis monomial: powers of T reach "
                f"4^{self.order}, so that on smooth tokens fp32 loses every digit; "
                f"use order {LARGEST_MONOMIAL_ORDER} or less, or basis chebyshev"
            )
        if self.order > LARGEST_ORDER and (
            self.operator == "circulant" or self.basis in ("monomial_rescaled", "jacobi")
        ):
            if self.operator == "circulant":
                where = "operator circulant"
            else:
                where = f"basis {self.basis}"
            raise ValueError(
                f"order {self.order} with {where}: use order {LARGEST_ORDER} or less, or basis "
                "chebyshev of a laplacian, or a shift, which go to 1024"
            )
        return self

    @model_validator(mode="after")
    def _no_pole(self) -> Config:
        if self.basis != "jacobi":
            return self
        if abs(self.jacobi_a + self.jacobi_b + 2) < POLE_DISTANCE:
            raise ValueError(
                f"jacobi_a {self.jacobi_a:g} and jacobi_b {self.jacobi_b:g}: the "
                "Jacobi recurrence divides by zero at k = 2, and P_1 is a constant, "
                "which mixes no tokens; use a jacobi_a + jacobi_b that is not -2"
            )
        k = pole(self.order, self.jacobi_a, self.jacobi_b)
        if k is not None:
            raise ValueError(
                f"jacobi_a {self.jacobi_a:g} and jacobi_b {self.jacobi_b:g}: the Jacobi recurrence "
                f"divides by zero at k = {k}, and order is {self.order}; use order {k - 1} or "
                "less, or a jacobi_a + jacobi_b that is not -3 or -4"
            )
        return self

    @model_validator(mode="after")
    def _given_column_stays_finite(self) -> Config:
        given = self.first_column
        if isinstance(given, tuple):
            norm = sum(abs(value) for value in given)
            if not 0 < norm <= HELD_IN_FP32 ** (1 / self.order):
                raise ValueError(
                    f"first_column has magnitudes that add up to {norm:g}: give a "
                    "sum above 0 and at most "
                    f"{HELD_IN_FP32 ** (1 / self.order):.3g}, whose power "
                    f"{self.order} fp32 can hold"
                )
        return self


def default_basis(operator: str) -> str:
    """Chebyshev where the spectrum is an interval; powers are the orthogonal polynomials of the
    circle's.
    """
    return "chebyshev" if operator == "laplacian" else "monomial"


def cancels(operator: str, basis: str) -> bool:
    """Whether the kernel's taps are so large that their sum cancels: T^k of a Laplacian has taps
    up to 4^k, sum 0.
    """
    return operator == "laplacian" and basis == "monomial"


def quickest(operator: str, order: int, basis: str) -> str:
    """Which evaluation is quickest, from the length of the kernel, among those that fp32 holds."""
    if cancels(operator, basis):
        return "reference"
    if operator == "laplacian":
        taps = 2 * order + 1
    else:
        taps = order + 1
    return "fft" if operator == "circulant" or taps > MOST_TAPS else "conv"


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.sfpc.mixer:SFPC",
    summary="a learned polynomial of a fixed matrix (Laplacian, "
    "shift, circulant), applied along the sequence",
    paper="Hussain et al. 2025, Sub-Quadratic Token Mixing via Spectral Filtering and "
    "Polynomial Functional Calculus",
    facts=Facts(causal="never", padding_invariant=True, complexity="L"),
    variants={
        "dirichlet": {"boundary": "dirichlet", "coefficients": "shared"},
        "periodic": {"boundary": "periodic", "order": 16},
        "jacobi, gated": {
            "basis": "jacobi",
            "jacobi_a": 0.5,
            "jacobi_b": -0.25,
            "coefficients": "head",
            "gate": "silu",
        },
        "shift": {"operator": "shift"},
        "cyclic": {"operator": "cyclic", "gate": "sigmoid"},
        "circulant": {"operator": "circulant"},
        "decay": {"operator": "circulant", "first_column": "decay"},
        "transform": {"evaluation": "fft"},
        "recurrence": {
            "evaluation": "reference",
            "basis": "monomial",
            "order": 3,
            "projections": False,
        },
        "shift by FFT": {"operator": "shift", "evaluation": "fft"},
    },
)
