"""The encoder against the authors' whole models: UEA classifier and LRA sequence model, with AGF and with softmax."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from subquad.data import DataSpec
from subquad.nn import AttentionMixer, BackboneContext
from subquad_plugins.agf import Config as AGFConfig
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.encoder import Config as EncoderConfig
from subquad_plugins.encoder.backbone import Encoder
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax

UEA = EncoderConfig(
    dim=16,
    ffn_dim=32,
    norm="post",
    position_init="uniform",
    input_scale=True,
    mask_mixer=False,
    final_activation="gelu",
    head="flatten",
    head_dropout=0.1,
)
LRA = EncoderConfig(dim=16, ffn_dim=32, head="mean_padded", head_hidden=32)
SERIES = DataSpec.series(max_len=11, channels=5, num_classes=4)
TOKENS = DataSpec.tokens(max_len=16, vocab_size=40, num_classes=3)

UEA_ATTENTION = {
    "query": "query_projection",
    "key": "key_projection",
    "value": "value_projection",
    "out": "out_projection",
}
LRA_ATTENTION = {"query": "W_q", "key": "W_k", "value": "W_v", "out": "ff"}
AGF_NAMES = {"query": "u", "key": "v"}


def agf_encoder(config: EncoderConfig, spec: DataSpec, weight: float) -> Encoder:
    mixer = AGFConfig(order=3, jacobi_b=1.5, ortho_weight=weight)
    return encoder(config, spec, lambda site: AGF(mixer, site))


def softmax_encoder(config: EncoderConfig, spec: DataSpec) -> Encoder:
    return encoder(config, spec, lambda site: AttentionMixer(Softmax(SoftmaxConfig(), site), site))


def encoder(config: EncoderConfig, spec: DataSpec, make_mixer) -> Encoder:
    return Encoder(config, BackboneContext(spec=spec, num_outputs=spec.num_classes, make_mixer=make_mixer)).eval()


def load(model: Encoder, pairs: dict[str, str], arrays) -> None:
    """Fill weight and bias of each of our modules from the authors' name for it, and positions and coefficients."""
    state = {
        f"{ours}.{part}": arrays[f"sd/{theirs}.{part}"]
        for ours, theirs in pairs.items()
        for part in ("weight", "bias")
        if f"sd/{theirs}.{part}" in arrays
    }
    state = {name: value.squeeze(-1) if ".ffn." in name and value.ndim == 3 else value for name, value in state.items()}
    positions = arrays.get("sd/pos_enc.pe", arrays.get("sd/model.position_embeddings.weight"))
    if positions is None:
        positions = arrays["sd/model.embeddings.position_embeddings.weight"]
    state["embedding.positions.table"] = positions.reshape(-1, positions.shape[-1])
    for index in range(2):
        thetas = [value for name, value in arrays.items() if ".poly.thetas." in name and layer_of(name) == index]
        if thetas:
            state[f"blocks.{index}.mixer.filter.theta"] = torch.stack(thetas)[1:]
    model.load_state_dict(state)


def layer_of(name: str) -> int:
    return 1 if "transformer_1" in name or "attn_layers.1" in name else 0


def uea_pairs(agf: bool) -> dict[str, str]:
    pairs = {"embedding.project": "project_inp", "final.0": "encoder.norm", "head": "output_layer"}
    for index in range(2):
        ours, theirs = f"blocks.{index}", f"encoder.attn_layers.{index}"
        pairs |= {f"{ours}.ffn.0": f"{theirs}.conv1", f"{ours}.ffn.3": f"{theirs}.conv2"}
        pairs |= {f"{ours}.mixer_norm": f"{theirs}.norm1", f"{ours}.ffn_norm": f"{theirs}.norm2"}
        pairs |= attention_pairs(f"{ours}.mixer", f"{theirs}.attention", UEA_ATTENTION, agf)
        if agf:
            pairs[f"{ours}.mixer.sigma"] = f"{theirs}.attention.Sigma_projection"
    return pairs


def lra_pairs(agf: bool) -> dict[str, str]:
    pairs = {"embedding.project": "model.embeddings.word_embeddings", "final.0": "model.norm"}
    pairs |= {"head.0": "seq_classifer.mlpblock.0", "head.2": "seq_classifer.mlpblock.2"}
    for index in range(2):
        ours, theirs = f"blocks.{index}", f"model.transformer_{index}"
        pairs |= {f"{ours}.ffn.0": f"{theirs}.mlpblock.0", f"{ours}.ffn.3": f"{theirs}.mlpblock.3"}
        pairs |= {f"{ours}.mixer_norm": f"{theirs}.norm1", f"{ours}.ffn_norm": f"{theirs}.norm2"}
        pairs |= attention_pairs(f"{ours}.mixer", f"{theirs}.mha", LRA_ATTENTION, agf)
        if agf:
            pairs[f"{ours}.mixer.sigma"] = f"{theirs}.mha.W_Sigma"
    return pairs


def attention_pairs(ours: str, theirs: str, names: dict[str, str], agf: bool) -> dict[str, str]:
    return {
        f"{ours}.{AGF_NAMES.get(name, name) if agf else name}": f"{theirs}.{their}" for name, their in names.items()
    }


def test_uea_classifier_with_agf(golden, assert_close):
    arrays = golden("agf_uea_classifier_full")
    model = agf_encoder(UEA, SERIES, weight=float(arrays["eta"])).double()
    load(model, uea_pairs(agf=True), arrays)
    output = model({"inputs": arrays["X"], "keep": arrays["mask"]})
    assert_close(output.outputs, arrays["logits64"], 1e-12)
    assert_close(output.losses["ortho"], arrays["loss_ortho"], 1e-12)
    entropy = F.cross_entropy(output.outputs, arrays["y"][:, 0].long(), reduction="none")
    assert_close(entropy, arrays["loss_ce"], 1e-12)
    assert_close(entropy + output.penalty, arrays["loss_total"], 1e-12)
    single = model.float()({"inputs": arrays["X"].float(), "keep": arrays["mask"]})
    assert_close(single.outputs, arrays["logits32"], 2e-5)


def test_uea_classifier_with_softmax(golden, assert_close):
    arrays = golden("uea_softmax_classifier_full")
    model = softmax_encoder(UEA, SERIES).double()
    load(model, uea_pairs(agf=False), arrays)
    output = model({"inputs": arrays["X"], "keep": arrays["mask"]})
    assert_close(output.outputs, arrays["logits64"], 1e-12)


def test_lra_model_with_agf(golden, assert_close):
    arrays = golden("agf_lra_modelforsc")
    model = agf_encoder(LRA, TOKENS, weight=0.1)
    load(model, lra_pairs(agf=True), arrays)
    output = model({"inputs": arrays["ids"], "keep": arrays["mask"].bool()})
    assert_close(output.outputs, arrays["logits"], 2e-5)
    assert_close(output.penalty, arrays["loss_ortho"], 2e-5)  # the authors' layer returns it weighted
    entropy = F.cross_entropy(output.outputs, arrays["label"], reduction="none")
    assert_close(entropy, arrays["loss_ce"], 2e-5)
    assert_close(entropy + output.penalty, arrays["loss"], 2e-5)


def test_lra_model_with_softmax(golden, assert_close):
    arrays = golden("lra_softmax_modelforsc")
    model = softmax_encoder(LRA, TOKENS)
    load(model, lra_pairs(agf=False), arrays)
    keep = arrays["mask"].bool()
    x, results = model.encode(*model.embed(arrays["ids"], keep))
    assert_close(x * keep[..., None], arrays["hidden"], 2e-5)
    assert_close(model({"inputs": arrays["ids"], "keep": keep}).outputs, arrays["logits"], 2e-5)
    assert len(results) == 2
