"""Plumbing of `subquad bench mixers`: what is timed against what. No time is judged."""

import gc
import json
import math

import pytest
import torch
from torch import nn

from subquad.bench import mixers
from subquad.bench.clock import one_thread, seconds
from subquad.bench.mixers import BASELINE, SpeedSettings, _choose_mixer, _roofline, choose_mixers, time_mixers
from subquad.cli.bench import _as_markdown
from subquad.cli.main import main
from subquad.errors import ConfigError, PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Config, Facts
from subquad.registry import blocked, find_plugins

TINY = SpeedSettings(lengths=(8, 16), dim=8, heads=2, tokens=32, rounds=1)
TINY_OPTIONS = ["--lengths", "8,16", "--dim", "8", "--tokens", "32", "--rounds", "1"]


class NotANumber(TokenMixer):
    Config = Config
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, *, keep=None, carry=None):
        return x * self.scale / 0


class AtMostTen(NotANumber):
    facts = Facts(max_length=10)

    def forward(self, x, *, keep=None, carry=None):
        return x * self.scale


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(mixers, "_roofline", lambda device: {"gflops": 1.0, "gbytes": 2.0})
    monkeypatch.setattr("subquad.bench.mixers.SHORTEST_BLOCK", 1e-6)


def in_file(name: str) -> str:
    return f"{__file__}:{name}"


def test_every_mixer_stands_beside_the_baseline_at_every_length():
    rows = [_choose_mixer(text) for text in ("agf:order=2", "identity")]
    found = time_mixers(rows, TINY)
    assert [(one["mixer"], one["length"], one["batch"]) for one in found["speeds"]] == [
        (row, length, 32 // length) for length in (8, 16) for row in (BASELINE, "agf:order=2", "identity")
    ]
    for one in found["speeds"]:
        values = (
            one["forward_us"],
            one["both_us"],
            one["forward_ratio"],
            one["both_ratio"],
            one["gflop"],
            one["mbytes"],
            one["gflops"],
        )
        assert all(math.isfinite(value) and value > 0 for value in values)
        assert one["uncounted"] == []
    assert all(one["forward_ratio"] == one["both_ratio"] == 1 for one in found["speeds"] if one["mixer"] == BASELINE)


def test_counts_are_those_of_a_forward_and_backward_pass():
    found = time_mixers([_choose_mixer("identity")], TINY)
    products = 2 * 2 * 32 * 8 * 8  # value and output projections
    sums = 2 * 32 * 8  # gradients of their biases
    assert found["speeds"][1]["gflop"] == pytest.approx((3 * products + sums) / 1e9)


def test_the_baseline_is_softmax_attention_with_four_projections():
    module = mixers._Attention(8, 2, causal=True).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in module.inputs(x).chunk(3, -1))
    weights = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf).softmax(-1)
    torch.testing.assert_close(module(x), module.out((weights @ v).transpose(1, 2).flatten(-2)))


def test_ratios_are_over_the_baseline_blocks_on_either_side(monkeypatch):
    names = ["baseline", "a", "b", "c", "d"]
    timed = [mixers._Timed(None, TINY, 8) for _ in names]
    order, ticks = [], iter(range(1, 100))

    def block(action, device, repeats):
        order.append(names[next(i for i, one in enumerate(timed) if action.__self__ is one)])
        return float(next(ticks))

    monkeypatch.setattr(mixers, "seconds", block)
    found = mixers._speeds(timed[0], timed[1:], rounds=1)
    assert order[:7] == ["baseline", "a", "b", "c", "baseline", "d", "baseline"]
    assert order[7:] == order[:7]
    assert [one["forward_us"] * 32 / 1e6 for one in found] == pytest.approx([5.0, 2.0, 3.0, 4.0, 6.0])
    assert [one["forward_ratio"] for one in found] == [1.0, 2 / 3, 1.0, 4 / 3, 1.0]


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("agf", "agf", {}),
        ("agf:order=5", "agf", {"order": 5}),
        ("agf:order=5, ortho_weight=0.0", "agf", {"order": 5, "ortho_weight": 0.0}),
        ("subquad:agf:basis=legendre", "agf", {"basis": "legendre"}),
        ("sfpc:operator=circulant,first_column=[1.0, 0.5],order=2", "sfpc", {"first_column": [1.0, 0.5]}),
    ],
)
def test_rows(text, name, params):
    row = _choose_mixer(text)
    assert row.resolved.found.name == name
    assert row.params.items() >= params.items()


def test_a_mixer_in_a_file_may_have_parameters_too():
    assert _choose_mixer(in_file("NotANumber")).resolved.found.name.endswith("NotANumber")
    with pytest.raises(ConfigError, match=r"NotANumber:width=2': width: unknown key"):
        _choose_mixer(in_file("NotANumber:width=2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agff", r"unknown mixer 'agff'; did you mean 'agf'\?"),
        ("agf:oder=3", r"row 'agf:oder=3': oder: unknown key; did you mean 'order'\?"),
        ("agf:order=3,order=4", r"row 'agf:order=3,order=4': order is given twice"),
        ("agf:order=-1", r"row 'agf:order=-1': order: "),
        ("agf:order", r"unknown mixer 'agf:order'|no distribution"),
        ("", r"a row needs a mixer: write NAME or NAME:key=value,key=value"),
    ],
)
def test_a_wrong_row_is_one_line_and_exit_code_2(text, message, capsys):
    with pytest.raises((ConfigError, PluginError), match=message):
        _choose_mixer(text)
    assert main(["bench", "mixers", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_by_default_every_installed_mixer_is_timed():
    chosen, skipped = choose_mixers([])
    names = {found.name for found in find_plugins("mixer") if not blocked(found.distribution)}
    assert {one.resolved.found.name for one in chosen} | {line.partition(":")[0] for line in skipped} == names
    assert "identity" in names


def test_an_installed_mixer_that_cannot_be_built_is_skipped_with_a_line(monkeypatch):
    def choose(text):
        raise ConfigError(f"{text} needs order")

    monkeypatch.setattr(mixers, "_choose_mixer", choose)
    chosen, skipped = choose_mixers([])
    assert chosen == []
    assert "agf: agf needs order" in skipped


def test_outputs_that_are_not_finite_are_not_timed():
    with pytest.raises(
        PluginError, match=r"NotANumber: outputs at length 8 are not finite, so there is nothing to time"
    ):
        time_mixers([_choose_mixer(in_file("NotANumber"))], TINY)


def test_a_mixer_that_the_counter_cannot_follow_is_timed_all_the_same(monkeypatch):
    def broken(mixer, x):
        raise RuntimeError

    monkeypatch.setattr("subquad.bench.mixers.count_pass", broken)
    rows = [_choose_mixer("identity")]
    found = time_mixers(rows, TINY)
    assert found["speeds"][1]["uncounted"] == ["anything (RuntimeError)"]
    assert "- identity: not in its counts: anything (RuntimeError)" in _as_markdown(found, rows)
    assert _as_markdown(found, rows)[2].endswith("| 0+ | 0+ | 0.0+ |")


def test_a_mixer_that_cannot_stand_at_a_length():
    rows = [_choose_mixer(in_file("AtMostTen"))]
    with pytest.raises(PluginError, match=r"AtMostTen: takes 10 positions at most"):
        time_mixers(rows, TINY)
    found = time_mixers(rows, TINY, strict=False)
    assert [one["length"] for one in found["speeds"] if one["mixer"] == rows[0].text] == [8]
    assert len(found["skipped"]) == 1
    assert found["skipped"][0].endswith("AtMostTen at length 16: " + rows[0].text + ": takes 10 positions at most")


def test_causal_for_all_or_not_at_all():
    with pytest.raises(PluginError, match=r"agf: never causal, so it cannot be timed with --causal"):
        time_mixers([_choose_mixer("agf")], SpeedSettings(lengths=(8,), dim=8, tokens=16, rounds=1, causal=True))


def test_devices():
    with pytest.raises(ConfigError, match=r"--device gpu: give cpu, cuda or cuda:1"):
        time_mixers([], SpeedSettings(device="gpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_no_cuda_device():
    with pytest.raises(ConfigError, match=r"--device cuda: torch sees no CUDA device here; use cpu"):
        time_mixers([], SpeedSettings(device="cuda"))


def test_threads_and_garbage_collection_are_put_back():
    before, device, seen = torch.get_num_threads(), torch.device("cpu"), []
    with one_thread():
        seconds(lambda: seen.append((gc.isenabled(), torch.get_num_threads())), device, repeats=3)
    assert seen == [(False, 1)] * 3
    with pytest.raises(ZeroDivisionError), one_thread():
        seconds(lambda: 1 // 0, device)
    assert (gc.isenabled(), torch.get_num_threads()) == (True, before)


def test_roofline():
    best = _roofline(torch.device("cpu"), rounds=1, size=32, copied=1 << 16)
    assert best["gflops"] > 0
    assert best["gbytes"] > 0


def test_json(capsys):
    assert main(["bench", "mixers", "agf:order=2", "--json", *TINY_OPTIONS]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["what"] == "mixers"
    assert found["best"] == {"gflops": 1.0, "gbytes": 2.0}
    assert [row["row"] for row in found["mixers"]] == ["agf:order=2"]
    assert found["mixers"][0]["params"]["order"] == 2
    assert {one["mixer"] for one in found["speeds"]} == {BASELINE, "agf:order=2"}
    assert found["settings"]["lengths"] == [8, 16]
    assert {one["length"] for one in found["speeds"]} == {8, 16}


def test_table_and_notes(capsys):
    assert main(["bench", "mixers", "agf:order=2", *TINY_OPTIONS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["torch", "attention", n] for n in ("8", "16")]
    assert [line.split()[:2] for line in lines[3:5]] == [["agf:order=2", n] for n in ("8", "16")]
    assert "this process at best: 1.0 GFLOP/s (2048^3 product), 2.0 GB/s (copy)" in lines
    assert any(line.startswith("agf:order=2: order=2, basis=jacobi") for line in lines)


def test_markdown(capsys):
    rows = [_choose_mixer("identity")]
    found = time_mixers(rows, TINY, skipped=["x: why"])
    lines = _as_markdown(found, rows)
    assert lines[0].startswith("| mixer | L | us/token fwd |")
    assert len([line for line in lines if line.startswith("| ")]) == 1 + 1 + 4
    assert lines[-1] == "- skipped: x: why"
    assert any(line.startswith("- identity [always causal]: ") for line in lines)
    assert main(["bench", "mixers", "identity", "--markdown", *TINY_OPTIONS]) == 0
    assert capsys.readouterr().out.startswith("| mixer | L |")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "8,x"], "'8,x' is not a list of lengths, such as 512,1024"),
        (["--lengths", "0"], "'0' is not a list of lengths, such as 512,1024"),
        (["--dim", "9"], "--dim 9 is not divisible by --heads 2"),
        (["--json", "--markdown"], "--json and --markdown: give one of them"),
    ],
)
def test_options_that_cannot_be(options, message, capsys):
    assert main(["bench", "mixers", "agf", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
