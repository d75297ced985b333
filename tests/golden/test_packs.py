"""Mixers that pack tokens into a few: outputs of the authors' code, or of the library that most
people use.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from golden_files import golden_files, heads_in, load_golden, said, site_of
from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.dba import Config as DBAConfig
from subquad_plugins.dba.mixer import DBA
from subquad_plugins.linformer import Config as LinformerConfig
from subquad_plugins.linformer.core import Linformer
from subquad_plugins.luna import Config as LunaConfig
from subquad_plugins.luna.mixer import Luna
from subquad_plugins.numerics.landmarks import landmark_attention, segment_means
from subquad_plugins.numerics.tensors import head_convolution
from subquad_plugins.nystrom import Config as NystromConfig
from subquad_plugins.nystrom.core import Nystrom
from subquad_plugins.primal import Config as PrimalConfig
from subquad_plugins.primal.mixer import Primal
from subquad_plugins.singularformer import Config as SingularConfig
from subquad_plugins.singularformer.mixer import Singularformer
from subquad_plugins.soft.mixer import gaussian_attention


def split(x: Tensor, heads: int = 2) -> Tensor:
    """(B, L, D) to (B, H, L, E)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def linear(golden: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.linear(x, golden[f"{name}.weight"], golden.get(f"{name}.bias"))


def layer_norm(golden: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], golden[f"{name}.weight"], golden[f"{name}.bias"])


@pytest.mark.parametrize("name", golden_files("nystrom"))
def test_nystrom_as_published_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    landmarks = golden["pinv_in"].shape[-1]
    q, k, v = (golden[letter] for letter in "qkv")
    site = site_of(golden)
    widths = {"": 0}
    if "conv_w" in golden:
        widths["_conv"] = golden["conv_w"].shape[2]
    masks = {"": None}
    if "mask" in golden:
        masks["_masked"] = golden["mask"].bool()
    for suffix, conv in widths.items():
        core = Nystrom(
            NystromConfig(num_landmarks=landmarks, conv_kernel=conv, as_published=True), site
        ).double()
        assert_close(core.invert(golden["pinv_in"]), golden["pinv_out"], 1e-10)
        if conv:
            core.load_state_dict({"conv.weight": golden["conv_w"]})
        for masked, keep in masks.items():
            found = core(q, k, v, query_keep=keep, key_keep=keep)
            at = slice(None) if keep is None else keep
            assert_close(joined(found)[at], joined(golden[f"y{suffix}{masked}"])[at], 1e-10)


@pytest.mark.parametrize("name", golden_files("nystrom layer"))
def test_nystrom_without_padding_gives_the_outputs_of_the_library(name, assert_close):
    """Where there is padding, the library's landmarks are means with the padding's own values.
    The library can start its inverse both ways, which a file's arrays do not tell.
    """
    golden = load_golden(name)
    weights, landmarks = golden["w.conv.weight"], said(golden, r"(\d+) landmarks", 6)
    q, k, v = (
        split(linear(golden, f"w.{layer}", golden["x"]), len(weights))
        for layer in ("query", "key", "value")
    )
    config = NystromConfig(num_landmarks=landmarks, conv_kernel=weights.shape[2])
    core = Nystrom(config, site_of(golden)).double()
    core.load_state_dict({"conv.weight": weights})
    if (joined(core(q, k, v)) - golden["y"]).abs().max() > 1e-10:
        core.invert = partial(core.invert, start="batch")
    assert_close(joined(core(q, k, v)), golden["y"], 1e-10)
    if "y_masked" not in golden:
        return
    q_hat, k_hat = (segment_means(tensor, landmarks)[0] for tensor in (q, k))
    keep = golden["add_mask"][:, 0, 0] == 0
    mixed, _ = landmark_attention(q, k, v, q_hat, k_hat, core.invert, key_keep=keep)
    assert_close(
        joined(mixed + head_convolution(v, weights[:, 0, :, 0])), golden["y_masked"], 1e-10
    )


@pytest.mark.parametrize("name", golden_files("nystrom library"))
def test_nystrom_of_a_length_that_is_no_multiple_gives_the_outputs_of_nystrom_attention(
    name, assert_close
):
    """With its mask of ones: without a mask the library attends to its own padding."""
    golden = load_golden(name)

    def invert(u: Tensor) -> Tensor:
        z = u.mT / (u.abs().sum(-1).amax() * u.abs().sum(-2).amax())
        for _ in range(6):
            uz, identity = u @ z, torch.eye(u.shape[-1], dtype=u.dtype)
            z = z @ (13 * identity - uz @ (15 * identity - uz @ (7 * identity - uz))) / 4
        return z

    assert_close(invert(golden["pinv_in"]), golden["pinv_out"], 1e-10)
    weights, landmarks = golden["w.res_conv.weight"], golden["pinv_in"].shape[-1]
    joint = linear(golden, "w.to_qkv", golden["x"])
    q, k, v = (split(part, len(weights)) for part in joint.chunk(3, -1))
    config = NystromConfig(num_landmarks=landmarks, conv_kernel=weights.shape[2])
    core = Nystrom(config, site_of(golden)).double()
    core.load_state_dict({"conv.weight": weights})
    core.invert = invert
    length = q.shape[2]
    sizes = torch.tensor(
        [length * (i + 1) // landmarks - length * i // landmarks for i in range(landmarks)]
    )[:, None].double()
    # its epsilon
    core._landmarks = lambda x, keep: (
        segment_means(x, landmarks)[0] * sizes / (sizes + 1e-8),
        None,
    )
    assert_close(linear(golden, "w.to_out.0", joined(core(q, k, v))), golden["y_allmask"], 1e-10)


@pytest.mark.parametrize("name", golden_files("linformer"))
def test_linformer_gives_the_outputs_of_the_library(name, assert_close):
    golden = load_golden(name)

    def found(kind: str, x: Tensor, share_values: bool) -> Tensor:
        weights = {
            part: golden[f"{kind}.{part}"]
            for part in ("proj_k", "proj_v")
            if f"{kind}.{part}" in golden
        }
        longest, rank = weights["proj_k"].shape
        config = LinformerConfig(rank=rank, share_heads=True, share_values=share_values)
        site = Site(dim=x.shape[2], num_heads=heads_in(golden), max_len=longest)
        core = Linformer(config, site).double()
        core.load_state_dict(
            {
                name: weights[old][None]
                for name, old in zip(("keys", "values"), weights, strict=False)
            }
        )
        to_k = golden[f"{kind}.to_k.weight"]
        to_v = golden.get(f"{kind}.to_v.weight", to_k)
        q = split(linear(golden, f"{kind}.to_q", x), heads_in(golden))
        k, v = (
            split(F.linear(x, weight), len(weight) // q.shape[-1]).expand_as(q)
            for weight in (to_k, to_v)
        )
        return linear(golden, f"{kind}.to_out", joined(core(q, k, v)))

    apart = "w.proj_v" in golden
    for key in {"y", "y_short"} & set(golden):
        x = golden["x"][:, : golden[key].shape[1]]
        assert_close(found("w", x, share_values=not apart), golden[key], 1e-12)
    if "ys" in golden:
        assert_close(found("ws", golden["x"], share_values=True), golden["ys"], 1e-12)


@pytest.mark.parametrize("name", golden_files("linformer core"))
def test_linformer_gives_the_outputs_of_the_long_range_arena_code(name, assert_close):
    """One projection, (H, r, longest), of keys and values."""
    golden = load_golden(name)
    packing = golden.get("E", golden.get("w.E"))
    assert packing is not None
    site = Site(dim=site_of(golden).dim, num_heads=len(packing), max_len=packing.shape[2])
    core = Linformer(LinformerConfig(rank=packing.shape[1], share_values=True), site).double()
    core.load_state_dict({"keys": packing.mT})
    q, k, v = (golden[letter] for letter in "qkv")
    assert_close(core(q, k, v), golden["y"], 1e-12)
    if "y_masked" in golden:
        keep = golden["mask"].bool()
        assert_close(core(q, k, v, key_keep=keep), golden["y_masked"], 1e-12)


@pytest.mark.parametrize("name", golden_files("soft"))
def test_soft_attention_gives_the_authors_outputs(name, assert_close):
    """With landmarks and convolution of the authors' square grid of patches; those of the mixer
    are of sequences.
    """
    golden = load_golden(name)
    x, width = golden["x"], golden["w.attn.Qnorm_act.0.weight"].shape[0]
    side = round(x.shape[1] ** 0.5)
    middle = golden["newton_in"]
    identity = torch.eye(middle.shape[-1], dtype=torch.float64)
    assert_close(torch.linalg.inv(middle + 0.01 * identity), golden["newton_out"], 1e-12)
    heads = len(golden["w.attn.conv.weight"])
    q, v = (split(linear(golden, f"w.{layer}", x), heads) for layer in ("W_q", "W_v"))
    q = q * width**-0.25

    def as_grid(tokens: Tensor) -> Tensor:
        return tokens.mT.unflatten(-1, (side, side))

    window = golden["w.attn.Qlandmark_op.weight"]
    packed = F.conv2d(as_grid(q).flatten(0, 1), window, stride=window.shape[2]).flatten(2).mT
    landmarks = F.gelu(layer_norm(golden, "w.attn.Qnorm_act.0", packed)).unflatten(0, q.shape[:2])
    around = golden["w.attn.conv.weight"]
    near = F.conv2d(
        as_grid(v).transpose(1, 2).flatten(0, 1),
        around,
        padding=around.shape[2] // 2,
        groups=heads,
    )
    near = near.flatten(2).unflatten(0, (len(x), -1)).permute(0, 2, 3, 1)
    mixed = gaussian_attention(q, landmarks, v, ridge=0.01) + near
    assert_close(linear(golden, "w.ff", joined(mixed)), golden["y"], 1e-12)


LUNA = {
    "pq_proj": "pack_query",
    "pc_proj": "pack_key",
    "q_proj": "query",
    "c_proj": "key",
    "out_proj": "out",
}
LUNA_APART = {
    "pq_proj": "pack_query",
    "pk_proj": "pack_key",
    "pv_proj": "pack_value",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
}
DBA_NAMES = {
    **{
        "pq_proj": "pack_query",
        "pk_proj": "pack_key",
        "pv_proj": "pack_value",
        "q_len_proj": "unpack",
    },
    **{
        "q_proj": "query",
        "k_proj": "key",
        "v_proj": "value",
        "out_proj": "out",
        "self_attn_layer_norm1": "norm",
    },
}


def replay(
    mixer: Luna | DBA,
    golden: dict[str, Tensor],
    names: dict[str, str],
    readers: Tensor,
    assert_close,
) -> None:
    """Outputs and packed tokens, without and with padding."""
    mixer = mixer.double()
    state = {
        f"{new}.{end}": golden[f"w.{old}.{end}"]
        for old, new in names.items()
        for end in ("weight", "bias")
    }
    mixer.load_state_dict(state)
    packed: list[Tensor] = []
    object.__setattr__(mixer.readers, "after", lambda _, found: packed.append(found))
    for suffix in ("", "_masked"):
        if f"y{suffix}" not in golden:
            continue
        keep = golden["mask"].bool() if suffix else None
        out = mixer(golden["x"], keep=keep, carry=readers).out
        at = slice(None) if keep is None else keep
        assert_close(out[at], golden[f"y{suffix}"][at], 1e-12)
        assert_close(packed.pop(), golden[f"pc{suffix}"], 1e-12)


@pytest.mark.parametrize("name", golden_files("luna"))
def test_luna_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    tied = "w.pc_proj.weight" in golden
    config = LunaConfig(rank=golden["p"].shape[1], share_values=tied)
    mixer = Luna(config, site_of(golden, layer_index=1, num_layers=2))
    replay(mixer, golden, LUNA if tied else LUNA_APART, golden["p"], assert_close)


@pytest.mark.parametrize("name", golden_files("dba"))
def test_dba_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    config = DBAConfig(rank=golden["px"].shape[1], inner_dim=len(golden["w.pk_proj.weight"]))
    mixer = DBA(config, site_of(golden, layer_index=1, num_layers=2))
    replay(mixer, golden, DBA_NAMES, golden["px"], assert_close)


def loaded(
    mixer: torch.nn.Module, golden: dict[str, Tensor], prefix: str, names: dict[str, str]
) -> torch.nn.Module:
    """With the file's weights; `names` are a layer's or a parameter's own and the file's."""
    found = {}
    for own in mixer.state_dict():
        layer, dot, kind = own.rpartition(".")
        found[own] = golden[f"{prefix}{names[layer]}.{kind}" if dot else f"{prefix}{names[own]}"]
    mixer.load_state_dict(found)
    return mixer.double()


@pytest.mark.parametrize("name", golden_files("singularformer"))
def test_singularformer_gives_the_authors_outputs_and_loss(name, assert_close):
    """The loss without padding: that code counts padded tokens in it."""
    golden = load_golden(name)
    rank = len(golden["w.pseudoAttn.weight"])
    mixer = Singularformer(SingularConfig(rank=rank), site_of(golden)).double()
    names = {"scores": "pseudoAttn", "query": "WQ", "key": "WK", "value": "WV", "out": "WO"}
    loaded(mixer, golden, "w.", names)
    found = mixer(golden["x"])
    assert_close(found.out, golden["y"], 1e-12)
    assert_close(found.losses["ortho"].mean(), golden["loss"], 1e-12)
    if "y_masked" in golden:
        keep = golden["mask"].bool()
        assert_close(mixer(golden["x"], keep=keep).out[keep], golden["y_masked"][keep], 1e-12)


PRIMAL = {
    "primal": ("w.", "W_q", "W_k", "ff", "attn", "y"),
    "primal series": (
        "sd/",
        "query_projection",
        "key_projection",
        "out_projection",
        "inner_attention",
        "out",
    ),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in PRIMAL for name in golden_files(kind)]
)
def test_primal_gives_the_authors_outputs_and_loss(kind, name, assert_close):
    """The authors work in float32. The loss of the layer for Long Range Arena squares a mean of
    the batch, ours a sample's own.
    """
    golden = load_golden(name)
    prefix, query, key, out, core, result = PRIMAL[kind]
    heads, tokens, rank = golden[f"{prefix}We"].shape
    site = Site(dim=golden["x"].shape[2], num_heads=heads, max_len=golden["x"].shape[1])
    mixer = Primal(PrimalConfig(rank=rank, tokens_per_rank=tokens // rank), site)
    names = {"query": query, "key": key, "out": out, "left": "We", "right": "Wr"}
    loaded(
        mixer, golden, prefix, names | {"scale": f"{core}.Lambda", "join": f"{core}.concate_weight"}
    )
    x = golden["x"].double()
    for found, expected in zip(
        mixer.scores(x, None), (golden["escore"], golden["rscore"]), strict=True
    ):
        assert_close(found, expected, 2e-5)
    assert_close(mixer(x).out, golden[result], 2e-5)
    if golden["loss_ksvd"].dim():
        assert_close(mixer(x).losses["ksvd"], golden["loss_ksvd"], 2e-5)
