"""The passport of mixers whose operator is known: identity, mean, shift, a fixed matrix; and of
real ones.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import subquad
from subquad.errors import PluginError
from subquad.nn import Backbone, ModelOutput, TokenMixer, as_output
from subquad_tools.diagnose.command import print_passports
from subquad_tools.diagnose.measure import Operator, Passport, passport

LENGTH, WIDTH = 16, 6


class Fixed(TokenMixer):
    """Mixes by a matrix, then turns the channels, which changes nothing that is measured."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix
        self.turn = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.orthogonal_(self.turn.weight)

    def forward(self, x, *, keep=None, carry=None):
        size = x.shape[1]
        return self.turn(torch.einsum("ij,bjd->bid", self.matrix[:size, :size].to(x), x))


class Net(Backbone):
    def __init__(self, *mixers):
        super().__init__()
        self.blocks = nn.ModuleList(mixers)

    def forward(self, batch):
        x = batch["inputs"]
        for block in self.blocks:
            x = as_output(block(x, keep=batch.get("keep"))).out
        return ModelOutput(x)


def batch(samples=2, **more):
    torch.manual_seed(0)
    return {"inputs": torch.randn(samples, LENGTH, WIDTH, dtype=torch.float64), **more}


def measured(*mixers, given=None, **more):
    return passport(Net(*mixers).double(), given or batch(), **more)


def test_the_identity_passes_every_wave_and_all_of_its_singular_values_are_one():
    (operator,) = measured(Fixed(torch.eye(LENGTH)), probes=WIDTH).operators
    assert operator.response == pytest.approx([1.0] * len(operator.response))
    assert operator.singular_values == pytest.approx([1.0] * LENGTH)
    assert operator.effective_rank == pytest.approx(1.0)


def test_the_mean_passes_frequency_zero_alone_and_makes_tokens_alike():
    found = measured(Fixed(torch.full((LENGTH, LENGTH), 1 / LENGTH)), probes=WIDTH)
    (operator,) = found.operators
    assert operator.response[0] == pytest.approx(1.0)
    assert max(operator.response[4::4]) < 0.05
    assert operator.singular_values[0] == pytest.approx(1.0)
    assert operator.singular_values[1] < 1e-7
    assert operator.effective_rank == pytest.approx(1 / LENGTH, rel=1e-5)
    before, after = found.similarity
    assert abs(before) < 0.2
    assert after == pytest.approx(1.0)


def test_singular_values_are_those_of_the_matrix():
    torch.manual_seed(3)
    matrix = torch.randn(LENGTH, LENGTH, dtype=torch.float64)
    (operator,) = measured(Fixed(matrix), probes=3).operators
    assert operator.singular_values == pytest.approx(torch.linalg.svdvals(matrix).tolist())


def test_the_response_is_that_of_the_difference():
    """x_t - x_{t-1} passes |1 - e^{-i w}|, but for the end of the sequence."""
    size = 256
    matrix = torch.eye(size) - torch.eye(size).roll(1, 0)
    given = {"inputs": torch.randn(1, size, WIDTH, dtype=torch.float64)}
    (operator,) = measured(Fixed(matrix), given=given, probes=1).operators
    steps = len(operator.response) - 1
    assert operator.response == pytest.approx(
        [abs(2 * math.sin(math.pi * i / steps / 2)) for i in range(steps + 1)], abs=1e-6
    )


def test_padding_takes_no_part():
    keep = torch.ones(2, LENGTH, dtype=torch.bool)
    keep[:, 10:] = False
    given = batch(keep=keep)
    (operator,) = measured(Fixed(torch.eye(LENGTH)), given=given, probes=2).operators
    assert len(operator.singular_values) == 10
    given["inputs"][:, 10:] = given["inputs"][0, 0]
    assert measured(Fixed(torch.eye(LENGTH)), given=given).similarity[0] < 0.3


def test_long_samples_are_measured_at_their_first_tokens():
    (operator,) = measured(Fixed(torch.eye(LENGTH)), tokens=5).operators
    assert len(operator.singular_values) == 5


@pytest.mark.parametrize("name", ["softmax", "agf", "fourier", "mdfwa", "sfpc", "wavelet", "mega"])
def test_real_mixers_have_a_passport(name):
    mixer = subquad.mixer(name, dim=WIDTH, num_heads=2, max_len=LENGTH)
    net = Net(mixer).double()
    given = batch(1, keep=torch.ones(1, LENGTH, dtype=torch.bool))
    (operator,) = passport(net, given).operators
    assert all(math.isfinite(value) for value in (*operator.response, *operator.singular_values))
    assert 0 < operator.effective_rank <= 1 + 1e-9
    assert net.training
    assert not any(parameter.grad is not None for parameter in net.parameters())


def test_a_model_without_mixers_is_refused():
    class Plain(Net):
        def forward(self, batch):
            return ModelOutput(self.blocks[0](batch["inputs"]))

    with pytest.raises(PluginError, match="no token mixer"):
        passport(Plain(nn.Linear(WIDTH, WIDTH)).double(), batch())


def test_the_table_gives_each_layer_its_likeness_also_where_a_layer_has_two_mixers(capsys):
    operator = Operator(layer="", response=(1.0, 1.0), singular_values=(1.0,), effective_rank=1.0)
    names = ("blocks.0.mixer", "blocks.1.mixer", "blocks.1.cross", "blocks.2.mixer")
    operators = tuple(replace(operator, layer=name) for name in names)
    print_passports({"m": Passport(operators=operators, similarity=(0.0, 0.1, 0.2, 0.3))})
    found = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[1], row[-1]) for row in found] == list(
        zip(names, ("0.100", "0.200", "0.200", "0.300"), strict=True)
    )
