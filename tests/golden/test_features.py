"""Attention by features, against the outputs of its authors' code."""

from __future__ import annotations

import pytest
import torch
from golden_files import golden_files, load_golden

from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.cosformer import Config as CosformerConfig
from subquad_plugins.cosformer.core import Cosformer
from subquad_plugins.efficient import Config as EfficientConfig
from subquad_plugins.efficient.core import Efficient
from subquad_plugins.flowformer import Config as FlowformerConfig
from subquad_plugins.flowformer.core import Flowformer
from subquad_plugins.linear import Config as LinearConfig
from subquad_plugins.linear.core import Linear
from subquad_plugins.numerics.features import causal_product, with_ones
from subquad_plugins.performer import Config as PerformerConfig
from subquad_plugins.performer.core import Performer

HERE, CAUSAL = (Site(dim=16, num_heads=2, max_len=24, causal=causal) for causal in (False, True))


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12) -> None:
    assert got.shape == expected.shape
    assert float((got.detach() - expected).abs().max()) <= tolerance * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("name", golden_files("zoo_linear_elu*"))
def test_linear_attention(name):
    """The causal outputs come from their kernel, in float32, and from a float64 sum over all pairs."""
    golden = load_golden(name)
    q, k, v = (golden[key].transpose(1, 2) for key in "qkv")
    keep = torch.arange(q.shape[2]) < golden["key_len"][:, None]
    core, causal = Linear(LinearConfig(), HERE), Linear(LinearConfig(), CAUSAL)
    close(core(q, k, v).transpose(1, 2), golden["y"])
    close(core(q, k, v, key_keep=keep).transpose(1, 2), golden["y_masked"])
    close(causal(q, k, v).transpose(1, 2), golden["y_causal_quadratic"])
    close(causal(q, k, v).transpose(1, 2), golden["y_causal"], 2e-5)


@pytest.mark.parametrize("name", golden_files("zoo_linear_mlpen*"))
def test_linear_attention_of_the_long_range_arena_code(name):
    golden = load_golden(name)
    q, k, v, keep = (golden[key] for key in ("q", "k", "v", "mask"))
    core = Linear(LinearConfig(as_published=True), HERE)
    close(core(q, k, v), golden["y"])
    close(core(q, k, v, query_keep=keep, key_keep=keep), golden["y_masked"])


def projected(core: AttentionCore, golden: dict[str, torch.Tensor], inputs: str, *others: str) -> torch.Tensor:
    """The core between the file's projections, whose names start with those given: query, key, value, out."""
    layers = [[golden[f"{name}.{part}"].squeeze() for part in ("weight", "bias")] for name in others[:4]]
    (query, *pair, out), context = layers, golden[others[4] if others[4:] else inputs]
    sources = [golden[inputs], context, context]
    q, k, v = (
        torch.nn.functional.linear(x, *layer).unflatten(-1, (2, -1)).transpose(1, 2)
        for x, layer in zip(sources, (query, *pair), strict=True)
    )
    return torch.nn.functional.linear(core(q, k, v).transpose(1, 2).flatten(2), *out)


@pytest.mark.parametrize("name", golden_files("zoo_efficient*"))
def test_efficient_attention(name):
    golden = load_golden(name)
    names = ("w.queries", "w.keys", "w.values", "w.reprojection")
    close(projected(Efficient(EfficientConfig(), HERE), golden, "x", *names), golden["y"])
    close(golden["y"] + golden["x"], golden["y_with_residual"])


@pytest.mark.parametrize("name", golden_files("zoo_cosformer*"))
def test_cosformer(name):
    golden = load_golden(name)
    names = ("w.q_proj", "w.k_proj", "w.v_proj", "w.out_proj")
    across = Site(dim=16, num_heads=2, max_len=24, context_len=30, role="cross")
    for key, site, context in (("y", HERE, ()), ("y_causal", CAUSAL, ()), ("y_cross", across, ("ctx",))):
        close(projected(Cosformer(CosformerConfig(), site), golden, "x", *names, *context), golden[key])


FLOW = ("query_projection", "key_projection", "value_projection", "out_projection")


@pytest.mark.parametrize("name", golden_files("zoo_flowformer*"))
def test_flow_attention(name):
    golden = load_golden(name)
    names = tuple(f"w.{one}" for one in FLOW)
    for key, site, context in (("y", HERE, ()), ("y_causal", CAUSAL, ()), ("y_cross", HERE, ("ctx",))):
        close(projected(Flowformer(FlowformerConfig(), site), golden, "x", *names, *context), golden[key])


@pytest.mark.parametrize("name", golden_files("flow_attention_*"))
def test_flow_attention_of_other_widths(name):
    golden, causal = load_golden(name), name.endswith("causal")
    core = Flowformer(FlowformerConfig(), CAUSAL if causal else HERE)
    names = tuple(f"sd/{one}" for one in FLOW)
    close(projected(core, golden, "x", *names), golden["out"])
    if "mem" in golden:
        close(projected(core, golden, "x", *names, "mem"), golden["out_cross"])


def performer(projection: torch.Tensor, site: Site = HERE, **params) -> Performer:
    core = Performer(PerformerConfig(num_features=len(projection), **params), site).double()
    core.projection = projection
    return core


@pytest.mark.parametrize("name", golden_files("zoo_performer*"))
def test_performer(name):
    """Its causal outputs take the largest exponent of all keys, and add 1e-6 to their sum: as one may build it here."""
    golden = load_golden(name)
    q, k, v, keep = (golden[key] for key in ("q", "k", "v", "mask"))
    core = performer(golden["projection"])
    queries, keys = core.query_features(q), core.key_features(k, None)
    close(queries, golden["phi_q"])
    close(keys, golden["phi_k"])
    close(core(q, k, v), golden["y"])
    close(performer(golden["projection"], features="relu")(q, k, v), golden["y_relu"])
    close(Efficient(EfficientConfig(), HERE)(q, k, v), golden["y_noproj"])
    sums = causal_product(queries, keys, with_ones(v))[0]
    close(sums[..., :-1] / (sums[..., -1:] + 1e-6 * queries.sum(-1, keepdim=True)), golden["y_causal"])
    wrapper = performer(golden["projection"], as_published=True)
    close(wrapper(q, k, v, query_keep=keep, key_keep=keep), golden["y_mlpen"])


@pytest.mark.parametrize("name", golden_files("zoo_favor_*"))
def test_features_of_another_library(name):
    """Each w is there with both signs, nothing is subtracted, and no 1e-4 is added."""
    golden = load_golden(name)
    projection = torch.cat([golden["omega"], -golden["omega"]], 1).mT
    core = performer(projection, CAUSAL)
    for key in ("q", "k"):
        found = core.key_features(golden[key].transpose(1, 2), None) - 1e-4 * len(projection) ** -0.5
        close(found.transpose(1, 2), golden[f"phi_{key}"])
