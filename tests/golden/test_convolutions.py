"""Long convolutions with implicit kernels, and global filters: outputs of the authors' code, of
any size.
"""

from __future__ import annotations

import pytest
from golden_files import golden_files, load_golden
from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.gfnet import Config as GFNetConfig
from subquad_plugins.gfnet.mixer import GFNet
from subquad_plugins.hyena import Config as HyenaConfig
from subquad_plugins.hyena.mixer import Hyena
from subquad_plugins.m2 import Config as M2Config
from subquad_plugins.m2.mixer import M2


def network(golden: dict[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    """A filter's weights: their sequence has a layer, then a sine, and all sines are one."""
    found = {
        name.removeprefix(theirs): weight
        for name, weight in golden.items()
        if name.startswith(theirs)
    }
    *inner, last = sorted({int(name.split(".")[0]) for name in found if name.endswith("weight")})
    layers = {
        f"{ours}layers.{i}.{part}": found[f"{n}.{part}"]
        for i, n in enumerate(inner)
        for part in ("weight", "bias")
    }
    return {
        f"{ours}frequency": found["1.freq"][0],
        f"{ours}last.weight": found[f"{last}.weight"],
        **layers,
    }


def sizes(golden: dict[str, Tensor]) -> dict[str, int]:
    """Parameters of the network that makes kernels."""
    first = golden["w.filter_fn.implicit_filter.0.weight"]
    layers = sum(
        "filter_fn.implicit_filter." in name and name.endswith("weight") for name in golden
    )
    taps = golden["w.short_filter.weight"].shape[2]
    return {
        "filter_dim": len(first),
        "position_dim": first.shape[1],
        "filter_layers": layers - 2,
        "conv_kernel": taps,
    }


def projections(golden: dict[str, Tensor], enter: str, out: str) -> dict[str, Tensor]:
    renamed = {}
    for ours, theirs in (("enter", enter), ("out", out)):
        for part in ("weight", "bias"):
            renamed[f"{ours}.{part}"] = golden[f"w.{theirs}.{part}"]
    return renamed | {
        "conv.weight": golden["w.short_filter.weight"][:, 0],
        "conv.bias": golden["w.short_filter.bias"],
    }


@pytest.mark.parametrize("name", golden_files("hyena"))
def test_hyena_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    x, grid = golden["x"], golden["w.filter_fn.pos_emb.z"].shape[1]
    width = x.shape[2]
    order = golden["w.in_proj.weight"].shape[0] // width - 1
    mixer = Hyena(HyenaConfig(order=order, **sizes(golden)), Site(dim=width, max_len=grid)).double()
    mixer.load_state_dict(
        projections(golden, "in_proj", "out_proj")
        | network(golden, "w.filter_fn.implicit_filter.", "filter.")
        | {"bias": golden["w.filter_fn.bias"].reshape(order - 1, width)}
    )
    assert_close(mixer.filter.kernel(x.shape[1]).T[None], golden["filter"], 1e-12)
    assert_close(mixer(x), golden["y"], 1e-12)


@pytest.mark.parametrize("name", golden_files("m2"))
def test_monarch_mixer_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    both, residual = "k_rev" in golden, "w.filter_fn2.bias" in golden
    parts = {"gated": "filter_fn", **({"residual": "filter_fn2"} if residual else {})}
    kernels = {"past": "", **({"future": "_rev"} if both else {})}
    weights = projections(golden, "in_linear", "out_linear")
    for ours, theirs in parts.items():
        weights[f"{ours}.bias"] = golden[f"w.{theirs}.bias"]
        for kernel, ending in kernels.items():
            weights |= network(golden, f"w.{theirs}.implicit_filter{ending}.", f"{ours}.{kernel}.")
    grid = golden["w.filter_fn.pos_emb.z"].shape[1]
    site = Site(dim=golden["x"].shape[2], max_len=grid, causal=not both)
    mixer = M2(M2Config(residual=residual, **sizes(golden)), site).double()
    mixer.load_state_dict(weights)
    for given, expected in (("x", "y"), ("x32", "y32")):
        if given in golden:
            assert_close(mixer(golden[given]), golden[expected], 1e-12)


@pytest.mark.parametrize("name", golden_files("gfnet"))
def test_gfnet_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    weight, x = golden["w.complex_weight"], golden["x"]
    grid = (len(weight), x.shape[1] // len(weight))
    mixer = GFNet(GFNetConfig(), Site(dim=x.shape[2], max_len=x.shape[1], grid=grid))
    mixer.load_state_dict({"weight": weight})
    assert_close(mixer.double()(x.double()), golden["y"], 2e-5)
