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
from subquad.record.trust import give
from subquad_tools.bench import clock, kernels, mixers
from subquad_tools.bench.rows import LeftOut, SpeedSettings, choose_mixer


@pytest.fixture(autouse=True)
def _given():
    """The user named this file."""
    give(f"{__file__}:Any")


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
    best = {"gflops": 1.0, "gbytes": 2.0, "size": 2048, "device": "CPU", "torch": "2"}
    monkeypatch.setattr(mixers, "roofline", lambda device, dtype: best)
    monkeypatch.setattr(clock, "SHORTEST_BLOCK", 1e-6)
    monkeypatch.setattr(gc, "collect", lambda: 0)


def time_kernels(chosen, settings=TINY):
    return kernels.time_kernels(chosen, settings, LeftOut())


def test_what_runs_here_and_agrees_is_timed_beside_the_reference():
    found = time_kernels([choose_mixer(f"{__file__}:Scaled")])
    attentions, rows = found["kernels"][:2], found["kernels"][2:]
    assert {row["implementation"] for row in attentions} == {
        "torch attention (flash)",
        "torch attention (math)",
    }
    assert [(row["both_ratio"], row["attention_ratio"]) for row in attentions[:1]] == [(1, 1)]
    told = [(row["implementation"], row["chosen"], row["shape"]) for row in rows]
    names = [("reference", False), ("fast", True), ("usual", False)]
    assert told == [(*name, shape) for shape in ([2, 8, 8], [2, 4, 8]) for name in names]
    keys = ("forward_us", "both_us", "forward_ratio", "both_ratio", "attention_ratio", "peak_mib")
    for row in rows:
        assert (row["operation"], row["length"]) == ("tests.scale", 8)
        assert all(math.isfinite(row[key]) and row[key] > 0 for key in keys)
    references = [row for row in rows if row["implementation"] == "reference"]
    assert [row["both_ratio"] for row in references] == [1, 1]
    assert (
        found["skipped"]
        == [
            "tests.scale in-double at length 8: takes no such arguments",
            "tests.scale wrong at length 8: its numbers are inf of the largest "
            "from the reference's",
        ]
        * 2
    )


def test_shares_of_the_roofs_are_of_the_least_bytes_and_the_references_operations():
    found = time_kernels([choose_mixer(f"{__file__}:Scaled")])
    row = next(row for row in found["kernels"] if row["implementation"] == "fast")
    numbers, scale = 2 * 8 * 8, 1
    once = 4 * (2 * numbers + scale)  # arguments and results
    least = 2 * once + 4 * (numbers + scale)  # and gradients of the arguments
    assert row["bytes_share"] == pytest.approx(least / 2.0e9 / (1e-6 * row["both_us"]))
    assert row["product_share"] == pytest.approx(row["gflop"] / (1e-6 * row["both_us"]))
    assert row["gflop"] > 0


def test_the_chosen_one_is_named_where_another_is_faster_in_every_round(monkeypatch, capsys):
    taken = {"reference": 3.0, "fast": 2.0, "usual": 1.0}
    monkeypatch.setattr(clock.Warm, "seconds", lambda row, part: taken.get(row.name, 1.0))
    mixer = choose_mixer(f"{__file__}:Scaled")
    assert time_kernels([mixer])["slower"] == []  # one round says nothing
    found = time_kernels([mixer], TINY.model_copy(update={"rounds": 3}))
    first, _ = found["slower"]
    assert first == {
        "mixer": mixer.text,
        "length": 8,
        "operation": "tests.scale",
        "shape": [2, 8, 8],
        "chosen": "fast",
        "faster": "usual",
        "times": 2.0,
    }
    monkeypatch.setattr(kernels, "time_kernels", lambda *_: found)
    assert main(["bench", "kernels", "agf"]) == 0
    told = "runs by fast, which takes 2.00 times as long as usual"
    assert sum(told in line for line in capsys.readouterr().out.splitlines()) == 2


def test_arguments_are_those_of_the_call_and_apart_from_the_mixer():
    calls = kernels._calls(choose_mixer(f"{__file__}:Scaled"), TINY, 8)
    (args, _, chosen), _ = calls.values()
    assert chosen == "fast"
    assert args[0].is_leaf
    assert args[0].requires_grad
    assert args[1]["of"].requires_grad


def test_a_mixer_without_operations_is_told():
    found = time_kernels([choose_mixer("identity")])
    assert found["skipped"] == ["identity at length 8: calls no operation"]
    assert {row["operation"] for row in found["kernels"]} == {""}


def test_the_command(capsys):
    options = ["--lengths", "8", "--dim", "8", "--tokens", "16", "--rounds", "1"]
    assert main(["bench", "kernels", f"{__file__}:Scaled", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[4:7]] == [
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
    assert "options: a width of 9 is not divisible by 2 heads" in capsys.readouterr().err
