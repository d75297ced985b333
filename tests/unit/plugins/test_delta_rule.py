"""Recurrences with a matrix as state: chunks against the recurrence, mixers against their
formulas.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_close

from subquad.plugin import Site
from subquad_plugins.gated_deltanet import Config as DeltaConfig
from subquad_plugins.gated_deltanet.mixer import GatedDeltaNet
from subquad_plugins.numerics.delta_rule import delta_rule, naive_delta_rule
from subquad_plugins.retnet import Config as RetNetConfig
from subquad_plugins.retnet.mixer import RetNet


def close(got, expected, tolerance=1e-11):
    assert_close([got], [expected], tolerance)


@settings(max_examples=12)
@given(length=st.sampled_from([1, 2, 63, 64, 65, 130]), replaced=st.booleans(), going=st.booleans())
def test_chunks_are_the_recurrence_with_all_gradients(length, replaced, going):
    torch.manual_seed(length)
    q, k = torch.randn(2, 2, 3, length, 4, dtype=torch.float64)
    v, k = torch.randn(2, 3, length, 6, dtype=torch.float64), F.normalize(k, dim=-1)
    log_decay, beta = (
        -3 * torch.rand(2, 3, length, dtype=torch.float64),
        torch.rand(2, 3, length, dtype=torch.float64),
    )
    before = torch.randn(2, 3, 4, 6, dtype=torch.float64) if going else None
    given = [
        tensor.requires_grad_() for tensor in (q, k, v, log_decay, *((beta,) if replaced else ()))
    ]
    results = []
    for rule in (delta_rule, naive_delta_rule):
        out, state = rule(q, k, v, log_decay, beta if replaced else None, before)
        results.append(
            (out, state, *torch.autograd.grad(out.sin().sum() + state.cos().sum(), given))
        )
    assert_close(*results, 1e-11)


def test_a_rate_that_forgets_all_at_once_stays_finite():
    q = torch.randn(1, 1, 70, 4)
    out, _ = delta_rule(q, q, q, torch.full((1, 1, 70), -1e4))
    close(out, q * (q * q).sum(-1, keepdim=True), 1e-5)


def test_factors_of_bf16_and_a_state_of_float32():
    torch.manual_seed(0)
    q, k = F.normalize(torch.randn(2, 1, 2, 130, 8), dim=-1).bfloat16()
    v, log_decay = torch.randn(1, 2, 130, 6).bfloat16(), -torch.rand(1, 2, 130)
    for beta in (None, torch.rand(1, 2, 130)):
        out, state = delta_rule(q, k, v, log_decay, beta)
        assert (out.dtype, state.dtype) == (torch.bfloat16, torch.float32)
        given = (x.double() for x in (q, k, v, log_decay))
        exact = naive_delta_rule(*given, None if beta is None else beta.double())
        for mine, wanted in zip((out, state), exact, strict=True):
            close(mine.double(), wanted, 0.02)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def normed(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def test_retnet_is_its_parallel_form():
    torch.manual_seed(0)
    mixer, x = (
        RetNet(RetNetConfig(), Site(dim=8, num_heads=2)).double(),
        torch.randn(2, 9, 8, dtype=torch.float64),
    )
    place = torch.arange(9.0, dtype=torch.float64)
    angle = place[:, None] * torch.tensor([1.0, 0.01], dtype=torch.float64)
    turn = torch.polar(torch.ones_like(angle), angle)
    q, k = (
        torch.complex(*heads(project(x), 2).chunk(2, -1)) * turn
        for project in (mixer.query, mixer.key)
    )
    lag = place[:, None] - place
    decay = torch.stack([(1 - 2.0**-power) ** lag for power in (5, 6)]).tril()
    mixed = ((q @ k.mH).real / 2 * decay) @ heads(mixer.value(x), 2)
    joined = normed(mixed).transpose(1, 2).flatten(2)
    close(mixer(x), mixer.out(joined * F.silu(mixer.gate(x))))


@pytest.mark.parametrize("decays", [True, False])
def test_gated_deltanet_is_its_recurrence(decays):
    torch.manual_seed(0)
    mixer = GatedDeltaNet(DeltaConfig(decay=decays), Site(dim=8, num_heads=2)).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    joined = torch.cat([mixer.query(x), mixer.key(x), mixer.value(x)], -1)
    joined = F.silu(F.conv1d(F.pad(joined.mT, (3, 0)), mixer.conv.weight[:, None], groups=24).mT)
    q, k, v = (heads(part, 2) for part in joined.split([6, 6, 12], -1))
    q, k = F.normalize(q, dim=-1) / 3**0.5, F.normalize(k, dim=-1)
    state, rows, identity = (
        torch.zeros(2, 2, 3, 6, dtype=torch.float64),
        [],
        torch.eye(3, dtype=torch.float64),
    )
    for t in range(9):
        beta = torch.sigmoid(mixer.beta(x[:, t]))[..., None, None]
        alpha = torch.ones_like(beta)
        if decays:
            rate = mixer.log_rate.exp() * F.softplus(mixer.decay(x[:, t]))
            alpha = torch.exp(-rate)[..., None, None]
        key = k[:, :, t, :, None]
        state = alpha * (identity - beta * key @ key.mT) @ state + beta * key @ v[:, :, t, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0])
    close(mixer(x), mixer.out(normed(torch.stack(rows, 1)).flatten(2) * F.silu(mixer.gate(x))))


@pytest.mark.parametrize(
    ("params", "count"), [({}, 6), ({"key_width": 1.0}, 8), ({"key_width": 1.0, "expand": 1}, 5)]
)
def test_the_matrices_of_gated_deltanet_are_those_of_the_published_layer(params, count):
    """D x D matrices; heads whose width is no multiple of 4 have whole channels too."""
    mixer = GatedDeltaNet(DeltaConfig(**params), Site(dim=16, num_heads=2))
    names = ("query", "key", "value", "gate", "out")
    assert sum(mixer.get_submodule(name).weight.numel() for name in names) == count * 16**2
    assert GatedDeltaNet(DeltaConfig(), Site(dim=10, num_heads=2)).query.weight.shape == (8, 10)


def test_time_scales_are_trained_without_decay():
    rules = GatedDeltaNet(DeltaConfig(), Site(dim=8, num_heads=2)).parameter_rules()
    assert {name: rule.weight_decay for name, rule in rules.items()} == {
        "log_rate": False,
        "decay.bias": False,
    }
    assert not GatedDeltaNet(DeltaConfig(decay=False), Site(dim=8, num_heads=2)).parameter_rules()
