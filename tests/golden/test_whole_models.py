"""The encoder against the authors' whole models: UEA classifier and LRA sequence model, with AGF
and with softmax. Shapes of the weights give widths and depth.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden_files import arrays_of, golden_files, heads_in, load_golden
from test_lra_dual import named, parts, state_of
from torch import Tensor

from subquad.data import DataSpec
from subquad.nn import AttentionMixer, BackboneContext, TokenMixer
from subquad.plugin import Site
from subquad_plugins.agf import Config as AGFConfig
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.encoder import Config as EncoderConfig
from subquad_plugins.encoder.backbone import Encoder
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax

SERIES = {
    "project_inp": "embedding.project",
    "encoder.norm": "final.0",
    "output_layer": "head",
}
LAYER = {"conv1": "ffn.0", "conv2": "ffn.3", "norm1": "mixer_norm", "norm2": "ffn_norm"}
ATTENTION = {
    "query_projection": "query",
    "key_projection": "key",
    "value_projection": "value",
    "out_projection": "out",
}
FILTERED = {
    **ATTENTION,
    "query_projection": "u",
    "key_projection": "v",
    "Sigma_projection": "sigma",
}


def series_state(arrays: dict[str, Any]) -> dict[str, Tensor]:
    """The authors' weights under our names; the coefficients of a layer's filter in one tensor,
    without the frozen.
    """
    given = {key.removeprefix("sd/"): value for key, value in arrays.items() if "sd/" in key}
    inner = FILTERED if any("Sigma_projection" in name for name in given) else ATTENTION
    state = {}
    thetas: dict[str, list[Tensor]] = {}
    for name, value in given.items():
        module, _, part = name.rpartition(".")
        if module in SERIES:
            state[f"{SERIES[module]}.{part}"] = value
            continue
        if name == "pos_enc.pe":
            state["embedding.positions.table"] = value.reshape(-1, value.shape[-1])
            continue
        _, _, index, layer, *more = name.split(".")
        if ".poly.thetas." in name:
            thetas.setdefault(f"blocks.{index}.mixer.filter.theta", []).append(value)
        elif layer == "attention":
            state[f"blocks.{index}.mixer.{inner[more[0]]}.{part}"] = value
        else:
            weight = value.squeeze(-1) if value.ndim == 3 else value  # a convolution of width 1
            state[f"blocks.{index}.{LAYER[layer]}.{part}"] = weight
    return state | {name: torch.stack(values)[1:] for name, values in thetas.items()}


def series_model(arrays: dict[str, Any]) -> Encoder:
    """The authors' classifier of series with their weights."""
    state = series_state(arrays)
    dim, channels = state["embedding.project.weight"].shape
    classes = arrays["logits64"].shape[1]
    config = EncoderConfig(
        num_layers=sum(name.endswith("ffn.0.bias") for name in state),
        dim=dim,
        num_heads=heads_in(arrays),
        ffn_dim=len(state["blocks.0.ffn.0.bias"]),
        norm="post",
        position_init="uniform",
        input_scale=True,
        mask_mixer=False,
        final_activation="gelu",
        head="flatten",
        head_dropout=0.1,
    )
    length = arrays["X"].shape[1]
    spec = DataSpec.series(max_len=length, channels=channels, num_classes=classes)

    def make(site: Site) -> TokenMixer:
        theta = state.get(f"blocks.{site.layer_index}.mixer.filter.theta")
        if theta is None:
            return AttentionMixer(Softmax(SoftmaxConfig(), site), site)
        a, b, weight = (float(arrays[name]) for name in ("a", "b", "eta"))
        return AGF(AGFConfig(order=len(theta), jacobi_a=a, jacobi_b=b, ortho_weight=weight), site)

    context = BackboneContext(spec=spec, num_outputs=classes, make_mixer=make)
    model = Encoder(config, context).eval()
    model.load_state_dict(state)
    return model


@pytest.mark.parametrize("name", golden_files("uea model"))
def test_uea_classifier(name, assert_close):
    arrays = load_golden(name)
    model, keep = series_model(arrays).double(), arrays["mask"].bool()
    output = model({"inputs": arrays["X"], "keep": keep})
    assert_close(output.outputs, arrays["logits64"], 1e-12)
    if "loss_total" in arrays:
        assert_close(output.losses["ortho"], arrays["loss_ortho"], 1e-12)
        entropy = F.cross_entropy(output.outputs, arrays["y"][:, 0].long(), reduction="none")
        assert_close(entropy, arrays["loss_ce"], 1e-12)
        assert_close(entropy + output.penalty, arrays["loss_total"], 1e-12)
    if "logits32" in arrays:
        single = model.float()({"inputs": arrays["X"].float(), "keep": keep})
        assert_close(single.outputs, arrays["logits32"], 2e-5)


@pytest.mark.parametrize(
    "name", [name for name in golden_files("lra model") if len(named(arrays_of(name), "ids")) == 1]
)
def test_lra_model(name, assert_close):
    arrays = load_golden(name)
    state = state_of(arrays)
    config, context = parts(arrays, state, len(state["head.2.bias"]))
    model = Encoder(config, context).eval()
    model.load_state_dict(state)
    keep = arrays["mask"].bool()
    if "hidden" in arrays:
        x, _ = model.encode(*model.embed(arrays["ids"], keep))
        assert_close(x * keep[..., None], arrays["hidden"] * keep[..., None], 2e-5)
    output = model({"inputs": arrays["ids"], "keep": keep})
    assert_close(output.outputs, arrays["logits"], 2e-5)
    if "loss" not in arrays:
        return
    entropy = F.cross_entropy(output.outputs, arrays["label"], reduction="none")
    expected = {"loss_ce": entropy, "loss": entropy}
    if output.penalty is not None:
        # the authors' layer returns it weighted
        expected |= {"loss_ortho": output.penalty, "loss": entropy + output.penalty}
    for key in set(expected) & set(arrays):
        assert_close(expected[key], arrays[key], 2e-5)
