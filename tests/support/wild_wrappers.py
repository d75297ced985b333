"""Modules of published packages as mixers: each is built, given its mask, and claims what its
arguments offer.

A package is imported when its module is built.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch.nn.functional import pad

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig

BLOCK = 16


def published(address: str, *given, **named) -> torch.nn.Module:
    """A module `package:Class`, built."""
    package, _, name = address.partition(":")
    return getattr(import_module(package), name)(*given, **named)


def heads_of(site) -> dict[str, int]:
    return {"heads": site.num_heads, "dim_head": site.head_dim}


def real_tokens(x, keep):
    return torch.ones_like(x[..., 0], dtype=torch.bool) if keep is None else keep


class Plain(TokenMixer):
    """A module that is given tokens alone; of a tuple the first element is its output."""

    Config = MixerConfig

    def __init__(self, config, site):
        super().__init__()
        self.longest = site.max_len
        self.inner = self.made(site)

    def made(self, site) -> torch.nn.Module:
        raise NotImplementedError

    def forward(self, x, *, keep=None, carry=None):
        out = self.inner(x)
        return out[0] if isinstance(out, tuple) else out


class Masked(Plain):
    """A module that is given a mask of real tokens."""

    mask = "mask"

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, **{self.mask: keep})


class Bound(Plain):
    """A module that takes no longer sequences than it was built for."""

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] > self.longest:
            raise PluginError(f"{x.shape[1]} tokens, and at most {self.longest} are taken")
        return self.inner(x)


class Padded(Plain):
    """A module that asks for certain lengths: tokens are padded, and marked as such."""

    mask = "mask"

    def more(self, length: int) -> int:
        """How many tokens are added."""
        raise NotImplementedError

    def forward(self, x, *, keep=None, carry=None):
        length, more = x.shape[1], self.more(x.shape[1])
        mask = pad(real_tokens(x, keep), (0, more))
        out = self.inner(pad(x, (0, 0, 0, more)), **{self.mask: mask})
        out = out[0] if isinstance(out, tuple) else out
        return out[:, :length]


class AftSimple(Plain):
    facts = Facts(permutation_equivariant=True)

    def made(self, site):
        return published("aft_pytorch:AFTSimple", site.max_len, site.dim, hidden_dim=site.dim)


class Agent(Masked):
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def made(self, site):
        address = "agent_attention_pytorch:AgentSelfAttention"
        return published(address, site.dim, num_agent_tokens=8, **heads_of(site))


class Compositional(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        address = "compositional_attention_pytorch:CompositionalAttention"
        heads = {"dim_head": site.head_dim, "num_searches": site.num_heads}
        return published(address, dim=site.dim, **heads, causal=site.causal)


class Fastformer(Masked):
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def made(self, site):
        address = "fast_transformer_pytorch.fast_transformer_pytorch:FastAttention"
        return published(address, site.dim, **heads_of(site))

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=real_tokens(x, keep))


class Flash(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        sizes = {"dim": site.dim, "group_size": BLOCK, "query_key_dim": 16}
        return published("flash_pytorch:FLASH", **sizes, causal=site.causal)


class GatedUnit(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        return published("flash_pytorch:GAU", dim=site.dim, query_key_dim=16, causal=site.causal)


class GatedStateSpaces(Plain):
    facts = Facts(causal="always", leak=1e-12)

    def made(self, site):
        sizes = {"dss_kernel_N": 32, "dss_kernel_H": 16}
        return published("gated_state_spaces_pytorch:GSS", dim=site.dim, **sizes)


class SimpleGateLoop(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return published("gateloop_transformer:SimpleGateLoopLayer", site.dim)


class GateLoop(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        address = "gateloop_transformer:GateLoopedAttention"
        more = {"frac_gradient_state_transition": 1.0}
        return published(address, site.dim, heads=site.num_heads, **more)


class Gmlp(Bound):
    facts = Facts(causal="always", max_length="site")

    def made(self, site):
        sizes = {"dim": site.dim, "dim_ff": 2 * site.dim, "seq_len": site.max_len}
        return published("g_mlp_pytorch.g_mlp_pytorch:gMLPBlock", **sizes, causal=True)


class Hierarchical(Padded):
    facts = Facts(padding_invariant=True)

    def made(self, site):
        address = "h_transformer_1d.h_transformer_1d:HAttention1D"
        return published(address, site.dim, **heads_of(site), block_size=BLOCK)

    def more(self, length):
        return max(0, 4 * BLOCK - length)  # it asks for more than two blocks


class LightRecurrent(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return published("light_recurrent_unit_pytorch:LightRecurrentUnitLayer", site.dim)


class Linear(Masked):
    facts = Facts(causal="optional", padding_invariant=True)
    mask = "input_mask"

    def made(self, site):
        address = "linear_attention:LinearSelfAttention"
        return published(address, site.dim, site.num_heads, causal=site.causal)


class LinearOfTransformer(Masked):
    facts = Facts(causal="optional", padding_invariant=True)
    mask = "input_mask"

    def made(self, site):
        address = "linear_attention_transformer.linear_attention_transformer:SelfAttention"
        return published(address, site.dim, site.num_heads, causal=site.causal)


class Linformer(Bound):
    facts = Facts(max_length="site")

    def made(self, site):
        address = "linformer:LinformerSelfAttention"
        return published(address, site.dim, site.max_len, k=16, heads=site.num_heads)


class Local(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        sizes = {"dim": site.dim, "window_size": BLOCK, **heads_of(site)}
        return published("local_attention:LocalMHA", **sizes, causal=site.causal)


class Mamba(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        config = published("mambapy.mamba:MambaConfig", d_model=site.dim, n_layers=1)
        return published("mambapy.mamba:MambaBlock", config)


class Mega(Plain):
    facts = Facts(causal="optional", leak=1e-12)

    def made(self, site):
        sizes = {"dim": site.dim, "ema_heads": 4, "attn_dim_qk": 8, "attn_dim_value": 32}
        return published("mega_pytorch.mega_pytorch:MegaLayer", **sizes, causal=site.causal)


class Efficient(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        address = "memory_efficient_attention_pytorch:Attention"
        buckets = {"memory_efficient": True, "q_bucket_size": 32, "k_bucket_size": 32}
        given = {"dim": site.dim, **heads_of(site), **buckets}
        return published(address, **given, causal=site.causal)


class ExponentialSmoothing(Plain):
    facts = Facts(causal="always", leak=1e-12)

    def made(self, site):
        address = "etsformer_pytorch.etsformer_pytorch:MHESA"
        return published(address, dim=site.dim, heads=site.num_heads)


class MinGru(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return published("minGRU_pytorch:minGRU", site.dim)


class MinLstm(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return published("minGRU_pytorch.minLSTM:minLSTM", site.dim)


class Nystrom(Masked):
    facts = Facts()

    def made(self, site):
        address = "nystrom_attention:NystromAttention"
        return published(address, site.dim, **heads_of(site), num_landmarks=16)


class Performer(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        address = "performer_pytorch:SelfAttention"
        return published(address, site.dim, causal=site.causal, **heads_of(site))


class Reformer(Padded):
    facts = Facts(causal="optional", padding_invariant=True)
    mask = "input_mask"

    def made(self, site):
        sizes = {"heads": site.num_heads, "bucket_size": BLOCK, "n_hashes": 2}
        address = "reformer_pytorch:LSHSelfAttention"
        return published(address, site.dim, **sizes, causal=site.causal)

    def more(self, length):
        return -length % (2 * BLOCK)


class Rela(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        address = "rela_transformer.rela_transformer:ReLA"
        return published(address, dim=site.dim, **heads_of(site), causal=site.causal)


class Remixer(Bound):
    facts = Facts(causal="always", max_length="site")

    def made(self, site):
        address = "remixer_pytorch.remixer_pytorch:RemixerBlock"
        return published(address, site.dim, site.max_len, causal=True)


class Retention(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        address = "yet_another_retnet.retention:MultiScaleRetention"
        return published(address, site.dim, site.num_heads)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, x, x)[0]


class Routing(Padded):
    facts = Facts(causal="optional", padding_invariant=True, stateful=True)
    mask = "input_mask"

    def made(self, site):
        address = "routing_transformer.routing_transformer:SelfAttention"
        sizes = (site.dim, 1, 4 * BLOCK, site.num_heads, 0, BLOCK)
        return published(address, *sizes, causal=site.causal)

    def more(self, length):
        return max(4 * BLOCK - length, -length % BLOCK)


class Taylor(Masked):
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def made(self, site):
        address = "taylor_series_linear_attention:TaylorSeriesLinearAttn"
        return published(address, site.dim, **heads_of(site))


class Tcn(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        layers = [site.dim, site.dim]
        return published("pytorch_tcn:TCN", site.dim, layers, causal=True, input_shape="NLC")


class TimmAttention(Plain):
    facts = Facts(permutation_equivariant=True)

    def made(self, site):
        return published("timm.layers:Attention", site.dim, num_heads=site.num_heads)


class Memory(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return published("titans_pytorch:NeuralMemory", dim=site.dim, chunk_size=BLOCK)


class MultiheadAttention(Plain):
    facts = Facts(causal="never", padding_invariant=True, permutation_equivariant=True)

    def made(self, site):
        return torch.nn.MultiheadAttention(site.dim, site.num_heads, batch_first=True)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, x, x, key_padding_mask=None if keep is None else ~keep)[0]


class Gru(Plain):
    facts = Facts(causal="always")

    def made(self, site):
        return torch.nn.GRU(site.dim, site.dim, batch_first=True)


class PlainAttention(Masked):
    facts = Facts(causal="optional", padding_invariant=True)

    def made(self, site):
        address = "x_transformers.x_transformers:Attention"
        return published(address, site.dim, **heads_of(site), causal=site.causal)
