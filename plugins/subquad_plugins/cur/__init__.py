"""CUR attention: attention through a few selected rows of Q and K. Light half: parameters and
descriptor.

`naive.py` has the mathematics, docs/reference/mixers/cur.md the choices and numbers.
Reference: François, Saillot, Klein, Bissyandé, Skupin 2025, Drop-in efficient self-attention
approximation method, Machine Learning 114:139, doi 10.1007/s10994-025-06768-3; "the paper" in this
folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Not, Site, param
from subquad_plugins.numerics.counts import CountedConfig, count_of_tokens

SCORED = ("sum", "abs", "embed")
SPACED = ("step", "step_full", "linspace")


def renormalise_under(function: str) -> Any:
    """The field `renormalise`: has an effect where `function` is softmax, as rows of others have
    no fixed sum.
    """
    return param(
        False,
        meaning="divide by the row sums of the approximation (not in the paper)",
        search=(False, True),
        when={function: ("softmax",)},
    )


class CURSettings(CountedConfig):
    """Which rows are selected, and how their square block is inverted: shared with MegaCUR."""

    counted = ("num_indices", 64)

    num_indices: int = count_of_tokens(
        64,
        meaning="rows selected from Q and from K; a sample with fewer tokens gives all it has",
        symbol="m",
        search=(16, 32, 64, 128, 256),
    )
    selection: Literal["sum", "abs", "embed", "step", "step_full", "linspace", "random"] = param(
        "abs",
        meaning="largest row sums, sums of magnitudes or values of one column; every (n // "
        "m)-th row, cut to m or not; "
        "evenly spread; random. In bf16 rows with near scores may change places",
        search=("sum", "abs", "embed", "step", "step_full", "linspace", "random"),
    )
    mode: Literal["same", "different"] = param(
        "same",
        meaning="same: one selection for Q and K; different: one each",
        search=("same", "different"),
    )
    same_source: Literal["q", "k", "q+k"] = param(
        "q+k",
        meaning="whose scores decide when both get the same selection",
        search=("q", "k", "q+k"),
        when={"mode": ("same",), "selection": SCORED},
    )
    column: int = param(
        0, meaning="the column that selection embed looks at", ge=0, when={"selection": ("embed",)}
    )
    force_class: Literal["auto", "always", "never"] = param(
        "auto",
        meaning="select the first token in any case, in place of the worst pick; auto: "
        "where there are prefix tokens",
        search=("auto", "always"),
        when={"selection": Not(*SPACED)},  # those always take the first token
    )
    pinv: Literal["iterative", "exact", "ridge"] = param(
        "iterative",
        meaning="pseudo-inverse: third-order iteration, singular values, or damped least squares",
        search=("iterative", "ridge"),
    )
    iterations: int = param(
        6,
        meaning="steps of the iterative pseudo-inverse",
        symbol="n_iter",
        ge=1,
        le=32,
        search=(1, 2, 4, 6, 8),
        when={"pinv": ("iterative",)},
    )
    start_gradient: bool = param(
        True,
        meaning="gradients pass through the scale that the iteration starts from",
        search=(True, False),
        when={"pinv": ("iterative",)},
    )
    ridge: float = param(
        1e-3,
        meaning="damping of pinv ridge, relative to |U|_1 |U|_inf",
        ge=1e-6,
        le=1,
        search=(1e-4, 1e-3, 1e-2, 1e-1),
        when={"pinv": ("ridge",)},
    )
    copy_rows: bool = param(
        False, meaning="selected queries get their exact rows R V", search=(False, True)
    )


class Config(AttentionConfig, CURSettings):
    """Parameters of CUR attention."""

    function: Literal["softmax", "laplace"] = param(
        "softmax",
        meaning="attention function: softmax, or Mega's Laplace",
        symbol="f",
        search=("softmax", "laplace"),
    )
    renormalise: bool = renormalise_under("function")

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError(
                "CUR attention cannot be causal: the inverse "
                "mixes all selected rows, early and late"
            )
        if self.column >= site.head_dim:
            raise ValueError(
                f"column {self.column} is outside a head of width {site.head_dim}: "
                f"use 0 to {site.head_dim - 1}"
            )

    def narrow(self, facts: Facts) -> Facts:
        # A forced class token is a position; "auto" forces one only where the site has prefix
        # tokens.
        by_content = self.selection in SCORED and self.force_class != "always"
        facts = replace(
            facts,
            permutation_equivariant=True if by_content else None,
            cross=self.mode == "different",
        )
        return super().narrow(facts)


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.cur.core:CUR",
    summary="CUR attention: low-rank attention through selected rows of Q and K",
    paper="François et al. 2025, Drop-in efficient self-attention approximation method, "
    "doi 10.1007/s10994-025-06768-3",
    facts=Facts(causal="never", padding_invariant=True, complexity="L"),
    variants={
        "few": {"num_indices": 5},
        "step": {"num_indices": 5, "selection": "step_full"},
        "linspace": {
            "num_indices": 5,
            "selection": "linspace",
            "renormalise": True,
            "copy_rows": True,
        },
        "embed": {"num_indices": 5, "selection": "embed", "column": 1, "force_class": "always"},
        "random": {"num_indices": 5, "selection": "random", "mode": "different"},
        "laplace": {
            "num_indices": 5,
            "selection": "sum",
            "function": "laplace",
            "same_source": "q",
        },
        "exact": {"num_indices": 5, "pinv": "exact"},
        "ridge": {"num_indices": 5, "pinv": "ridge"},
    },
)
