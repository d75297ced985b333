"""Relative biases: one value per distance, dense, by rows and by columns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.errors import PluginError
from subquad_plugins.mega.bias import RotaryBias, SimpleBias, bias_columns, bias_rows, dense_bias
from subquad_plugins.mega.naive import bias_matrix


def biases() -> list:
    torch.manual_seed(0)
    made = [SimpleBias(12).double(), RotaryBias(6).double()]
    with torch.no_grad():
        for parameter in [parameter for bias in made for parameter in bias.parameters()]:
            parameter.normal_()
    return made


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_dense_bias_equals_the_definition(kind, length):
    bias = biases()[kind]
    weights = {f"bias.{name}": value for name, value in bias.state_dict().items()}
    expected = bias_matrix(weights, length)
    torch.testing.assert_close(dense_bias(bias.distances(length)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [0, 1])
@settings(max_examples=15)
@given(picks=st.lists(st.integers(0, 8), min_size=6, max_size=6))
def test_rows_and_columns_are_those_of_the_dense_bias(kind, picks):
    distances = biases()[kind].distances(9)
    dense, index = dense_bias(distances), torch.tensor(picks).view(2, 1, 3)
    assert torch.equal(bias_rows(distances, index), dense[index])
    assert torch.equal(bias_columns(distances, index), dense[:, index].permute(1, 2, 0, 3))


def test_gradients_of_dense_rows_and_columns_agree():
    distances = biases()[0].distances(9).detach().requires_grad_()
    every = torch.arange(9)
    weight = torch.randn(9, 9, dtype=torch.float64)
    grads = [
        torch.autograd.grad((made * weight).sum(), distances)[0]
        for made in (
            dense_bias(distances),
            bias_rows(distances, every),
            bias_columns(distances, every),
        )
    ]
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=1e-13)
    torch.testing.assert_close(grads[2], grads[0], rtol=0, atol=1e-13)


def test_a_sequence_longer_than_the_table_is_refused():
    simple, rotary = biases()
    with pytest.raises(
        PluginError, match="a sequence of 13 tokens is too long for a relative bias of 12 positions"
    ):
        simple.distances(13)
    assert rotary.distances(1300).shape == (2599,)


def test_half_precision_weights_give_single_precision_biases():
    for bias in biases():
        assert bias.bfloat16().distances(4).dtype == torch.float32
