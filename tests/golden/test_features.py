"""Attention by features, against the outputs of its authors' code."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from golden_files import golden_files, heads_in, load_golden, site_of

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
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12) -> None:
    assert got.shape == expected.shape
    assert float((got.detach() - expected).abs().max()) <= tolerance * max(
        1.0, float(expected.abs().max())
    )


@pytest.mark.parametrize("name", golden_files("linear"))
def test_linear_attention(name):
    """The causal outputs come from their kernel, in float32, and from a float64 sum over all
    pairs.
    """
    golden = load_golden(name)
    q, k, v = (golden[key].transpose(1, 2) for key in "qkv")
    keep = torch.arange(q.shape[2]) < golden["key_len"][:, None]
    site = site_of({**golden, "q": q})
    core = Linear(LinearConfig(), site)
    causal = Linear(LinearConfig(), replace(site, causal=True))
    found = {
        "y": core(q, k, v),
        "y_masked": core(q, k, v, key_keep=keep),
        "y_causal_quadratic": causal(q, k, v),
        "y_causal": causal(q, k, v),
    }
    for key in set(found) & set(golden):
        close(found[key].transpose(1, 2), golden[key], 2e-5 if key == "y_causal" else 1e-12)


@pytest.mark.parametrize("name", golden_files("linear as published"))
def test_linear_attention_of_the_long_range_arena_code(name):
    golden = load_golden(name)
    q, k, v = (golden[letter] for letter in "qkv")
    core = Linear(LinearConfig(as_published=True), site_of(golden))
    close(core(q, k, v), golden["y"])
    if "y_masked" in golden:
        keep = golden["mask"].bool()
        close(core(q, k, v, query_keep=keep, key_keep=keep), golden["y_masked"])


@pytest.mark.parametrize("name", golden_files("softmax"))
def test_softmax_attention(name):
    golden = load_golden(name)
    q, k, v = (golden[letter] for letter in "qkv")
    core, causal = (
        Softmax(SoftmaxConfig(), site_of(golden, causal=causal)) for causal in (False, True)
    )
    close(core(q, k, v), golden["y"])
    if "y_causal" in golden:
        close(causal(q, k, v), golden["y_causal"])
    if "y_masked" in golden:
        close(core(q, k, v, key_keep=golden["mask"].bool()), golden["y_masked"])


def projected(
    core: AttentionCore, golden: dict[str, torch.Tensor], inputs: str, *others: str
) -> torch.Tensor:
    """The core between the file's projections, whose names start with those given: query, key,
    value, out.
    """
    layers = [
        [golden[f"{name}.{part}"].squeeze() for part in ("weight", "bias")] for name in others[:4]
    ]
    (query, *pair, out), context = layers, golden[others[4] if others[4:] else inputs]
    sources = [golden[inputs], context, context]
    q, k, v = (
        torch.nn.functional.linear(x, *layer).unflatten(-1, (heads_in(golden), -1)).transpose(1, 2)
        for x, layer in zip(sources, (query, *pair), strict=True)
    )
    return torch.nn.functional.linear(core(q, k, v).transpose(1, 2).flatten(2), *out)


@pytest.mark.parametrize("name", golden_files("efficient"))
def test_efficient_attention(name):
    golden = load_golden(name)
    names = ("w.queries", "w.keys", "w.values", "w.reprojection")
    close(
        projected(Efficient(EfficientConfig(), site_of(golden)), golden, "x", *names), golden["y"]
    )
    if "y_with_residual" in golden:
        close(golden["y"] + golden["x"], golden["y_with_residual"])


@pytest.mark.parametrize("name", golden_files("cosformer"))
def test_cosformer(name):
    golden = load_golden(name)
    names = ("w.q_proj", "w.k_proj", "w.v_proj", "w.out_proj")
    for key in {"y", "y_causal", "y_cross"} & set(golden):
        site, context = site_of(golden, causal=key == "y_causal"), ()
        if key == "y_cross":
            site = site_of(golden, context_len=golden["ctx"].shape[1], role="cross")
            context = ("ctx",)
        core = Cosformer(CosformerConfig(), site)
        close(projected(core, golden, "x", *names, *context), golden[key])


FLOW = ("query_projection", "key_projection", "value_projection", "out_projection")


@pytest.mark.parametrize("name", golden_files("flowformer"))
def test_flow_attention(name):
    golden = load_golden(name)
    names = tuple(f"w.{part}" for part in FLOW)
    for key in {"y", "y_causal", "y_cross"} & set(golden):
        core = Flowformer(FlowformerConfig(), site_of(golden, causal=key == "y_causal"))
        context = ("ctx",) if key == "y_cross" else ()
        close(projected(core, golden, "x", *names, *context), golden[key])


@pytest.mark.parametrize("name", golden_files("flow layer"))
def test_flow_attention_of_other_widths(name):
    """Whether a file's layer is causal is told by its outputs alone."""
    golden = load_golden(name)
    cores = [
        Flowformer(FlowformerConfig(), site_of(golden, causal=causal)) for causal in (False, True)
    ]
    names = tuple(f"sd/{layer}" for layer in FLOW)
    gaps = [
        float((projected(core, golden, "x", *names) - golden["out"]).abs().max()) for core in cores
    ]
    core = cores[gaps.index(min(gaps))]
    close(projected(core, golden, "x", *names), golden["out"])
    if "mem" in golden:
        close(projected(core, golden, "x", *names, "mem"), golden["out_cross"])


def performer(projection: torch.Tensor, site: Site, **params) -> Performer:
    core = Performer(PerformerConfig(num_features=len(projection), **params), site).double()
    core.projection = projection
    return core


@pytest.mark.parametrize("name", golden_files("performer"))
def test_performer(name):
    """Its causal outputs take the largest exponent of all keys, and add 1e-6 to their sum: as
    one may build it here.
    """
    golden = load_golden(name)
    q, k, v, projection = (golden[key] for key in ("q", "k", "v", "projection"))
    keep, site = golden.get("mask"), site_of(golden)
    core = performer(projection, site)
    queries, keys = core.query_features(q), core.key_features(k, None)
    sums = causal_product(queries, keys, with_ones(v))[0]
    wrapper = performer(projection, site, as_published=True)
    found = {
        "y": core(q, k, v),
        "phi_q": queries,
        "phi_k": keys,
        "y_relu": performer(projection, site, features="relu")(q, k, v),
        "y_noproj": Efficient(EfficientConfig(), site)(q, k, v),
        "y_causal": sums[..., :-1] / (sums[..., -1:] + 1e-6 * queries.sum(-1, keepdim=True)),
        "y_mlpen": wrapper(q, k, v, query_keep=keep, key_keep=keep),
    }
    for key in set(found) & set(golden):
        close(found[key], golden[key])


@pytest.mark.parametrize("name", golden_files("favor"))
def test_features_of_another_library(name):
    """Each w is there with both signs, nothing is subtracted, and no 1e-4 is added."""
    golden = load_golden(name)
    projection = torch.cat([golden["omega"], -golden["omega"]], 1).mT
    site = site_of({"q": golden["q"].transpose(1, 2)}, causal=True)
    core = performer(projection, site)
    for key in ("q", "k"):
        found = (
            core.key_features(golden[key].transpose(1, 2), None) - 1e-4 * len(projection) ** -0.5
        )
        close(found.transpose(1, 2), golden[f"phi_{key}"])
