"""Which published modules were tried, and what came of it: the page and its test are made of this.

Each wrapper in `wild_wrappers.py` claims what the module's own arguments offer. A fault has the
checks that find it and the experiment that shows it without subquad, with its figure.
"""

from __future__ import annotations

from pathlib import Path

import wild_experiments as shown
from wild_experiments import D
from wild_trial import Fault, Trial

DATE = "2026-11-26"
TORCH = "2.15.0"
WRAPPERS = Path(__file__).parent / "wild_wrappers.py"
LEFT_OUT = {
    "compiled": "which tests torch's compiler as much as the module",
    "complexity": "as no cost is claimed",
}
ALSO = """
einops==0.8.2 einops-exts==0.0.4 einx==0.4.3 frozendict==2.5.1 loguru==0.7.3 jaxtyping==0.3.11
wadler-lindig==0.1.8 axial-positional-embedding==0.3.12 product-key-memory==0.3.0
hyper-connections==0.4.11 rotary-embedding-torch==0.9.1 torch-einops-utils==0.2.0
mixture-of-experts==0.2.3 tensordict==0.15.3 pyvers==0.2.3 assoc-scan==0.0.6 beartype==0.23.1
x-mlps-pytorch==0.6.9 ema-pytorch==0.8.3 colt5-attention==0.11.2
"""
"""What the packages import."""

HEADS = {"heads": 2, "dim_head": 8}
PADDING = ("padding-content", "padding-amount")
CAUSAL = ("causal-outputs", "causal-gradients", "causal-lengths")
CALLED = "The call raises under bf16 autocast; in float32 every check passes."

TRIALS = (
    Trial(
        "performer-pytorch==1.1.4",
        "Performer",
        "performer_pytorch:SelfAttention",
        {"dim": D, **HEADS},
        takes_causal=True,
        mask="mask",
        faults=(
            Fault(PADDING, shown.padded_content, 0.3),
            Fault(("gradients",), shown.slope, 0.0022),
            Fault(CAUSAL, shown.later_tokens, 0.31, causal=True),
            Fault(PADDING, shown.padded_content, 0.29, causal=True),
            Fault(("gradients",), shown.slope, 0.0024, causal=True),
        ),
        note="Key features are scaled by a maximum over all positions, which has no gradient.",
    ),
    Trial(
        "FLASH-pytorch==0.1.9",
        "Flash",
        "flash_pytorch:FLASH",
        {"dim": D, "group_size": 16, "query_key_dim": 16},
        takes_causal=True,
        mask="mask",
        faults=(
            Fault(("padding-amount",), shown.padded_before, 0.92),
            Fault(("padding-amount",), shown.padded_before, 0.78, causal=True),
        ),
        note="Groups are counted from the first position, padding included.",
    ),
    Trial(
        "FLASH-pytorch==0.1.9",
        "GatedUnit",
        "flash_pytorch:GAU",
        {"dim": D, "query_key_dim": 16},
        takes_causal=True,
        mask="mask",
        faults=(
            Fault(("padding-amount",), shown.padded_amount, 0.00496),
            Fault(("causal-lengths",), shown.longer_sequence, 0.0017, causal=True),
            Fault(("padding-amount",), shown.padded_amount, 0.0022, causal=True),
        ),
        note="Attention is divided by the length of the whole sequence, padding included.",
    ),
    Trial(
        "nystrom-attention==0.0.14",
        "Nystrom",
        "nystrom_attention:NystromAttention",
        {"dim": D, "num_landmarks": 16, **HEADS},
        mask="mask",
        faults=(
            Fault(("mask-of-ones",), shown.mask_of_ones, 0.17),
            Fault(
                ("all-padded", "batch-outputs", "batch-gradients"),
                shown.other_samples,
                0.053,
            ),
        ),
        note="The pseudo-inverse starts from a maximum over the batch.",
    ),
    Trial(
        "local-attention==1.11.2",
        "Local",
        "local_attention:LocalMHA",
        {"dim": D, "window_size": 16, **HEADS},
        takes_causal=True,
        mask="mask",
        faults=(
            Fault(("mask-of-ones",), shown.mask_of_ones, 0.435),
            Fault(("padding-amount",), shown.padded_amount, 0.0791),
        ),
        note="Keys with which it fills the last window are attended; built causal, it passes.",
    ),
    Trial(
        "h-transformer-1d==0.1.9",
        "Hierarchical",
        "h_transformer_1d.h_transformer_1d:HAttention1D",
        {"dim": D, "block_size": 16, **HEADS},
        mask="mask",
        faults=(Fault(PADDING, shown.padded_content, 2.31),),
    ),
    Trial(
        "linear_attention==0.2.0",
        "Linear",
        "linear_attention:LinearSelfAttention",
        {"dim": D, "heads": 2},
        takes_causal=True,
        mask="input_mask",
        faults=(
            Fault(PADDING, shown.padded_content, 14.6),
            Fault(PADDING, shown.padded_before, 0.685, causal=True),
        ),
        note="The mask is taken and not used.",
    ),
    Trial(
        "linear-attention-transformer==0.19.1",
        "LinearOfTransformer",
        "linear_attention_transformer.linear_attention_transformer:SelfAttention",
        {"dim": D, "heads": 2},
        takes_causal=True,
        mask="input_mask",
        faults=(Fault(("precision-bf16",), shown.bf16_loud, 0.996, causal=True),),
        note="Keys enter an exponential without a maximum taken off; in float32 it overflows, too.",
    ),
    Trial(
        "routing-transformer==1.6.1",
        "Routing",
        "routing_transformer.routing_transformer:SelfAttention",
        {
            "dim": D,
            "depth": 1,
            "max_seq_len": 64,
            "heads": 2,
            "local_attn_heads": 0,
            "window_size": 16,
        },
        takes_causal=True,
        mask="input_mask",
        faults=(
            Fault(PADDING, shown.padded_content, 1.3),
            Fault(("state-registered",), shown.kept_tensors, 1),
            Fault((*CAUSAL, "other-sizes"), shown.later_tokens, 1.7, causal=True),
            Fault(PADDING, shown.padded_content, 1.1, causal=True),
            Fault(("state-registered",), shown.kept_tensors, 1, causal=True),
            Fault(("state-declared",), shown.first_evaluated, 1.2),
            Fault(("state-declared",), shown.first_evaluated, 1.0, causal=True),
        ),
        note="Tokens are chosen for clusters over the whole sequence. Clusters start from the "
        "first batch, also in evaluation.",
    ),
    Trial(
        "yet-another-retnet==0.5.1",
        "Retention",
        "yet_another_retnet.retention:MultiScaleRetention",
        {"embed_dim": D, "num_heads": 2},
        faults=(Fault(("precision-bf16",), shown.bf16_error, 0.186, causal=True),),
        note="Positions are built in the dtype of the queries.",
    ),
    Trial(
        "minGRU-pytorch==0.2.1",
        "MinGru",
        "minGRU_pytorch:minGRU",
        {"dim": D},
        faults=(
            Fault(("precision-fp32",), shown.float32_error, 1.94e-4, causal=True),
            Fault(("precision-bf16",), shown.bf16_error, 0.58, causal=True),
        ),
    ),
    Trial(
        "minGRU-pytorch==0.2.1",
        "MinLstm",
        "minGRU_pytorch.minLSTM:minLSTM",
        {"dim": D},
        faults=(
            Fault(("precision-fp32",), shown.float32_error, 1.25e-4, causal=True),
            Fault(("precision-bf16",), shown.bf16_error, 0.66, causal=True),
        ),
    ),
    Trial(
        "light-recurrent-unit-pytorch==0.1.4",
        "LightRecurrent",
        "light_recurrent_unit_pytorch:LightRecurrentUnitLayer",
        {"dim": D},
        faults=(Fault(("precision-bf16",), shown.bf16_call, 1, causal=True),),
        note=CALLED,
    ),
    Trial(
        "fast-transformer-pytorch==0.0.4",
        "Fastformer",
        "fast_transformer_pytorch.fast_transformer_pytorch:FastAttention",
        {"dim": D, **HEADS},
        mask="mask",
        faults=(Fault(("precision-bf16",), shown.bf16_call, 1),),
        note=CALLED,
    ),
    Trial(
        "gateloop-transformer==0.2.5",
        "GateLoop",
        "gateloop_transformer:GateLoopedAttention",
        {"dim": D, "heads": 2},
        faults=(Fault(("precision-bf16",), shown.bf16_call, 1, causal=True),),
        note=CALLED,
    ),
    Trial(
        "titans-pytorch==0.5.5",
        "Memory",
        "titans_pytorch:NeuralMemory",
        {"dim": D, "chunk_size": 16},
        faults=(Fault(("parameters-used",), shown.unused_weights, 3, causal=True),),
        note="The memory's own weights, from which it starts, get no gradient.",
    ),
    Trial(
        "torch==2.15.0",
        "MultiheadAttention",
        "torch.nn:MultiheadAttention",
        {"embed_dim": D, "num_heads": 2, "batch_first": True},
        mask="key_padding_mask",
        faults=(Fault(("all-padded",), shown.all_padded, 1),),
        note="This is so in evaluation without gradients, where torch takes a faster path.",
    ),
    Trial("torch==2.15.0", "Gru", "torch.nn:GRU"),
    Trial(
        "reformer-pytorch==1.4.4",
        "Reformer",
        "reformer_pytorch:LSHSelfAttention",
        {"dim": D, "heads": 2, "bucket_size": 16, "n_hashes": 2},
        takes_causal=True,
        mask="input_mask",
        faults=(
            Fault(PADDING, shown.padded_content, 0.304),
            Fault(("determinism",), shown.two_calls, 0.657),
            Fault(("state-registered",), shown.kept_tensors, 1),
            Fault((*CAUSAL, "other-sizes"), shown.later_tokens, 0.821, causal=True),
            Fault(PADDING, shown.padded_content, 0.647, causal=True),
            Fault(("determinism",), shown.two_calls, 0.819, causal=True),
            Fault(("state-registered",), shown.kept_tensors, 1, causal=True),
        ),
        note="Hashes are drawn in each call, and all tokens are sorted into buckets together.",
    ),
    Trial("rela-transformer==0.0.7", "Rela", "rela_transformer:ReLA"),
    Trial(
        "x-transformers==2.31.10",
        "PlainAttention",
        "x_transformers.x_transformers:Attention",
        note="Its softmax is computed in float32, so it is tested in float32.",
    ),
    Trial("Mega-pytorch==0.1.0", "Mega", "mega_pytorch:MegaLayer"),
    Trial(
        "compositional-attention-pytorch==0.0.1",
        "Compositional",
        "compositional_attention_pytorch:CompositionalAttention",
    ),
    Trial("pytorch-tcn==1.2.3", "Tcn", "pytorch_tcn:TCN"),
    Trial(
        "ETSformer-pytorch==0.1.1",
        "ExponentialSmoothing",
        "etsformer_pytorch.etsformer_pytorch:MHESA",
    ),
    Trial(
        "taylor-series-linear-attention==0.2.0",
        "Taylor",
        "taylor_series_linear_attention:TaylorSeriesLinearAttn",
    ),
    Trial(
        "agent-attention-pytorch==0.1.7",
        "Agent",
        "agent_attention_pytorch:AgentSelfAttention",
    ),
    Trial(
        "gateloop-transformer==0.2.5",
        "SimpleGateLoop",
        "gateloop_transformer:SimpleGateLoopLayer",
    ),
    Trial(
        "gated-state-spaces-pytorch==0.1.0",
        "GatedStateSpaces",
        "gated_state_spaces_pytorch:GSS",
    ),
    Trial(
        "aft-pytorch==0.2.2",
        "AftSimple",
        "aft_pytorch:AFTSimple",
    ),
    Trial(
        "remixer-pytorch==0.0.3",
        "Remixer",
        "remixer_pytorch.remixer_pytorch:RemixerBlock",
    ),
    Trial(
        "memory-efficient-attention-pytorch==0.1.6",
        "Efficient",
        "memory_efficient_attention_pytorch:Attention",
    ),
    Trial(
        "mambapy==1.2.0",
        "Mamba",
        "mambapy.mamba:MambaBlock",
    ),
    Trial(
        "linformer==0.2.3",
        "Linformer",
        "linformer:LinformerSelfAttention",
    ),
    Trial("g-mlp-pytorch==0.1.5", "Gmlp", "g_mlp_pytorch:gMLPBlock"),
    Trial(
        "timm==1.0.31",
        "TimmAttention",
        "timm.layers:Attention",
    ),
)
