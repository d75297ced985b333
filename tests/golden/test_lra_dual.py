"""The dual encoder against the authors' Long Range Arena models: their whole dual model where a
file has one, and their encoder's hidden states put together as its head sees them.

Which model a file holds follows from its arrays: two arrays of ids make a pair; shapes give widths,
depth and order.

Letters: B batch, L length, D model width, F features.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden_files import arrays_of, golden_files, load_golden
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.nn import AttentionMixer, BackboneContext, TokenMixer
from subquad.plugin import Site
from subquad_plugins.agf import Config as AGFConfig
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.dual_encoder.backbone import DualEncoder
from subquad_plugins.encoder import Config
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax

FILES = golden_files("lra model")
TOWER = {
    "model.embeddings.word_embeddings.": "embedding.project.",
    "model.embeddings.position_embeddings.weight": "embedding.positions.table",
    "model.norm.": "final.0.",
    "seq_classifer.mlpblock.": "head.",
}
LAYER = {"norm1.": "mixer_norm.", "norm2.": "ffn_norm.", "mlpblock.": "ffn."}
ATTENTION = {"W_q.": "query.", "W_k.": "key.", "W_v.": "value.", "ff.": "out."}
FILTERED = {"W_q.": "u.", "W_k.": "v.", "W_v.": "value.", "W_Sigma.": "sigma.", "ff.": "out."}


def state_of(arrays: dict[str, Any]) -> dict[str, Tensor]:
    """The authors' weights under our names; the coefficients of a layer's filter in one tensor,
    without the frozen.
    """
    given = {
        name.removeprefix("sd/"): value for name, value in arrays.items() if name.startswith("sd/")
    }
    has_filter = any(".poly.thetas." in name for name in given)
    state: dict[str, Tensor] = {}
    thetas: dict[str, list[Tensor]] = {}
    for name, value in given.items():
        layer = re.match(r"model\.transformer_(\d+)\.(.*)", name)
        if layer is None:
            state[renamed(name, TOWER)] = value
        elif ".poly.thetas." in name:
            thetas.setdefault(f"blocks.{layer[1]}.mixer.filter.theta", []).append(value)
        else:
            part, inner = layer[2], FILTERED if has_filter else ATTENTION
            ours = (
                f"mixer.{renamed(part[4:], inner)}"
                if part.startswith("mha.")
                else renamed(part, LAYER)
            )
            state[f"blocks.{layer[1]}.{ours}"] = value
    return state | {name: torch.stack(values)[1:] for name, values in thetas.items()}


def renamed(name: str, table: dict[str, str]) -> str:
    (found,) = (theirs for theirs in table if name.startswith(theirs))
    return table[found] + name.removeprefix(found)


def parts(
    arrays: dict[str, Any], state: dict[str, Tensor], outputs: int
) -> tuple[Config, BackboneContext]:
    """What makes an encoder of the sizes of the weights."""
    table, positions = state["embedding.project.weight"], state["embedding.positions.table"]
    config = Config(
        num_layers=sum(name.endswith("ffn.0.bias") for name in state),
        dim=table.shape[1],
        num_heads=int(arrays.get("heads", arrays.get("num_heads", 2))),
        ffn_dim=len(state["blocks.0.ffn.0.bias"]),
        head="mean_padded",
        head_hidden=len(state["head.0.bias"]),
    )
    spec = DataSpec.tokens(max_len=len(positions), vocab_size=len(table), num_classes=outputs)

    def make(site: Site) -> TokenMixer:
        theta = state.get(f"blocks.{site.layer_index}.mixer.filter.theta")
        if theta is None:
            return AttentionMixer(Softmax(SoftmaxConfig(), site), site)
        a, b = float(arrays.get("a", 1.0)), float(arrays.get("b", 1.5))
        weight = float(arrays.get("reg", 0.1))
        return AGF(AGFConfig(order=len(theta), jacobi_a=a, jacobi_b=b, ortho_weight=weight), site)

    return config, BackboneContext(spec=spec, num_outputs=outputs, make_mixer=make)


def dual(arrays: dict[str, Any], state: dict[str, Tensor], outputs: int) -> DualEncoder:
    """A dual encoder of the sizes of the weights, which are not loaded yet."""
    return DualEncoder(*parts(arrays, state, outputs)).eval()


def named(names: Iterable[str], word: str) -> list[str]:
    """The (B, L) arrays whose name holds a word, in the order of their names."""
    return [name for name in sorted(names) if word in name and not name.startswith("sd/")]


@pytest.mark.parametrize(
    "name", [name for name in FILES if len(named(arrays_of(name), "ids")) == 1]
)
def test_hidden_states_of_two_sequences_are_put_together_as_published(name, assert_close):
    """Each sequence of the file beside the one before it: what reaches the head, from the
    authors' hidden states.
    """
    arrays = load_golden(name)
    state = {key: value for key, value in state_of(arrays).items() if not key.startswith("head.")}
    model = dual(arrays, state_of(arrays), outputs=2)
    assert {
        key.split(".")[0] for key in model.load_state_dict(state, strict=False).missing_keys
    } == {"head"}
    model.head = nn.Identity()
    ids, keep = arrays["ids"], arrays["mask"].bool()
    output = model(
        {"inputs": ids, "keep": keep, "inputs_b": ids.roll(1, 0), "keep_b": keep.roll(1, 0)}
    )
    a = (arrays["hidden"] * keep[..., None]).mean(1)
    b = a.roll(1, 0)
    assert_close(output.outputs, torch.cat([a, b, a * b, a - b], 1), 2e-5)
    if "ortho_layers" in arrays:
        weighted = arrays["ortho_layers"].mean(0)  # the authors' layer returns it weighted
        assert_close(output.penalty, (weighted + weighted.roll(1, 0)) / 2, 2e-5)


@pytest.mark.parametrize(
    "name", [name for name in FILES if len(named(arrays_of(name), "ids")) == 2]
)
def test_whole_dual_model(name, assert_close):
    arrays = load_golden(name)
    state = state_of(arrays)
    logits = arrays["logits"]
    model = dual(arrays, state, outputs=logits.shape[1])
    model.load_state_dict(state)
    ids, ids_b = (arrays[name] for name in named(arrays, "ids"))
    keep, keep_b = (arrays[name] for name in named(arrays, "mask"))
    output = model({"inputs": ids, "keep": keep.bool(), "inputs_b": ids_b, "keep_b": keep_b.bool()})
    assert_close(output.outputs, logits, 2e-5)
    if "label" not in arrays:
        return
    entropy = F.cross_entropy(output.outputs, arrays["label"], reduction="none")
    expected = {"loss_ce": entropy, "loss_ortho": output.penalty}
    expected["loss"] = entropy if output.penalty is None else entropy + output.penalty
    for key, value in expected.items():
        if key in arrays:
            assert value is not None
            assert_close(value, arrays[key], 2e-5)
