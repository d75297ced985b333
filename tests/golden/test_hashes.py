"""Mixers by hashes: the authors' outputs and gradients of YOSO's expectation, a library's
outputs of Reformer.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_files import golden_files, load_golden, said, site_of

from subquad_plugins.reformer import Config as ReformerConfig
from subquad_plugins.reformer.mixer import Reformer
from subquad_plugins.yoso import Config as YOSOConfig
from subquad_plugins.yoso.core import YOSO


@pytest.mark.parametrize("name", golden_files("yoso"))
def test_yoso(name, assert_close):
    golden = load_golden(name)
    q, k, v = (golden[letter].requires_grad_() for letter in "qkv")
    width = golden["conv_w"].shape[2]
    site = site_of(golden)
    params: dict[str, Any] = {"bits": said(golden, r"\*\*(\d+)"), "gradient": "bound"}
    core = YOSO(YOSOConfig(**params), site).double()
    out = core(q, k, v)
    assert_close(out, golden["y"], 1e-12)
    for found, given in zip(
        torch.autograd.grad(out, (q, k, v), golden["grad_out"]), "qkv", strict=True
    ):
        assert_close(found, golden[f"grad_{given}"], 1e-12)
    assert_close(
        YOSO(YOSOConfig(**params | {"gradient": "exact"}), site)(q, k, v), golden["y"], 1e-12
    )
    keep = golden["mask"].bool()
    convolved = YOSO(YOSOConfig(**params, conv_kernel=width), site).double()
    convolved.load_state_dict({"conv": golden["conv_w"].flatten(1)})
    for variant, expected in ((core, golden["y_masked"]), (convolved, golden["y_conv_masked"])):
        real = keep[:, None, :, None]
        assert_close(
            variant(q, k, v, query_keep=keep, key_keep=keep) * real, expected * real, 1e-12
        )


@pytest.mark.parametrize("name", golden_files("reformer"))
def test_reformer(name, assert_close):
    golden = load_golden(name)
    heads, _, rounds, half = golden["rot"].shape
    dim = golden["x"].shape[2]
    config = ReformerConfig(
        num_hashes=rounds,
        num_buckets=2 * half,
        chunk=said(golden, r"chunk (\d+)"),
        as_published=True,
    )
    mixer = Reformer(config, site_of({**golden, "heads": heads})).double()
    weights = {
        name.removeprefix("w."): value for name, value in golden.items() if name.startswith("w.")
    }
    mixer.load_state_dict(
        {
            **weights,
            "rotations": golden["rot"],
            "out.weight": torch.eye(dim),
            "out.bias": torch.zeros(dim),
        }
    )
    assert_close(mixer(golden["x"]), golden["y"], 1e-12)
