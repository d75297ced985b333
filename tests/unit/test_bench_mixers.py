"""Plumbing of `subquad bench mixers`: what is timed against what. No time is judged."""

import csv
import gc
import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend

from subquad.cli.main import main
from subquad.errors import ConfigError, PluginError
from subquad.nn import TokenMixer
from subquad.nn.kernels import using
from subquad.plugin import Config, Facts
from subquad.record.trust import give
from subquad.registry import blocked, find_plugins
from subquad_tools.bench import clock, mixers, timed
from subquad_tools.bench.clock import one_thread, roofline, seconds
from subquad_tools.bench.command import as_markdown_text, mixers_table, notes_of
from subquad_tools.bench.mixers import calibrate as measured_anew
from subquad_tools.bench.rows import LeftOut, SpeedSettings, choose_mixer, choose_mixers
from subquad_tools.bench.timed import BASELINE, timed_attention


def markdown_lines(found, chosen) -> list[str]:
    return as_markdown_text(
        [mixers_table(found)], notes_of("mixers", found, chosen=chosen)
    ).splitlines()


def changed(settings, **values):
    return settings.model_copy(update=values)


def time_mixers(chosen, settings, *, strict=True, lines=()):
    return mixers.time_mixers(chosen, settings, LeftOut(lines, strict))


def attention(settings, length):
    return timed_attention(settings, length, LeftOut())


def of(found, *names):
    """What was timed of these."""
    return [speed for speed in found["speeds"] if speed["mixer"] in names]


@pytest.fixture(autouse=True)
def _given():
    """The user named this file."""
    give(f"{__file__}:Any")


TINY = SpeedSettings(lengths=(8, 16), dim=8, heads=2, tokens=32, rounds=1)
FUSED, MATH = (f"{BASELINE} ({name})" for name in ("flash", "math"))
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
    best = {"gflops": 1.0, "gbytes": 2.0, "size": 2048, "device": "CPU", "torch": "2"}
    monkeypatch.setattr(mixers, "roofline", lambda device, dtype: best)
    monkeypatch.setattr(clock, "SHORTEST_BLOCK", 1e-6)
    monkeypatch.setattr(mixers, "CALIBRATED", TINY)
    fields = {"calibrated": True, "length": 2048, "measured": 0.36, "known": 0.35}
    monkeypatch.setattr(mixers, "calibrate", lambda mixer, left_out: fields)
    monkeypatch.setattr(gc, "collect", lambda: 0)


def in_file(name: str) -> str:
    return f"{__file__}:{name}"


def test_every_mixer_stands_beside_torchs_attentions_at_every_length():
    rows = [choose_mixer(text) for text in ("agf:order=2", "identity")]
    found = time_mixers(rows, changed(TINY, published=False))
    for length in (8, 16):
        speeds = [speed for speed in found["speeds"] if speed["length"] == length]
        assert {speed["mixer"] for speed in speeds[:2]} == {FUSED, MATH}
        assert [speed["mixer"] for speed in speeds[2:]] == ["agf:order=2", "identity"]
        assert {speed["batch"] for speed in speeds} == {32 // length}
        assert speeds[0]["mixer"] == found["baselines"][length]
        assert speeds[0]["forward_ratio"] == speeds[0]["both_ratio"] == 1
    keys = ("forward_us", "both_us", "forward_ratio", "both_ratio", "gflop", "mbytes", "peak_mib")
    for speed in found["speeds"]:
        assert all(math.isfinite(speed[key]) and speed[key] > 0 for key in keys)
        seconds = speed["both_us"] * 32e-6
        assert speed["product_share"] == pytest.approx(speed["gflop"] / seconds)
        assert speed["uncounted"] == []
    weights, tokens = 2 * (8 * 8 + 8), 32 * 8  # value and output projections of identity
    least = 4 * (2 * (2 * tokens + weights) + tokens + weights) / 2e9
    for speed in of(found, "identity"):
        assert speed["bytes_share"] == pytest.approx(least / (speed["both_us"] * 32e-6))


def test_counts_are_those_of_a_forward_and_backward_pass():
    found = time_mixers([choose_mixer("identity")], TINY)
    products = 2 * 2 * 32 * 8 * 8  # value and output projections
    sums = 2 * 32 * 8  # gradients of their biases
    (speed, _) = of(found, "identity")
    assert speed["gflop"] == pytest.approx((3 * products + sums) / 1e9)


def test_the_baseline_is_softmax_attention_with_four_projections():
    module = timed._Attention(changed(TINY, causal=True)).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in module.inputs(x).chunk(3, -1))
    weights = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf).softmax(-1)
    torch.testing.assert_close(module(x), module.out((weights @ v).transpose(1, 2).flatten(-2)))


def test_ratios_are_over_the_baseline_blocks_on_either_side(monkeypatch):
    names = ["baseline", "a", "b", "c", "d"]
    rows = [attention(TINY, 8)[0] for _ in names]
    order, ticks = [], iter(range(1, 100))

    def block(action, device, repeats):
        order.append(names[next(i for i, row in enumerate(rows) if action.__self__ is row)])
        return float(next(ticks))

    monkeypatch.setattr(clock, "seconds", block)
    times = clock.times_in_turn(rows[0], rows[1:], rounds=1).values()
    found = [(row["forward"].seconds, row["forward"].ratio) for row in times]
    assert order[:7] == ["baseline", "a", "b", "c", "baseline", "d", "baseline"]
    assert order[7:] == order[:7]
    assert found == [(5.0, 1.0), (2.0, 2 / 3), (3.0, 1.0), (4.0, 4 / 3), (6.0, 1.0)]


def test_without_a_baseline_there_are_times_and_no_ratios():
    rows = [attention(TINY, 8)[0] for _ in "ab"]
    found = clock.times_in_turn(None, rows, rounds=2)
    assert list(found) == rows
    assert all(
        time.seconds > 0 and time.ratio is None
        for times in found.values()
        for time in times.values()
    )


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("agf", "agf", {}),
        ("agf:order=5", "agf", {"order": 5}),
        ("agf:order=5, ortho_weight=0.0", "agf", {"order": 5, "ortho_weight": 0.0}),
        ("subquad:agf:basis=legendre", "agf", {"basis": "legendre"}),
        (
            "sfpc:operator=circulant,first_column=[1.0, 0.5],order=2",
            "sfpc",
            {"first_column": [1.0, 0.5]},
        ),
    ],
)
def test_rows(text, name, params):
    row = choose_mixer(text)
    assert row.resolved.found.name == name
    assert row.params.items() >= params.items()


def test_a_mixer_in_a_file_may_have_parameters_too():
    assert choose_mixer(in_file("NotANumber")).resolved.found.name.endswith("NotANumber")
    with pytest.raises(ConfigError, match=r"NotANumber:width=2': width: unknown key"):
        choose_mixer(in_file("NotANumber:width=2"))


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
        choose_mixer(text)
    assert main(["bench", "mixers", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_by_default_every_installed_mixer_is_timed():
    chosen, left_out = choose_mixers([])
    names = {found.name for found in find_plugins("mixer") if not blocked(found.distribution)}
    assert {subject.resolved.found.name for subject in chosen} | {
        line.partition(":")[0] for line in left_out.lines
    } == names
    assert "identity" in names


def test_an_installed_mixer_that_cannot_be_built_is_skipped_with_a_line(monkeypatch):
    def choose(text):
        raise ConfigError(f"{text} needs order")

    monkeypatch.setattr("subquad_tools.bench.rows.choose_mixer", choose)
    chosen, left_out = choose_mixers([])
    assert chosen == []
    assert "agf: agf needs order" in left_out.lines


def test_outputs_that_are_not_finite_are_not_timed():
    with pytest.raises(
        PluginError,
        match=r"NotANumber: its numbers at length 8 are not finite, so there is nothing to time",
    ):
        time_mixers([choose_mixer(in_file("NotANumber"))], TINY)


def test_a_mixer_that_the_counter_cannot_follow_is_timed_all_the_same(monkeypatch):
    def broken():
        raise RuntimeError

    monkeypatch.setattr(clock, "counting", broken)
    rows = [choose_mixer("identity")]
    found = time_mixers(rows, TINY)
    assert of(found, "identity")[0]["uncounted"] == ["anything (RuntimeError)"]
    assert of(found, "identity")[0]["product_share"] is None
    lines = markdown_lines(found, rows)
    assert "- identity: not in its counts: anything (RuntimeError)" in lines
    assert any("| identity | 8 |" in line and "| 0+ | 0+ |" in line for line in lines)


def test_a_mixer_that_cannot_stand_at_a_length():
    rows = [choose_mixer(in_file("AtMostTen"))]
    with pytest.raises(PluginError, match=r"AtMostTen: takes 10 positions at most"):
        time_mixers(rows, TINY)
    found = time_mixers(rows, TINY, strict=False)
    assert [speed["length"] for speed in found["speeds"] if speed["mixer"] == rows[0].text] == [8]
    assert len(found["skipped"]) == 1
    assert found["skipped"][0].endswith(
        "AtMostTen at length 16: " + rows[0].text + ": takes 10 positions at most"
    )


def test_causal_for_all_or_not_at_all():
    with pytest.raises(
        PluginError, match=r"agf: never causal, so it cannot be timed with --causal"
    ):
        time_mixers(
            [choose_mixer("agf")],
            SpeedSettings(lengths=(8,), dim=8, tokens=16, rounds=1, causal=True),
        )


def test_devices():
    with pytest.raises(ConfigError, match=r"--device gpu: give cpu, cuda or cuda:1"):
        time_mixers([], SpeedSettings(device="gpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_no_cuda_device():
    with pytest.raises(
        ConfigError, match=r"--device cuda: torch sees no CUDA device here; use cpu"
    ):
        time_mixers([], SpeedSettings(device="cuda"))


def test_threads_and_garbage_collection_are_put_back():
    before, device, states = torch.get_num_threads(), torch.device("cpu"), []
    with one_thread():
        seconds(lambda: states.append((gc.isenabled(), torch.get_num_threads())), device, repeats=3)
    assert states == [(False, 1)] * 3
    with pytest.raises(ZeroDivisionError), one_thread():
        seconds(lambda: 1 // 0, device)
    assert (gc.isenabled(), torch.get_num_threads()) == (True, before)


def test_roofline(monkeypatch):
    monkeypatch.setitem(clock.ROOFS, "cpu", (32, 1 << 16))
    best = roofline(torch.device("cpu"), torch.bfloat16, rounds=1)
    assert best["gflops"] > 0
    assert best["gbytes"] > 0
    assert (best["size"], best["device"], best["torch"]) == (32, "CPU", torch.__version__)


def test_json(capsys):
    assert main(["bench", "mixers", "agf:order=2", "--json", *TINY_OPTIONS]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["what"] == "mixers"
    assert (found["best"]["gflops"], found["best"]["gbytes"]) == (1.0, 2.0)
    assert [row["row"] for row in found["mixers"]] == ["agf:order=2"]
    assert found["mixers"][0]["params"]["order"] == 2
    names = {FUSED, MATH, "agf:order=2", "agf:order=2 published"}
    assert {speed["mixer"] for speed in found["speeds"]} == names
    assert found["settings"]["lengths"] == [8, 16]
    assert {speed["length"] for speed in found["speeds"]} == {8, 16}


def test_table_and_notes(capsys):
    assert main(["bench", "mixers", "agf:order=2", *TINY_OPTIONS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:6]] == [["torch", "attention"]] * 4
    assert [line.split()[:2] for line in lines[6:8]] == [["agf:order=2", n] for n in ("8", "16")]
    assert [line.split()[:3] for line in lines[8:10]] == [
        ["agf:order=2", "published", n] for n in ("8", "16")
    ]
    assert any(
        line.startswith(
            "the roofs, measured in this run (CPU, torch 2): 1.0 GFLOP/s (2048^3 product, fp32), "
            "2.0 GB/s (copy)"
        )
        for line in lines
    )
    assert any(line.startswith(f"/ attention at length 8: {BASELINE} (") for line in lines)
    assert any(line.startswith("agf:order=2: order=2, basis=jacobi") for line in lines)


def test_a_folder_that_cannot_be_made_is_refused_before_measuring(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(mixers, "time_mixers", lambda *_, **__: pytest.fail("measured"))
    assert main(["bench", "mixers", "identity", "--out", str(tmp_path / "file" / "new")]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_markdown(capsys):
    rows = [choose_mixer("identity")]
    found = time_mixers(rows, TINY, lines=["x: why"])
    lines = markdown_lines(found, rows)
    assert lines[0].startswith("| mixer | L | us/token fwd |")
    assert len([line for line in lines if line.startswith("| ")]) == 1 + 1 + 6
    assert lines[-1] == "- skipped: x: why"
    assert any(line.startswith(r"- identity \[always causal\]: ") for line in lines)
    assert main(["bench", "mixers", "identity", "--markdown", *TINY_OPTIONS]) == 0
    assert capsys.readouterr().out.startswith("| mixer | L |")


def test_published_forms_are_compared_only_where_they_are_as_fast_as_the_authors_code(monkeypatch):
    agf = choose_mixer("agf:order=2")
    measured = measured_anew(agf, LeftOut())
    assert measured["known"] == pytest.approx(19.8 / 56.5)
    assert measured["calibrated"] == (abs(measured["measured"] / measured["known"] - 1) <= 0.15)
    for calibrated in (True, False):
        told = {"calibrated": calibrated, "length": 2048, "measured": 0.36, "known": 0.35}
        monkeypatch.setattr(mixers, "calibrate", lambda mixer, left_out, told=told: told)
        found = time_mixers([agf, choose_mixer("identity")], TINY)
        assert [row["mixer"] for row in found["published"]] == ["agf:order=2"]
        assert [time["length"] for time in found["published"][0]["times"]] == (
            [8, 16] if calibrated else []
        )
        line = next(line for line in markdown_lines(found, [agf]) if "by the authors' code" in line)
        assert ("published over agf:order=2: forward and with backward " in line) == calibrated
        assert ("reference not calibrated" in line) != calibrated
    speeds = {(speed["mixer"], speed["length"]): speed["both_ratio"] for speed in found["speeds"]}
    faster = mixers._times_faster(
        *(
            {**speed, "length": 8}
            for speed in found["speeds"]
            if speed["length"] == 8 and speed["mixer"].startswith("agf")
        )
    )
    assert faster["both"] == pytest.approx(
        speeds["agf:order=2 published", 8] / speeds["agf:order=2", 8]
    )


def test_a_form_that_cannot_be_calibrated_ends_nothing(monkeypatch):
    def fails(mixer, left_out):
        raise PluginError("no")

    monkeypatch.setattr(mixers, "calibrate", fails)
    found = time_mixers([choose_mixer("agf")], TINY)
    assert found["skipped"] == ["agf published, to be calibrated at length 2048: no"]
    assert found["published"] == [{"mixer": "agf", **mixers._UNKNOWN, "times": []}]


def test_nothing_is_known_of_the_authors_code_in_half_precision():
    found = time_mixers([choose_mixer("agf")], changed(TINY, precision="bf16"))
    assert found["published"][0]["calibrated"] is False
    assert any(
        "reference not calibrated" in line for line in markdown_lines(found, [choose_mixer("agf")])
    )
    assert {speed["mixer"] for speed in found["speeds"]} == {FUSED, MATH, "agf", "agf published"}


def test_a_published_form_with_other_numbers_is_not_timed(monkeypatch):
    form = "subquad_plugins.agf.published:PublishedAGF._gap"
    monkeypatch.setattr(form.replace(":", "."), lambda self, vectors: 0 * vectors.sum((1, 2, 3)))
    found = time_mixers([choose_mixer("agf")], TINY)
    assert {speed["mixer"] for speed in found["speeds"]} == {FUSED, MATH, "agf"}
    assert (
        "agf published: at length 8 its numbers are 1.0e+00 of the largest from agf's"
        in found["skipped"][0]
    )


def test_a_published_form_that_cannot_stand_at_a_length_is_left_out():
    found = time_mixers([choose_mixer("nystrom:num_landmarks=16")], changed(TINY, lengths=(16, 24)))
    assert [
        speed["length"] for speed in found["speeds"] if speed["mixer"].endswith("published")
    ] == [16]
    assert "the published form needs lengths that are multiples of 16" in found["skipped"][0]


def test_attention_without_its_projections():
    settings = changed(TINY, core=True)
    found = time_mixers([choose_mixer("softmax"), choose_mixer("nystrom")], settings)
    assert {speed["mixer"] for speed in found["speeds"]} == {FUSED, MATH, "softmax", "nystrom"}
    whole = time_mixers([choose_mixer("softmax")], TINY)
    assert of(found, "softmax")[0]["gflop"] < of(whole, "softmax")[0]["gflop"]
    lines = markdown_lines(found, [])
    assert any(line.endswith("the fastest here, without projections") for line in lines)
    with pytest.raises(PluginError, match=r"identity: no attention that can be timed without proj"):
        time_mixers([choose_mixer("identity")], settings)


def test_a_back_end_that_does_not_run_is_told(monkeypatch):
    kinds = {"cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
    monkeypatch.setitem(timed._BACKENDS, "cpu", kinds)
    found = time_mixers([], changed(TINY, lengths=(8,)))
    assert [speed["mixer"] for speed in found["speeds"]] == [MATH]
    (line,) = found["skipped"]
    assert line.startswith(f"{BASELINE} (cudnn) at length 8: does not run here: No")


def test_an_implementation_of_another_package_runs_in_torchs_flash_attention_alone(monkeypatch):
    order = []
    monkeypatch.setattr(timed, "activate_flash_attention_impl", order.append)
    monkeypatch.setattr(timed, "restore_flash_attention_impl", lambda: order.append("FA2"))
    row = attention(TINY, 8)[0]
    row.within = lambda: timed._by_flash("FA4")
    row.seconds("both")
    assert order == ["FA4", "FA2"]


def test_the_chosen_implementation_is_named_where_another_makes_the_mixer_faster(monkeypatch):
    own = timed.timed_mixer(choose_mixer("agf:order=2"), TINY, 8)
    monkeypatch.setattr(clock.Warm, "seconds", lambda row, part: 3.0 if row is own else 1.0)
    found = list(mixers._slower(own, changed(TINY, rounds=3), 8, LeftOut()))
    assert found
    for row in found:
        assert (row["mixer"], row["length"], row["times"]) == ("agf:order=2", 8, 3.0)
        assert row["operation"].startswith("agf.")
        assert row["faster"] != row["chosen"]
    monkeypatch.setattr(clock.Warm, "seconds", lambda row, part: 1.0)
    assert list(mixers._slower(own, changed(TINY, rounds=3), 8, LeftOut())) == []


def test_a_row_by_reference():
    plain = choose_mixer("agf:order=2 by reference")
    assert (plain.text, plain.kernels) == ("agf:order=2 by reference", "reference")
    assert plain.params["order"] == 2
    assert choose_mixer("cur by reference").kernels == "reference"
    with using() as ran:
        row = timed.timed_mixer(plain, TINY, 8)
        with row.within() as forced:
            row.both()
    assert set(forced.values()) == {"reference"}
    assert ran == {}


def test_memory_that_runs_out_leaves_a_length_out(monkeypatch):
    class Hungry(NotANumber):
        def forward(self, x, *, keep=None, carry=None):
            if x.shape[1] > 8:
                raise MemoryError
            return x * self.scale

    monkeypatch.setattr(AtMostTen, "forward", Hungry.forward)
    monkeypatch.setattr(AtMostTen, "facts", Facts())
    row = choose_mixer("identity")
    monkeypatch.setattr(
        mixers,
        "timed_mixer",
        lambda *args: timed.Timed("hungry", Hungry(None, None), *args[1:]).warm_up(),
    )
    found = time_mixers([replace(row, text="hungry")], TINY)
    assert found["skipped"] == ["hungry at length 16: out of memory"]
    assert [speed["length"] for speed in of(found, "hungry")] == [8]


def test_attention_that_does_not_fit_leaves_times_without_ratios(monkeypatch):
    def full(*_):
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
        )

    monkeypatch.setattr(timed._Core, "forward", full)
    found = time_mixers([choose_mixer("identity")], TINY)
    assert found["skipped"] == [
        f"{name} at length {length}: out of memory" for length in (8, 16) for name in (FUSED, MATH)
    ]
    assert [speed["both_ratio"] for speed in found["speeds"]] == [None, None]
    assert "| - | - |" in markdown_lines(found, [])[2]


def test_growth_is_the_exponent_of_a_samples_cost():
    def speed(length):
        kinds = {
            "forward_us": 3.0,
            "both_us": 5.0 * length,
            "gflop": 7.0 * length,
            "mbytes": 2.0 * length**1.5,
        }
        return {"mixer": "agf", "length": length, "batch": 1, "uncounted": [], **kinds}

    (found,) = mixers._growth(
        [choose_mixer("agf")], [speed(length) for length in (512, 1024, 4096)]
    )
    assert found.pop("mixer") == "agf"
    assert found.pop("declared") == "L"
    assert found == pytest.approx({"forward": 1.0, "both": 2.0, "flops": 1.0, "bytes": 1.5})
    assert mixers._growth([], [speed(512)]) == []


def test_inputs_are_fresh_in_every_block():
    row = attention(TINY, 8)[0]
    before = row.inputs[0].clone()
    row.seconds("forward")
    assert not torch.equal(row.inputs[0], before)


def test_samples_of_a_length():
    assert [changed(TINY, tokens=64).samples(length) for length in (8, 100)] == [8, 1]
    assert changed(TINY, batch=3).samples(8) == 3
    assert [changed(TINY, batch=[5, 2]).samples(length) for length in (8, 16)] == [5, 2]


def test_files(tmp_path, capsys):
    out = tmp_path / "curves"
    assert main(["bench", "mixers", "identity", "--out", str(out), *TINY_OPTIONS]) == 0
    assert json.loads((out / "bench.json").read_text())["mixers"][0]["row"] == "identity"
    rows = list(csv.DictReader((out / "bench.csv").read_text().splitlines()))
    assert [(row["mixer"], row["length"]) for row in rows][2] == ("identity", "8")
    assert float(rows[2]["both_us"]) > 0
    assert (out / "bench.md").read_text().startswith("| mixer | L |")
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "8,x"], "'8,x' is not a list of lengths, such as 512,1024"),
        (["--lengths", "0"], "'0' is not a list of lengths, such as 512,1024"),
        (["--dim", "9"], "a width of 9 is not divisible by 2 heads"),
        (["--json", "--markdown"], "--json and --markdown: give one of them"),
    ],
)
def test_options_that_cannot_be(options, message, capsys):
    assert main(["bench", "mixers", "agf", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
