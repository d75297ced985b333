"""What one torch operation costs: its formula, and which tensors it has to touch. Names are those of ATen.

Matrix products, forward convolutions and attention have torch's own formulas (`torch.utils.flop_counter`). Copies,
gathers and constants are 0 FLOPs: what they cost is bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.flop_counter import flop_registry

from subquad.testing import formulas
from subquad.testing.formulas import Formula, cubic, fft, nothing, per_input, per_output, reals, solve, tensors

Traffic = Literal["all", "none", "gather", "scatter"]
"""all: every input is read and every output written; none: only the description of a tensor changes; gather: of the
first input only as much is read as is written; scatter: of the tensor changed in place only as much as is scattered."""


@dataclass(frozen=True)
class Rule:
    """The cost of one operation.

    Attributes:
        flops: its formula.
        traffic: see `Traffic`.
        overwrites: whether what it changes in place is not read first.
    """

    flops: Formula
    traffic: Traffic = "all"
    overwrites: bool = False


_FREE = """_unsafe_view _reshape_alias detach alias empty empty_like empty_strided empty_permuted new_empty
new_empty_strided _local_scalar_dense item is_nonzero resize resize_as set_data set _assert_async _assert_scalar
_assert_tensor_metadata lift_fresh sym_size sym_stride sym_numel sym_storage_offset is_same_size record_stream
_has_same_storage_numel _fw_primal _efficientzerotensor result_type unsafe_split unsafe_split_with_sizes
_resize_output _linalg_check_errors _fused_sdp_choice _functional_assert_async _functional_assert_scalar
sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range is_set_to is_pinned is_coalesced
dense_dim"""
_MOVES = """clone cat stack hstack vstack roll flip rot90 repeat repeat_interleave constant_pad_nd reflection_pad1d
reflection_pad2d reflection_pad1d_backward reflection_pad2d_backward replication_pad1d replication_pad2d
replication_pad1d_backward replication_pad2d_backward slice_scatter select_scatter diagonal_scatter as_strided_scatter
slice_backward select_backward diagonal_backward unfold_backward value_selecting_reduction_backward tril triu
tril_indices triu_indices masked_select nonzero nonzero_static masked_scatter masked_scatter_backward complex
pixel_shuffle pixel_unshuffle channel_shuffle im2col zeros zeros_like ones ones_like full full_like new_zeros new_ones
new_full arange linspace logspace eye scalar_tensor lift lift_fresh_copy diag_embed block_diag split_with_sizes_copy
unbind_copy expand_copy _pin_memory view_as_real_copy view_as_complex_copy pad_sequence _chunk_cat one_hot
resolve_conj resolve_neg _neg_view _conj_copy index_fill bartlett_window blackman_window hamming_window hann_window
kaiser_window fft_fftfreq fft_rfftfreq range _stack lu_unpack _lazy_clone"""
_OVERWRITES = "copy _to_copy fill zero"
_GATHERS = "index index_select gather take embedding _unsafe_index"
_SCATTERS = "index_put _index_put_impl _unsafe_index_put index_copy scatter put"
_ADDS = "index_add scatter_add scatter_reduce index_reduce"
_RANDOM = """rand rand_like randn randn_like randint randint_like randperm normal uniform bernoulli exponential random
log_normal geometric cauchy poisson multinomial normal_functional"""
_REDUCTIONS = """max min var std var_mean std_mean norm prod any all argmax argmin aminmax median nanmedian mode
kthvalue count_nonzero trace histc bincount equal allclose isin cumsum cumprod cummax cummin logcumsumexp
_cummax_helper _cummin_helper embedding_dense_backward embedding_backward mse_loss smooth_l1_loss huber_loss
binary_cross_entropy nll_loss_forward nll_loss2d_forward nll_loss_backward renorm col2im unique_dim _unique2
unique_consecutive unique_dim_consecutive _unique _aminmax histogram adaptive_avg_pool1d _is_all_true _is_any_true
segment_reduce _segment_reduce_backward soft_margin_loss binary_cross_entropy_with_logits nll_loss2d_backward"""
_ELEMENTWISE = """softplus_backward glu glu_backward elu_backward leaky_relu_backward hardtanh_backward polar
heaviside _prelu_kernel _prelu_kernel_backward mse_loss_backward smooth_l1_loss_backward huber_loss_backward
binary_cross_entropy_backward logit_backward gelu_backward threshold_backward native_dropout_backward dist
_masked_scale log_sigmoid_forward log_sigmoid_backward lerp clamp cross linalg_cross hardswish_backward mish_backward
_conj_physical upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
_adaptive_avg_pool2d_backward avg_pool2d_backward max_pool2d_with_indices_backward rrelu_with_noise _foreach_norm
floor_divide hardswish hardsigmoid_backward hardshrink_backward softshrink_backward soft_margin_loss_backward
__lshift__ __rshift__ _fused_dropout _unsafe_masked_index"""
_PER_INPUT = {
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "_masked_softmax"), 5),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"), 4),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm"), 8),
    **dict.fromkeys(("_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), 8),
    **dict.fromkeys(("_batch_norm_with_update", "_batch_norm_no_update"), 8),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward", "batch_norm_backward"), 14),
    "native_batch_norm_backward": 14,
    "_fused_rms_norm": 5,
    "_fused_rms_norm_backward": 10,
    "linalg_vector_norm": 2,
    "_weight_norm_interface": 3,
    "_weight_norm_interface_backward": 6,
    "native_dropout": 2,
    "_adaptive_avg_pool2d": 1,
    "upsample_linear1d": 4,
    "upsample_bilinear2d": 8,
    "upsample_linear1d_backward": 4,
    "upsample_bilinear2d_backward": 8,
}
_LINEAR_ALGEBRA: dict[str, Formula] = {
    "linalg_inv_ex": cubic(2),
    "linalg_lu_factor_ex": cubic(2 / 3),
    "_linalg_det": cubic(2 / 3),
    "_linalg_slogdet": cubic(2 / 3),
    "linalg_lu": cubic(2 / 3),
    "linalg_cholesky_ex": cubic(1 / 3),
    "cholesky_inverse": cubic(2 / 3),
    "linalg_qr": cubic(4),
    "linalg_householder_product": cubic(2),
    "geqrf": cubic(2),
    "_linalg_svd": cubic(22),
    "_linalg_eigh": cubic(9),
    "linalg_eig": cubic(25),
    "linalg_eigvals": cubic(10),
    "_linalg_eigvals": cubic(10),
    "linalg_pinv": cubic(26),
    "linalg_ldl_factor_ex": cubic(1 / 3),
    "ormqr": cubic(4),
    "linalg_matrix_exp": cubic(40),
    "linalg_lstsq": solve(4),
    "_linalg_solve_ex": solve(2 / 3),
    "linalg_lu_solve": solve(0, right=2),
    "linalg_ldl_solve": solve(0, right=2),
    "cholesky_solve": solve(0, matrix=1, right=0),
    "linalg_solve_triangular": solve(0),
    "triangular_solve": solve(0, matrix=1, right=0),
}
_FORMULAS: dict[str, Formula] = {
    "_fft_c2c": fft(5, None),
    "_fft_r2c": fft(2.5, "in"),
    "_fft_c2r": fft(2.5, "out"),
    **dict.fromkeys(("sort", "argsort", "msort"), formulas.sort),
    "topk": formulas.topk,
    **dict.fromkeys(("searchsorted", "bucketize"), formulas.search),
    **dict.fromkeys(("dot", "vdot", "mv", "addmv"), formulas.vector_product),
    **dict.fromkeys(("mul", "div"), formulas.product),
    **dict.fromkeys(("addcmul", "addcdiv", "addr"), per_output(2)),
    "_addmm_activation": lambda args, out: 2 * out.numel() * args[1].shape[-1],
    "addbmm": lambda args, out: 2 * args[1].numel() * args[2].shape[-1],
    **dict.fromkeys(("_cdist_forward", "_cdist_backward", "_euclidean_dist"), formulas.distances),
    "convolution_backward": formulas.convolution_backward,
    "mkldnn_convolution": formulas.mkldnn_convolution,
    "mkldnn_rnn_layer": formulas.recurrent(1),
    "mkldnn_rnn_layer_backward": formulas.recurrent(2),
    **dict.fromkeys(("avg_pool2d", "max_pool2d_with_indices", "avg_pool3d", "max_pool3d_with_indices"), formulas.pool),
    **_LINEAR_ALGEBRA,
}


def _rules() -> dict[str, Rule]:
    rules = {name: Rule(nothing, "none") for name in _FREE.split()}
    rules |= {name: Rule(nothing) for name in _MOVES.split()}
    rules |= {name: Rule(nothing, overwrites=True) for name in _OVERWRITES.split()}
    rules |= {name: Rule(nothing, "gather") for name in _GATHERS.split()}
    rules |= {name: Rule(nothing, "scatter") for name in _SCATTERS.split()}
    rules |= {name: Rule(lambda args, out: reals(tensors(args)[-1]), "scatter") for name in _ADDS.split()}
    rules |= {name: Rule(per_output(1), overwrites=True) for name in _RANDOM.split()}
    rules |= {name: Rule(per_input(1)) for name in _REDUCTIONS.split()}
    rules |= {name: Rule(per_output(1)) for name in _ELEMENTWISE.split()}
    rules |= {name: Rule(per_input(factor)) for name, factor in _PER_INPUT.items()}
    return rules | {name: Rule(formula) for name, formula in _FORMULAS.items()}


_RULES = _rules()


def rule_of(func: Any) -> Rule | None:
    """The rule of an operator (`torch._ops.OpOverload`); None where nobody can say what it costs.

    A formula that a library registered for its own operators (`register_flop_formula`) counts too.
    """
    namespace, _, name = func._schema.name.partition("::")
    if namespace != "aten":
        return Rule(nothing, "none") if namespace in ("profiler", "prim") else _registered(func.overloadpacket)
    base = name.removesuffix("_") if func._schema.is_mutable and name not in _RULES else name
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return Rule(nothing, "none")
    return _RULES.get(base) or _registered(getattr(torch.ops.aten, base, None)) or _by_tag(base)


def _registered(packet: Any) -> Rule | None:
    formula = flop_registry.get(packet)
    return None if formula is None else Rule(lambda args, out: formula(*args, out_val=out))


def _by_tag(name: str) -> Rule | None:
    """In-place and `out=` forms are not tagged throughout, so any form speaks for all."""
    packet = getattr(torch.ops.aten, name, None)
    tags = {tag.name for one in packet.overloads() for tag in getattr(packet, one).tags} if packet else set()
    if "pointwise" in tags or name.startswith("_foreach_"):
        return Rule(lambda args, out: reals(out) or reals(args[0]))
    if "reduction" in tags:
        return Rule(per_input(1))
    return Rule(nothing) if "view_copy" in tags else None
