"""Plumbing of `subquad bench kernels`: which implementations are timed, on what. No time is
judged.
"""

import gc
import json
import math

import pytest
import torch

from subquad.cli.main import main
from subquad.nn import TokenMixer
from subquad.nn.kernels import Operation
from subquad.plugin import Config, Facts
from subquad.trust import take_words
from subquad_tools.bench import clock, kernels
from subquad_tools.bench.kernels import time_kernels
from subquad_tools.bench.rows import SpeedSettings, choose_mixer


@pytest.fixture(autouse=True)
def _given():
    """The user named this file."""
    take_words([f"{__file__}:Any"])


TINY = SpeedSettings(lengths=(8,), dim=8, heads=2, tokens=16, rounds=1)
SCALE = Operation("tests.scale", reference=lambda x, by: (x * by["of"], None))


@SCALE.implementation("fast", dtypes=(torch.float32,))
def _fast(x, by):
    return by["of"] * x, None


@SCALE.implementation("elsewhere", devices=("cuda",))
def _elsewhere(x, by):
    raise AssertionError("runs on cuda alone")


@SCALE.implementation("in-double", dtypes=(torch.float64,))
def _in_double(x, by):
    raise AssertionError("takes float64 alone")


@SCALE.implementation("wrong", chosen=False)
def _wrong(x, by):
    return x * by["of"].detach(), None


@SCALE.implementation("usual", chosen=False)
def _usual(x, by):
    return torch.einsum("...,->...", x, by["of"]), None


class Scaled(TokenMixer):
    Config = Config
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, *, keep=None, carry=None):
        once = SCALE(x, {"of": self.scale})[0]
        return SCALE(SCALE(once, {"of": self.scale})[0][:, :4], {"of": self.scale})[0].repeat(
            1, 2, 1
        )


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(
        kernels, "roofline", lambda device, dtype: {"gflops": 1.0, "gbytes": 2.0, "size": 2048}
    )
    monkeypatch.setattr(clock, "SHORTEST_BLOCK", 1e-6)
    monkeypatch.setattr(gc, "collect", lambda: 0)


def test_what_runs_here_and_agrees_is_timed_beside_the_reference():
    found = time_kernels([choose_mixer(f"{__file__}:Scaled")], TINY)
    rows = [
        (kernel["implementation"], kernel["chosen"], kernel["shape"]) for kernel in found["kernels"]
    ]
    names = [("reference", False), ("fast", True), ("usual", False)]
    assert rows == [(*name, shape) for shape in ([2, 8, 8], [2, 4, 8]) for name in names]
    for kernel in found["kernels"]:
        assert (kernel["operation"], kernel["length"]) == ("tests.scale", 8)
        keys = (
            "forward_us",
            "both_us",
            "forward_ratio",
            "both_ratio",
            "both_attention",
            "gbytes",
            "peak_mib",
        )
        assert all(math.isfinite(kernel[key]) and kernel[key] > 0 for key in keys)
    assert [
        kernel["both_ratio"]
        for kernel in found["kernels"]
        if kernel["implementation"] == "reference"
    ] == [1, 1]
    assert (
        found["skipped"]
        == [
            "tests.scale in-double at length 8: takes no such arguments",
            "tests.scale wrong at length 8: its numbers are inf of the largest "
            "from the reference's",
        ]
        * 2
    )


def test_arguments_are_those_of_the_call_drawn_several_times_and_apart_from_the_mixer():
    mixer = choose_mixer(f"{__file__}:Scaled")
    (call, _) = kernels._calls(mixer, TINY, 8)
    assert call.chosen == "fast"
    assert len(call.sets) == kernels.DRAWS
    tensors = [args[0] for args, _ in call.sets]
    assert all(
        tensor.is_leaf and tensor.requires_grad and tensor.shape == (2, 8, 8) for tensor in tensors
    )
    assert not torch.equal(tensors[0], tensors[1])
    assert call.sets[0][0][1]["of"].requires_grad


def test_a_mixer_without_operations_is_told():
    found = time_kernels([choose_mixer("identity")], TINY)
    assert (found["kernels"], found["skipped"]) == (
        [],
        ["identity at length 8: calls no operation"],
    )


def test_the_command(capsys):
    options = ["--lengths", "8", "--dim", "8", "--tokens", "16", "--rounds", "1"]
    assert main(["bench", "kernels", f"{__file__}:Scaled", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["tests.scale", "reference", "8"],
        ["tests.scale", "fast*", "8"],
        ["tests.scale", "usual", "8"],
    ]
    assert any(line.endswith("at length 8: first argument (2, 8, 8)") for line in lines)
    assert main(["bench", "kernels", "agf", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["what"] == "kernels"
    assert any(kernel["operation"].startswith("agf.") for kernel in found["kernels"])
    assert main(["bench", "kernels", "agf", "--markdown", *options]) == 0
    assert capsys.readouterr().out.startswith("| operation | by | L | us fwd | fwd+bwd |")
    assert main(["bench", "kernels", "--dim", "9"]) == 2
    assert "--dim 9 is not divisible by --heads 2" in capsys.readouterr().err
