"""Cross-mixing of MDFWA against a dense sum over [source; target], and what each target may and
must see.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tensors import assert_alike, built
from torch import Tensor

from subquad.cost import counting
from subquad.errors import PluginError
from subquad.plugin import Facts, Site
from subquad_plugins.mdfwa import PLUGIN, Config
from subquad_plugins.mdfwa.mixer import MDFWA
from subquad_plugins.mdfwa.naive import cross_mixing

WAYS: list[dict[str, Any]] = [
    {},
    {"norm": "paper", "norm_output": False},
    {"norm": "ortho", "gate": "sigmoid"},
    {"frequencies": "learned", "terms": 22},
]
SOURCE, TARGET, DIM = 21, 12, 6


def build(params: dict[str, Any], source: int = SOURCE, target: int = TARGET) -> Any:
    site = {"role": "cross", "max_len": target, "context_len": source}
    return built("mdfwa", params, by=0.1, dim=DIM, **site)


def tokens(length: int, seed: int = 2) -> Tensor:
    return torch.randn(
        3, length, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def defined(
    mixer: Any, x: Tensor, context: Tensor, keep: Tensor | None, context_keep: Tensor | None
) -> Tensor:
    given: dict[str, Any] = {
        "W_V": mixer.from_fourier.weight.T,
        "N_s": SOURCE,
        "N_t": TARGET,
        "keep": keep,
    }
    given |= {"source_keep": context_keep, "norm": mixer.fourier.config.norm}
    if mixer.fourier.offset is not None:
        given["delta"] = mixer.fourier.delta()
    if mixer.gate is not None:
        given |= {"W_q": mixer.gate.weight.T, "b_q": mixer.gate.bias}
    if isinstance(mixer.norm, torch.nn.LayerNorm):
        given |= {"gain": mixer.norm.weight, "bias": mixer.norm.bias}
    return cross_mixing(x, context, **given)


@pytest.mark.parametrize("params", WAYS)
def test_equal_to_the_dense_sum_with_all_gradients(params):
    for (length, source), masked in itertools.product(
        [(1, SOURCE), (TARGET, 5), (7, 1)], [False, True]
    ):
        mixer = build(params)
        x, context = tokens(length).requires_grad_(), tokens(source, 3).requires_grad_()
        keep, context_keep = None, None
        if masked:
            random = torch.Generator().manual_seed(length)
            keep, context_keep = (
                torch.rand(3, n, generator=random) > 0.3 for n in (length, source)
            )
            keep[0], context_keep[0], context_keep[2] = True, True, False
        outs = [
            mixer(x, keep=keep, context=context, context_keep=context_keep),
            defined(mixer, x, context, keep, context_keep),
        ]
        if keep is not None:
            outs = [out.masked_fill(~keep[..., None], 0.0) for out in outs]
        assert_alike(*outs, (x, context, *mixer.parameters()), 1e-9, 1e-10)


@torch.no_grad()
def test_a_step_costs_the_same_whatever_the_source():
    counts = []
    for source in (16, 512):
        mixer, x = build({}, source, 40), tokens(8)
        _, cache = mixer.prefill(x, memory=(memory := mixer.memory(tokens(source, 3))))
        with counting() as count:
            mixer.step(x[:, 0], cache, memory=memory)
        counts.append(count.flops)
    assert counts[0] == counts[1]


def test_wavelets_take_no_part_and_settings_that_cannot_cross_do_not_claim_it():
    mixer = build({})
    assert mixer.bands is None
    assert mixer.caches
    claimed: Facts = PLUGIN.facts_of(Config())
    assert claimed.cross
    for params in (
        {"branches": "wavelet"},
        {"form": "hartley"},
        {"mode": "symmetric"},
        {"period": 64},
    ):
        assert not PLUGIN.facts_of(Config(**params)).cross


def test_lengths_are_kept():
    with pytest.raises(
        PluginError, match=r"^mdfwa: got 22 positions to see, and it was built for 21$"
    ):
        build({})(tokens(3), context=tokens(22))
    with pytest.raises(PluginError, match=r"^mdfwa: got 13 positions, and it was built for 12$"):
        build({})(tokens(13), context=tokens(3))
    with pytest.raises(
        PluginError, match=r"^mdfwa: built for a sequence that sees another, and there is none$"
    ):
        build({})(tokens(3))
    with pytest.raises(PluginError, match=r"MDFWA sees no other sequence"):
        MDFWA(Config(), Site(dim=4, max_len=8)).memory(tokens(3))
