"""The check of kernels: what it compares, and where."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from subquad.nn import TokenMixer
from subquad.nn.kernels import Operation
from subquad.plugin import Facts, MixerConfig
from subquad_check import certify

CUBE = Operation("tests.cube", reference=lambda x: x * x * x)


@CUBE.implementation("single", dtypes=(torch.float32,))
def _single(x):
    return x.pow(3)


@CUBE.implementation("elsewhere", devices=("cuda",))
def _elsewhere(x):
    raise AssertionError("not on this device")


class Cubed(TokenMixer):
    """Each value to the third power."""

    Config, facts = MixerConfig, Facts()

    def __init__(self, config, site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return CUBE(self.value(x))


FOURTH = Operation("tests.fourth", reference=lambda x: x**4)


@FOURTH.implementation("usual", chosen=False)
def _usual(x):
    return x.detach() * x * x * x


class Fourth(Cubed):
    """Each value to the fourth power; the usual form forgets a gradient."""

    def forward(self, x, *, keep=None, carry=None):
        return FOURTH(self.value(x))


class Plain(Cubed):
    """Without an operation."""

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x)


def outcome(mixer, **options):
    (found,) = certify(mixer, only=["kernels"], **options).outcomes
    return found.status, found.detail


def test_an_implementation_is_compared_in_the_formats_it_takes():
    assert outcome(Cubed) == ("passed", "equal bit for bit; tests.cube single: float32")


def test_a_form_that_is_never_chosen_is_compared_too():
    status, detail = outcome(Fourth)
    assert status == "failed"
    assert "by tests.fourth usual" in detail


def test_a_mixer_without_operations_has_nothing_to_compare():
    assert outcome(Plain) == ("excluded", "has no operation with several implementations")


@pytest.mark.parametrize("mixer", [Cubed, Plain])
def test_off_the_cpu_the_whole_mixer_and_the_reference_are_compared_too(mixer):
    status, detail = outcome(mixer, device="cpu:0")  # another name of it goes the way of a GPU
    assert status == "passed"
    assert "the mixer on cpu:0: float64, float32, bfloat16" in detail
    assert ("tests.cube reference: float64, float32, bfloat16" in detail) == (mixer is Cubed)
    assert "elsewhere" not in detail
