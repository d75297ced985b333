"""The core of AGF: singular vectors, filter and the two products of linear cost, (U * F(sigma))
(V^T value).

Operation "agf.core": the reference is in plain torch around "agf.filter", all of it in fp32 at
least, as softmax over thousands of tokens gives weights that fp16 cannot hold; "triton" makes
everything in two passes over the tokens, two backward, keeps nothing between them, multiplies in
the number format of its operands and sums in fp32 (`kernel.py`).

Letters: B batch, L length, D model width, H heads, E head width, K order.
Reference: Wi, Choi, Park 2025, Eq. 7-12.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.agf.filter import Steps, filtered_vectors
from subquad_plugins.agf.ortho import head_products
from subquad_plugins.numerics.launching import FORMATS, fitting_mask, kernels_run
from subquad_plugins.numerics.tensors import MASKED_LOGIT, wide

WIDEST_HEAD = 256
"""Bytes of one token's numbers of a head that the kernel's states still fit for: a width of 64 in
float32, of 128 in half precision.
"""

WIDEST_WITH_GRAMS = 64
"""Head width that the sums of U^T U and V^T V fit beside it for; of wider heads they are made
apart, in plain torch.
"""

Core = tuple[Tensor, Tensor | None, Tensor | None]


class Given(NamedTuple):
    """What the core is made of.

    Attributes:
        projected: what U, sigma, V and the values are made of, side by side, (B, L, 4 D); without
            a filter there is no sigma, (B, L, 3 D).
        coefficients: (K+1,) of the filter, float32 at least; None: no filter.
        steps: see `filter.filtered_vectors`.
        keep: (B, L) bool, True = real token; the others are left out of V.
        num_heads: H.
        activation: of the singular vectors: softmax (U over the features, V over the tokens),
            sigmoid, tanh or none.
        singular: S, singular values that are the same for all tokens, (H, E) or (1, 1); None: ones.
        grams: whether to return U^T U and V^T V.
    """

    projected: Tensor
    coefficients: Tensor | None
    steps: Steps | None
    keep: Tensor | None
    num_heads: int
    activation: str = "softmax"
    singular: Tensor | None = None
    grams: bool = False


def core(given: Given) -> Core:
    """(U * F(sigma)) S (V^T value) per head.

    Returns:
        (B, L, D) in the dtype of projected, and both products (B, H, E, E) or None.
    """
    return _CORE(given.projected, given)


def _reference(projected: Tensor, given: Given) -> Core:
    _, *logits, _, value = _parts(given)
    left, right = _vectors(given)
    products = _grams(left, right, given)
    summary = head_products(right, wide(value), given.num_heads)
    if given.singular is not None:
        summary = summary * given.singular.to(summary.dtype)[..., None]
    if given.coefficients is not None:
        left = filtered_vectors(left, wide(*logits), given.coefficients, given.steps)
    heads = left.unflatten(-1, (given.num_heads, -1)).transpose(1, 2)
    return (heads @ summary).transpose(1, 2).flatten(2).to(projected.dtype), *products


_CORE = Operation("agf.core", reference=_reference)


def _parts(given: Given) -> tuple[Tensor, ...]:
    """What U, sigma, V and the values are made of, or U, V and the values."""
    return given.projected.chunk(3 if given.coefficients is None else 4, -1)


def _vectors(given: Given) -> tuple[Tensor, Tensor]:
    """U and V, (B, L, D) each: U activated along each head's features, V along the tokens."""
    left, *_, right, _ = (wide(part) for part in _parts(given))
    keep = given.keep
    activation = given.activation
    if activation == "softmax":
        if keep is not None:
            right = right.masked_fill(~keep[..., None], MASKED_LOGIT)
        return torch.softmax(left.unflatten(-1, (given.num_heads, -1)), -1).flatten(
            -2
        ), torch.softmax(right, 1)
    activate = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "none": torch.clone}[activation]
    right = activate(right)
    return activate(left), right if keep is None else right.masked_fill(~keep[..., None], 0.0)


def _grams(left: Tensor, right: Tensor, given: Given) -> tuple[Tensor | None, Tensor | None]:
    if not given.grams:
        return None, None
    return head_products(left, left, given.num_heads), head_products(right, right, given.num_heads)


def _fits(projected: Tensor, given: Given) -> bool:
    """Whether the kernel takes it."""
    coefficients = given.coefficients
    if coefficients is None or given.singular is not None or given.activation != "softmax":
        return False
    width, rest = divmod(projected.shape[2], 4 * given.num_heads)
    return (
        width * projected.element_size() <= WIDEST_HEAD
        and not rest
        and coefficients.dtype == torch.float32
        and fitting_mask(given.keep, projected)
        and kernels_run(projected, coefficients, given.keep)
    )


@_CORE.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_fits)
def _triton(projected: Tensor, given: Given) -> Core:
    from subquad_plugins.agf.kernel import Core as Fused

    apart = given.grams and projected.shape[2] // (4 * given.num_heads) > WIDEST_WITH_GRAMS
    until = given._fields.index("activation")
    found: Any = Fused.apply(*given[:until], given.grams and not apart)
    return (found[0], *_grams(*_vectors(given), given)) if apart else found
