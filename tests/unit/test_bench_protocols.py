"""Protocols of `subquad bench mixers`: what they say, where they are found, what is refused."""

from itertools import chain

import pytest

from subquad.cli.main import main
from subquad.errors import ConfigError
from subquad.registry import recipes
from subquad.reports.published import published_tables
from subquad_tools.bench import clock, mixers
from subquad_tools.bench.rows import Protocol


@pytest.fixture
def timed(monkeypatch):
    """What the command would have timed."""
    requests = []

    def time_mixers(chosen, settings, left_out):
        requests.append((chosen, settings))
        best = {"gflops": 1.0, "gbytes": 1.0, "size": 2048, "device": "CPU", "torch": "2"}
        empty = {name: [] for name in ("mixers", "speeds", "slower", "growth", "published")}
        return {
            "settings": settings.model_dump(),
            "best": best,
            "baselines": {},
            **empty,
            "skipped": left_out.lines,
        }

    monkeypatch.setattr(mixers, "time_mixers", time_mixers)
    return requests


def printed_table(source, table):
    return [
        row
        for published in published_tables()
        for row in published.rows
        if (row.source, row.table) == (source, table)
    ]


def test_every_built_in_protocol_can_be_read_and_its_mixers_exist():
    found = recipes("recipe", "benchmarks")
    assert {"cur-table2", "cur-figure4", "agf-table5", "agf-table21"} <= {*found}
    for name, file in found.items():
        protocol = Protocol.of(name)
        assert [mixer.text for mixer in protocol.chosen()] == list(protocol.mixers)
        assert file.summary


@pytest.mark.parametrize("name", ["cur-table2", "agf-table5", "agf-table21"])
def test_a_protocol_has_every_printed_row_and_column(name):
    protocol = Protocol.of(name)
    rows = printed_table(protocol.printed["source"], protocol.printed["table"])
    assert [*dict.fromkeys(row.model for row in rows)] == list(protocol.mixers)
    assert {row.benchmark for row in rows} == {*protocol.columns}
    metrics = {protocol.printed[key] for key in protocol.printed.keys() - {"source", "table"}}
    assert {row.metric for row in rows} == metrics
    assert {*chain(*protocol.columns.values())} == {*protocol.lengths}


def measured(protocol, names):
    """As if each row took its place among the names at every length."""
    speeds = [
        {
            "mixer": name,
            "length": length,
            "batch": 2,
            "forward_us": 1.0,
            "both_us": float(place),
            "peak_mib": 10.0 * place,
        }
        for place, name in enumerate(names, 1)
        for length in protocol.lengths
    ]
    baselines = dict.fromkeys(protocol.lengths, names[0])
    settings = {"lengths": protocol.lengths}
    return {"speeds": speeds, "baselines": baselines, "settings": settings}


def test_the_papers_table_has_its_ratios_beside_those_measured():
    protocol = Protocol.of("agf-table5")
    found = measured(protocol, ["torch attention (flash)", *protocol.mixers])
    lines = {(line["mixer"], line["column"]): line for line in protocol.table(found)}
    assert len(lines) == 7 * 6
    text = lines["AGF", "text"]
    assert (text["speed"], text["memory"]) == pytest.approx((2 / 7, 7 / 2))
    assert (text["now_speed"], text["now_memory"]) == pytest.approx((1 / 7, 7))
    assert text["printed_speed"] == pytest.approx(694.8 / 48.4)
    assert text["printed_memory"] == pytest.approx(0.51 / 21.24)
    assert lines["torch attention (flash)", "text"]["printed_speed"] is None
    found["speeds"] = [speed for speed in found["speeds"] if speed["length"] != 4096]
    kept = {line["column"] for line in protocol.table(found)}
    assert kept == {"listops", "image", "pathfinder"}


def test_printed_speeds_are_ratios_already():
    protocol = Protocol.of("cur-table2")
    found = measured(protocol, list(protocol.mixers))
    lines = {line["mixer"]: line for line in protocol.table(found)}
    flash = lines["FlashCURformer"]
    assert (flash["printed_speed"], flash["printed_memory"]) == pytest.approx((11.3, 0.08))
    plain, fused = (
        next(mixer for mixer in protocol.chosen() if mixer.text == name)
        for name in ("CURformer", "FlashCURformer")
    )
    assert (plain.kernels, fused.kernels) == ("reference", "")
    assert plain.params == fused.params


def test_without_printed_numbers_there_is_a_table_of_what_was_measured():
    protocol = Protocol.of("cur-figure4")
    lines = protocol.table(measured(protocol, list(protocol.mixers)))
    assert {line["column"] for line in lines} == {"1024", "2048", "3072", "4096"}
    assert {line["speed"] for line in lines} == {1.0}  # of the forward pass alone
    assert {line["printed_speed"] for line in lines} == {None}
    assert all(
        mixer.params["iterations"] == 6
        for mixer in protocol.chosen()
        if mixer.resolved.found.name == "cur"
    )


def test_a_papers_table_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(clock, "SHORTEST_BLOCK", 1e-6)
    monkeypatch.setitem(clock.ROOFS, "cpu", (32, 1 << 16))
    options = ["--lengths", "1024", "--tokens", "64", "--rounds", "1", "--dim", "8"]
    assert main(["bench", "mixers", "--protocol", "agf-table5", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("the paper's table"))
    rows = [line.split() for line in lines[start + 1 :] if " image " in line]
    agf = next(row for row in rows if row[0] == "AGF")
    assert agf[3::2][:2] == ["1.82", "0.37"]


def test_options_go_before_a_protocol(timed):
    options = ["--tokens", "4096", "--lengths", "1024", "--heads", "2", "--rounds", "3"]
    assert main(["bench", "mixers", "fourier", "--protocol", "cur-figure4", *options]) == 0
    (chosen,), settings = timed[0]
    assert (chosen.text, settings.lengths, settings.samples(1024)) == ("fourier", (1024,), 4)
    assert (settings.heads, settings.dim, settings.rounds) == (2, 1024, 3)


def test_batches_by_length(timed, capsys):
    assert main(["bench", "mixers", "--protocol", "agf-table5"]) == 0
    settings = timed[0][1]
    assert [settings.samples(length) for length in settings.lengths] == [256, 32, 32]
    assert "batches of 256 at 1024, 32 at 2048, 32 at 4096" in capsys.readouterr().out


def test_a_file_of_ones_own(timed, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "# Mine.\nmixers: [identity]\nlengths: [8]\ncausal: true\nprecision: bf16\n",
        encoding="utf-8",
    )
    assert main(["bench", "mixers", "--protocol", str(path)]) == 0
    (chosen,), settings = timed[0]
    assert (chosen.text, settings.causal, settings.precision) == ("identity", True, "bf16")
    assert settings.lengths == [8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mixer: [agf]", "mixer: Extra inputs are not permitted; did you mean 'mixers'?"),
        ("lengths: [0]", "lengths.0: Input should be greater than 0"),
        ("lengths: [8, 16]\nbatch: [1]", "batch has 1 numbers for 2 lengths"),
        ("precision: fp8", "precision: Input should be 'fp32', 'bf16' or 'fp16'"),
    ],
)
def test_a_protocol_that_cannot_be_used_is_refused_in_one_line(text, message, tmp_path, capsys):
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["bench", "mixers", "--protocol", str(path)]) == 2
    assert capsys.readouterr().err == f"subquad: {path}: {message}\n"


def test_an_unknown_protocol_is_told_with_the_nearest_name():
    with pytest.raises(
        ConfigError,
        match=r"no protocol 'cur-tabl2'; did you mean 'cur-table2'\?; protocols: agf-table21, ",
    ):
        Protocol.of("cur-tabl2")


def test_a_protocol_of_another_package(monkeypatch, tmp_path, timed):
    from subquad.registry import shipped
    from subquad.registry.found import Found

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "theirs.yaml").write_text(
        "mixers: [identity]\nlengths: [8]\n", encoding="utf-8"
    )
    found = Found("recipe", "all", "other", "1.0", "other_recipes")
    monkeypatch.setattr(shipped, "folders", lambda kind: [(found, tmp_path)])
    for name in ("theirs", "other:theirs"):
        assert main(["bench", "mixers", "--protocol", name, "--json"]) == 0
    assert [settings.lengths for _, settings in timed] == [[8], [8]]


def test_a_protocol_alone_does_not_run_a_file(tmp_path, monkeypatch, capsys, timed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    (tmp_path / "theirs.yaml").write_text("mixers: ['agf', './x.py:Mean:order=3']\n")
    assert main(["bench", "mixers", "--protocol", "theirs.yaml"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "x.py would run" in errors
    assert not (tmp_path / "ran").exists()
    assert main(["bench", "mixers", "x.py:Mean"]) == 2
    assert (tmp_path / "ran").exists()
    assert timed == []


def test_a_row_to_compare_with_is_one_of_the_mixers(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("mixers: [agf]\nover: agff\n")
    with pytest.raises(ConfigError, match=r"over: agff is none of the mixers; did you mean 'agf'"):
        Protocol.of(str(file))
