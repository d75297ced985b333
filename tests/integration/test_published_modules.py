"""Modules of published packages as mixers: each gives what it gives when it is wrapped by hand."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from subquad.errors import UserError
from subquad.plugin import Site
from subquad.registry import make_mixer, resolve

PINS = """
performer-pytorch==1.1.4 linear-attention-transformer==0.19.1 nystrom-attention==0.0.14
local-attention==1.11.2 x-transformers==2.31.10 reformer-pytorch==1.4.4 sinkhorn-transformer==0.11.4
h-transformer-1d==0.1.9 minGRU-pytorch==0.2.1 gateloop-transformer==0.2.5 mambapy==1.2.0
linformer==0.2.3 einops==0.8.2 axial-positional-embedding==0.3.12 product-key-memory==0.3.0
hyper-connections==0.4.11 rotary-embedding-torch==0.9.1 einx==0.4.3 loguru==0.7.3
frozendict==2.5.1 colt5-attention==0.11.2 torch-einops-utils==0.2.0
"""
"""Installed beside the tests, never needed by subquad."""

D = 32
H = 4
L = 64
X = torch.randn(2, L, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
KEEP = torch.arange(L) < torch.tensor([[L], [40]])
LAT = "linear_attention_transformer.linear_attention_transformer:SelfAttention"
SINKHORN = "sinkhorn_transformer.sinkhorn_transformer:SinkhornSelfAttention"
LSH = {"bucket_size": 16}

Given = dict[str, Any]
ACCEPTED: dict[str, tuple[Given, Given, Callable[[Any], Any]]] = {
    "torch.nn:RNN": (
        {},
        {"input_size": D, "hidden_size": D, "batch_first": True},
        lambda module: module(X)[0],
    ),
    "performer_pytorch:SelfAttention": (
        {},
        {"dim": D, "heads": H},
        lambda module: module(X, mask=KEEP),
    ),
    "performer_pytorch:Performer": (
        {"depth": 1, "dim_head": 8},
        {"dim": D, "depth": 1, "heads": H, "dim_head": 8},
        lambda module: module(X),
    ),
    LAT: ({}, {"dim": D, "heads": H}, lambda module: module(X, input_mask=KEEP)),
    "nystrom_attention:NystromAttention": (
        {"num_landmarks": 16},
        {"dim": D, "heads": H, "num_landmarks": 16},
        lambda module: module(X, mask=KEEP),
    ),
    "local_attention:LocalMHA": (
        {"window_size": 16},
        {"dim": D, "heads": H, "window_size": 16},
        lambda module: module(X, mask=KEEP),
    ),
    "x_transformers.x_transformers:Attention": (
        {},
        {"dim": D, "heads": H},
        lambda module: module(X, mask=KEEP),
    ),
    "x_transformers:Encoder": (
        {"depth": 1},
        {"dim": D, "depth": 1, "heads": H},
        lambda module: module(X, mask=KEEP),
    ),
    "reformer_pytorch:LSHSelfAttention": (
        LSH,
        {"dim": D, "heads": H, **LSH},
        lambda module: module(X, input_mask=KEEP),
    ),
    SINKHORN: (
        LSH,
        {"dim": D, "heads": H, "max_seq_len": L, **LSH},
        lambda module: module(X, input_mask=KEEP),
    ),
    "h_transformer_1d.h_transformer_1d:HAttention1D": (
        {"block_size": 16},
        {"dim": D, "heads": H, "block_size": 16},
        lambda module: module(X, mask=KEEP),
    ),
    "minGRU_pytorch:minGRU": ({}, {"dim": D}, lambda module: module(X)),
    "gateloop_transformer:SimpleGateLoopLayer": ({}, {"dim": D}, lambda module: module(X)),
    "timm.models.vision_transformer:Attention": (
        {},
        {"dim": D, "num_heads": H},
        lambda module: module(X),
    ),
    "linformer:LinformerSelfAttention": (
        {"k": 16},
        {"dim": D, "seq_len": L, "k": 16, "heads": H},
        lambda module: module(X),
    ),
}
"""By address: parameters of the mixer, arguments by hand, and the call by hand."""

REFUSED = {
    "local_attention:LocalAttention": "LocalAttention.__init__ needs window_size and",
    "mambapy.mamba:MambaBlock": "MambaBlock.__init__ takes no width: call it dim, d_model,",
    "mambapy.mamba:Mamba": "Mamba.__init__ takes no width: call it dim, d_model,",
}

pytestmark = [pytest.mark.extended, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def _packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("packages")
    uv = [os.environ.get("UV", "uv"), "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*uv, "--target", str(folder), *PINS.split()], check=True)
    sys.path.append(str(folder))
    yield
    sys.path.remove(str(folder))


def built(address: str, params: Given, folder: Path) -> Any:
    module, _, name = address.partition(":")
    (folder / "it.py").write_text(f"from {module} import {name}\n")
    resolved = resolve("mixer", f"./it.py:{name}", base=folder)
    site = Site(dim=D, num_heads=H, max_len=L)
    return make_mixer(resolved, resolved.plugin.config(**params), site).double()


@pytest.mark.parametrize("address", ACCEPTED)
def test_a_published_module_gives_what_it_gives_by_hand(address: str, tmp_path: Path) -> None:
    params, arguments, call = ACCEPTED[address]
    mixer = built(address, params, tmp_path).eval()
    module, _, name = address.partition(":")
    by_hand = getattr(importlib.import_module(module), name)(**arguments).double().eval()
    by_hand.load_state_dict(mixer.module.state_dict())
    with torch.no_grad():
        torch.manual_seed(1)  # hashes are drawn in each call
        got = mixer(X, keep=KEEP)
        torch.manual_seed(1)
        expected = call(by_hand)
    assert (got - expected)[KEEP].abs().max() <= 1e-12 * expected[KEEP].abs().max()
    x = X.clone().requires_grad_()
    mixer.train()(x, keep=KEEP).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("address", REFUSED)
def test_another_is_refused_in_one_line(address: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED[address]):
        built(address, {}, tmp_path)
