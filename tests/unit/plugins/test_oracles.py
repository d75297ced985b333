"""Every mixer with a `naive.py` against it: outputs, extra losses and all gradients, with every
setting, at odd lengths, with padding anywhere.

What is special of a mixer stands in its own file; what the certificate proves is not tried again.
Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from built_in import abouts
from tensors import assert_close, drawn, moved, padded_everywhere
from torch import Tensor

from subquad.nn import as_output
from subquad.plugin import MixerPlugin, Site
from subquad.registry import build_class, resolve
from subquad_plugins.about import HEADS

DIM = 12

ORACLES = {
    f"{mixer}{', ' * bool(label)}{label}": (mixer, oracle)
    for mixer, about in abouts().items()
    for label, oracle in about.oracles.items()
}


def cases() -> Iterator[Any]:
    for name, (_, oracle) in ORACLES.items():
        for params, causal in (
            *((params, False) for params in oracle.settings),
            *((params, True) for params in oracle.causal),
        ):
            label = f"{name}{', causal' * causal}: {params}"
            yield pytest.param(name, params, causal, id=label)


def build(mixer: str, params: Mapping[str, Any], causal: bool, **site: Any) -> tuple[Any, Any]:
    """A mixer none of whose parameters is at its start, and its config."""
    resolved = resolve("mixer", f"subquad:{mixer}")
    plugin = resolved.plugin
    assert isinstance(plugin, MixerPlugin)
    place = Site(dim=DIM, num_heads=HEADS, causal=causal, **site)
    config: Any = plugin.config(**params)
    config.check(place)
    torch.manual_seed(1)
    return moved(build_class(resolved)(config, place), 0.1), config


def results(
    out: Tensor, losses: dict[str, Tensor], keep: Tensor | None, inputs: Sequence[Tensor]
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Outputs at real tokens and the losses; and the gradients of both."""
    out = out if keep is None else out.masked_fill(~keep[..., None], 0.0)
    total = (out * drawn(*out.shape, seed=9)).sum()
    for loss in losses.values():
        total = total + (loss * (2 + torch.arange(len(loss)))).sum()
    return [out, *losses.values()], torch.autograd.grad(total, inputs)


@pytest.mark.parametrize(("name", "params", "causal"), list(cases()))
def test_a_mixer_equals_its_oracle_with_all_gradients(name, params, causal):
    known, oracle = ORACLES[name]
    mixer, config = build(known, params, causal, max_len=oracle.max_len)
    for length in oracle.lengths:
        padding = padded_everywhere(length)
        padding[2] |= not oracle.gaps
        for keep in (None, padding):
            x = drawn(4, length, DIM).requires_grad_()
            inputs = (x, *mixer.parameters())
            made = as_output(mixer(x, keep=keep))
            got, grads = results(made.out, dict(made.losses), keep, inputs)
            expected, wanted = results(*oracle.define(mixer, config, x, keep), keep, inputs)
            for tolerance, pairs in (
                (oracle.tolerance, zip(got, expected, strict=True)),
                (oracle.of_gradients, zip(grads, wanted, strict=True)),
            ):
                assert_close(*zip(*pairs, strict=True), tolerance)
