"""AGF, the attentive graph filter: self-attention as a learned filter on learned singular values
and vectors.

Light half: parameters and descriptor.
`naive.py` has the mathematics, docs/reference/mixers/agf.md the choices and numbers.
Reference: Wi, Choi, Park 2025, Learning Advanced Self-Attention for Linear Transformers in the
Singular Value Domain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Not, Published, param
from subquad_plugins.numerics.jacobi import jacobi_param, pole

FILTER = {"form": ("svd",)}
"""When the polynomial filter is there."""

POLYNOMIALS = {"order": Not(0)}
"""When it is more than a constant."""

JACOBI = {"basis": ("jacobi",)}


class Config(MixerConfig):
    """Parameters of AGF.

    Limits: the best published settings lie within order 2..10, a -0.5..2, b -2..2. Where the
    polynomials are orthogonal (a, b > -1) fp32 stays within 2e-4 of their largest value up to order
    32; beyond, the rounding of sigma takes over.
    """

    order: int = param(
        3,
        meaning="degree of the polynomial filter; 0: a constant",
        symbol="K",
        ge=0,
        le=32,
        search=range(2, 11),
        when=FILTER,
    )
    basis: Literal["jacobi", "legendre", "chebyshev", "monomial"] = param(
        "jacobi", meaning="polynomial basis", when=POLYNOMIALS
    )
    jacobi_a: float = jacobi_param("a", 1.0, search=(-0.5, 0.0, 1.0, 1.5, 2.0), when=JACOBI)
    jacobi_b: float = jacobi_param(
        "b", 0.2, search=(-2.0, -1.5, -1.0, -0.5, 0.0, 0.2, 0.5, 1.0, 1.5, 2.0), when=JACOBI
    )
    fix_identity: bool = param(
        True,
        meaning="hold the constant term at 1, so that the filter starts as the identity",
        when=FILTER,
    )
    coeff_activation: Literal["tanh", "none"] = param(
        "tanh",
        meaning="bounds the learned coefficients, or does not",
        when=(POLYNOMIALS, {"fix_identity": (False,)}),
    )
    sigma_map: Literal["unit", "symmetric"] = param(
        "unit",
        meaning="what the polynomial sees: sigma in (0, 1), or 2 sigma - 1 in (-1, 1)",
        when=POLYNOMIALS,
    )
    vector_activation: Literal["softmax", "sigmoid", "tanh", "none"] = param(
        "softmax",
        meaning="activation of the singular vectors, along features for U and tokens for V",
        symbol="rho",
    )
    ortho_weight: float = param(
        0.1,
        meaning="weight of the orthogonality loss; 0: not computed",
        symbol="gamma",
        ge=0,
        search=(0.0, 1e-4, 1e-3, 1e-2, 1e-1, 0.5),
    )
    ortho_norm: Literal["l1", "frobenius"] = param(
        "l1",
        meaning="norm of the orthogonality loss, over the head width squared",
        when={"ortho_weight": Not(0)},
    )
    mask_padding: bool = param(
        True, meaning="leave padded tokens out of V (LRA code); false: they take part (UEA code)"
    )
    form: Literal["svd", "uv", "svd_scalar"] = param(
        "svd",
        meaning="svd: AGF; uv: all singular values 1; svd_scalar: "
        "learned ones, the same for all tokens",
    )

    @model_validator(mode="after")
    def _no_pole(self) -> Config:
        if self.basis != "jacobi" or self.form != "svd":
            return self
        k = pole(self.order, self.jacobi_a, self.jacobi_b)
        if k is not None:
            raise ValueError(
                f"jacobi_a {self.jacobi_a:g} and jacobi_b {self.jacobi_b:g}: the Jacobi recurrence "
                f"divides by zero at k = {k}, and order is {self.order}; use order {k - 1} or "
                "less, or a jacobi_a + jacobi_b that is not -2, -3 or -4"
            )
        return self

    def narrow(self, facts: Facts) -> Facts:
        if self.mask_padding:
            return facts
        return replace(facts, padding_invariant=False)


VARIANTS = {
    "order 8": {"order": 8, "jacobi_a": 1.5, "jacobi_b": 1.0, "fix_identity": False},
    "legendre, symmetric": {"order": 4, "basis": "legendre", "sigma_map": "symmetric"},
    "frobenius, no filter": {"form": "uv", "ortho_norm": "frobenius"},
    "svd_scalar, no loss": {"form": "svd_scalar", "ortho_weight": 0.0},
}

PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.agf.mixer:AGF",
    summary="attentive graph filter: learned singular values and vectors, Jacobi polynomial filter",
    paper="Wi, Choi, Park 2025, Learning Advanced Self-Attention for Linear Transformers "
    "in the Singular Value Domain",
    facts=Facts(
        causal="never", padding_invariant=True, permutation_equivariant=True, complexity="L"
    ),
    variants=VARIANTS,
    published=Published(
        build="subquad_plugins.agf.published:PublishedAGF",
        over_attention={2048: 19.8 / 56.5},  # microseconds per token, AGF at commit 25e8424
        params={"order": 5, "jacobi_a": 2.0, "jacobi_b": -1.0},
    ),
)
