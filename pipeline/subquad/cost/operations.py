"""What one torch operation costs: FLOPs, and which tensors it has to touch. Names are those of
ATen.

Forward convolutions and attention have torch's own formulas
(`torch.utils.flop_counter`), others those of `subquad.cost.formulas`. Copies, gathers and constants
are 0 FLOPs: what they cost is bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.utils.flop_counter import flop_registry

from subquad.cost import formulas

Traffic = Literal["all", "none", "gather", "scatter"]
"""all: every input is read and every output written; none: only the description of a tensor
changes; gather: of the first input only as much is read as is written; scatter: of the tensor
changed in place only as much as is scattered.
"""


@dataclass(frozen=True)
class Rule:
    """The cost of one operation.

    Attributes:
        flops: its formula.
        traffic: see `Traffic`.
        overwrites: whether what it changes in place is not read first.
    """

    flops: formulas.Formula
    traffic: Traffic = "all"
    overwrites: bool = False


_UNTOUCHED = Rule(formulas.nothing, "none")
_FREE = """_unsafe_view _reshape_alias detach alias empty empty_like empty_strided
empty_permuted new_empty new_empty_strided _local_scalar_dense item is_nonzero resize resize_as
set_data set _assert_async _assert_scalar _assert_tensor_metadata lift_fresh sym_size sym_stride
sym_numel sym_storage_offset is_same_size record_stream _has_same_storage_numel _fw_primal
_efficientzerotensor result_type unsafe_split unsafe_split_with_sizes _resize_output
_linalg_check_errors _fused_sdp_choice _functional_assert_async _functional_assert_scalar
sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range is_set_to
is_pinned is_coalesced dense_dim"""
_MOVES = """clone cat stack hstack vstack roll flip rot90 repeat repeat_interleave
constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad1d_backward
reflection_pad2d_backward replication_pad1d replication_pad2d replication_pad1d_backward
replication_pad2d_backward select_scatter diagonal_scatter as_strided_scatter slice_backward
select_backward diagonal_backward unfold_backward value_selecting_reduction_backward tril triu
tril_indices triu_indices masked_select nonzero nonzero_static masked_scatter
masked_scatter_backward complex pixel_shuffle pixel_unshuffle channel_shuffle im2col zeros
zeros_like ones ones_like full full_like new_zeros new_ones new_full arange linspace logspace
eye scalar_tensor lift diag_embed block_diag _pin_memory pad_sequence _chunk_cat one_hot
resolve_conj resolve_neg _neg_view index_fill bartlett_window blackman_window hamming_window
hann_window kaiser_window fft_fftfreq fft_rfftfreq range _stack lu_unpack _lazy_clone
_pack_padded_sequence _pack_padded_sequence_backward _new_zeros_with_same_feature_meta
_jagged_to_padded_dense_forward _padded_dense_to_jagged_forward"""
_OVERWRITES = "copy _to_copy fill zero"
_GATHERS = "index index_select gather take embedding _unsafe_index"
_SCATTERS = "index_put _index_put_impl _unsafe_index_put index_copy scatter put"
_ADDS = "index_add scatter_add scatter_reduce index_reduce"
_RANDOM = """rand rand_like randn randn_like randint randint_like randperm normal uniform
bernoulli exponential random log_normal geometric cauchy poisson multinomial normal_functional"""
_REDUCTIONS = """max min median nanmedian mode kthvalue trace histc bincount equal allclose isin
cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper embedding_dense_backward
embedding_backward mse_loss smooth_l1_loss huber_loss binary_cross_entropy nll_loss_forward
nll_loss2d_forward nll_loss_backward renorm col2im unique_dim _unique2 unique_consecutive
unique_dim_consecutive _unique _aminmax histogram adaptive_avg_pool1d _is_all_true _is_any_true
segment_reduce _segment_reduce_backward soft_margin_loss binary_cross_entropy_with_logits
nll_loss2d_backward"""
_ELEMENTWISE = """softplus_backward glu glu_backward elu_backward leaky_relu_backward
hardtanh_backward polar _prelu_kernel _prelu_kernel_backward mse_loss_backward
smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward dist _masked_scale
log_sigmoid_forward log_sigmoid_backward cross linalg_cross hardswish_backward mish_backward
upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
_adaptive_avg_pool2d_backward avg_pool2d_backward max_pool2d_with_indices_backward
rrelu_with_noise _foreach_norm floor_divide hardswish hardsigmoid_backward hardshrink_backward
softshrink_backward soft_margin_loss_backward _fused_dropout _unsafe_masked_index"""
_PER_INPUT = {
    1: "_adaptive_avg_pool2d",
    2: "linalg_vector_norm native_dropout",
    3: "_weight_norm_interface",
    4: """_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward
    upsample_linear1d upsample_linear1d_backward""",
    5: "_softmax _log_softmax _safe_softmax _masked_softmax _fused_rms_norm",
    6: "_weight_norm_interface_backward",
    8: """native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit
    _batch_norm_with_update _native_batch_norm_legit_no_training _batch_norm_no_update
    upsample_bilinear2d upsample_bilinear2d_backward""",
    10: "_fused_rms_norm_backward",
    14: "native_layer_norm_backward native_group_norm_backward "
    "native_batch_norm_backward batch_norm_backward",
}
"""Operations for each real number of the first argument."""
_CUBIC = {
    1 / 3: "linalg_cholesky_ex linalg_ldl_factor_ex",
    2 / 3: "linalg_lu_factor_ex _linalg_det _linalg_slogdet linalg_lu cholesky_inverse",
    2: "linalg_inv_ex linalg_householder_product geqrf",
    4: "linalg_qr ormqr",
    9: "_linalg_eigh",
    10: "linalg_eigvals _linalg_eigvals",
    22: "_linalg_svd",
    25: "linalg_eig",
    26: "linalg_pinv",
    40: "linalg_matrix_exp",
}
"""Factors of n^3, as in Golub and Van Loan, Matrix Computations, for each square matrix of n
rows.
"""
_PRODUCTS = "mm bmm addmm baddbmm addbmm _addmm_activation"
_FORMULAS: dict[str, formulas.Formula] = {
    "_fft_c2c": partial(formulas.fft, 5),
    "_fft_r2c": partial(formulas.fft, 2.5),
    "_fft_c2r": partial(formulas.fft, 2.5, is_real_out=True),
    **dict.fromkeys(("sort", "argsort", "msort"), formulas.sort),
    "topk": formulas.topk,
    "_trilinear": formulas.trilinear,
    "searchsorted": partial(formulas.search, 0),
    "bucketize": partial(formulas.search, 1),
    **dict.fromkeys(("dot", "vdot", "mv", "addmv"), formulas.product),
    **dict.fromkeys(("mul", "div"), partial(formulas.per_output, 1, of_complex=6)),
    **dict.fromkeys(("addcmul", "addcdiv", "addr"), partial(formulas.per_output, 2)),
    **dict.fromkeys(_PRODUCTS.split(), formulas.matrix_product),
    **dict.fromkeys(("_cdist_forward", "_cdist_backward", "_euclidean_dist"), formulas.distances),
    "convolution_backward": formulas.convolution_backward,
    "mkldnn_convolution": formulas.convolution,
    "mkldnn_rnn_layer": partial(formulas.lstm, 2),
    "mkldnn_rnn_layer_backward": partial(formulas.lstm, 4),
    **dict.fromkeys(
        ("avg_pool2d", "max_pool2d_with_indices", "avg_pool3d", "max_pool3d_with_indices"),
        formulas.pool,
    ),
    "linalg_lstsq": partial(formulas.solve, 4),
    "_linalg_solve_ex": partial(formulas.solve, 2 / 3),
    **dict.fromkeys(("linalg_lu_solve", "linalg_ldl_solve"), partial(formulas.solve, 0, right=2)),
    **dict.fromkeys(
        ("cholesky_solve", "triangular_solve"), partial(formulas.solve, 0, matrix=1, right=0)
    ),
    "linalg_solve_triangular": partial(formulas.solve, 0),
}
_GROUPS = {
    _FREE: _UNTOUCHED,
    _MOVES: Rule(formulas.nothing),
    _OVERWRITES: Rule(formulas.nothing, overwrites=True),
    _GATHERS: Rule(formulas.nothing, "gather"),
    _SCATTERS: Rule(formulas.nothing, "scatter"),
    _ADDS: Rule(lambda args, out: formulas.reals(formulas.tensors_in(args)[-1]), "scatter"),
    _RANDOM: Rule(partial(formulas.per_output, 1), overwrites=True),
    _REDUCTIONS: Rule(partial(formulas.per_input, 1)),
    _ELEMENTWISE: Rule(partial(formulas.per_output, 1)),
    **{names: Rule(partial(formulas.per_input, factor)) for factor, names in _PER_INPUT.items()},
    **{names: Rule(partial(formulas.cubic, factor)) for factor, names in _CUBIC.items()},
}
_RULES = {
    **{name: rule for names, rule in _GROUPS.items() for name in names.split()},
    **{name: Rule(formula) for name, formula in _FORMULAS.items()},
}


def _sparse_product(args: Sequence[Any], out: Any) -> int:
    """Each value of the sparse factor multiplies a row or a column of the dense one."""
    *_, left, right = formulas.tensors_in(args)
    is_right = left.layout == torch.strided
    *_, values = formulas.stored(right if is_right else left)
    return 2 * values.numel() * (left.shape[0] if is_right else right.shape[-1])


_BUILDS = "_sparse_coo_tensor_with_dims_and_tensors _coalesce _coalesced clone _to_copy"
SPARSE = {
    **dict.fromkeys(_BUILDS.split(), Rule(formulas.nothing)),
    **dict.fromkeys(("mm", "addmm", "_sparse_addmm"), Rule(_sparse_product)),
}
"""Rules of sparse tensors' operators, by name; where there is none nobody can say."""


def rule_of(func: Any) -> Rule | None:
    """The rule of an operator (`torch._ops.OpOverload`); None where nobody can say what it costs.

    A formula that a library registered for its own operators (`register_flop_formula`) counts too.
    """
    schema = func._schema
    namespace, _, name = schema.name.partition("::")
    if namespace in ("profiler", "prim"):
        return _UNTOUCHED
    if namespace not in ("aten", "prims"):  # those of torch.func's derivatives have ATen's names
        return _registered(func.overloadpacket)
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return _UNTOUCHED
    if schema.is_mutable and name not in _RULES:
        name = name.removesuffix("_")
    packet = getattr(torch.ops.aten, name, None)
    return _RULES.get(name) or _registered(packet) or _by_tag(name, packet)


def _registered(packet: Any) -> Rule | None:
    formula = flop_registry.get(packet)
    return formula and Rule(lambda args, out: formula(*args, out_val=out))


def _by_tag(name: str, packet: Any) -> Rule | None:
    """In-place and `out=` forms are not tagged throughout, so any form speaks for all."""
    overloads = packet.overloads() if packet else ()
    tags = {tag for overload in overloads for tag in getattr(packet, overload).tags}
    if torch.Tag.pointwise in tags or name.startswith("_foreach_"):
        return Rule(_written_or_read)
    if torch.Tag.reduction in tags:
        return Rule(partial(formulas.per_input, 1))
    if torch.Tag.view_copy in tags:
        return Rule(formulas.nothing)
    return None


def _written_or_read(args: Sequence[Any], out: Any) -> int:
    """One for each number; an in-place form of a list returns nothing."""
    return formulas.reals(out) or formulas.reals(args[0])
