"""Protocols of `subquad bench mixers`: what they say, where they are found, what is refused."""

import json

import pytest

from subquad.cli.main import main
from subquad.errors import ConfigError
from subquad.registry.shipped import yaml_files
from subquad_tools.bench import mixers
from subquad_tools.bench.protocol import Protocol
from subquad_tools.bench.rows import choose_mixers


@pytest.fixture
def timed(monkeypatch):
    """What the command would have timed."""
    requests = []

    def time_mixers(chosen, settings, **_):
        requests.append(([subject.text for subject in chosen], settings))
        best = {"gflops": 1.0, "gbytes": 1.0, "size": 2048}
        empty = {
            name: [] for name in ("mixers", "speeds", "growth", "over", "published", "skipped")
        }
        return {"settings": {**vars(settings)}, "best": best, **empty}

    monkeypatch.setattr(mixers, "time_mixers", time_mixers)
    return requests


def test_every_built_in_protocol_can_be_read_and_its_mixers_exist():
    files = yaml_files("recipe", "benchmarks")
    assert {"cur-paper", "agf-table5", "agf-table21"} <= {file.name for file in files}
    for file in files:
        protocol = Protocol.read(file.name)
        chosen, _ = choose_mixers(protocol.mixers)
        assert len(chosen) == len(protocol.mixers) > 0
        assert file.summary


def test_the_cur_papers_shapes(timed):
    assert main(["bench", "mixers", "--protocol", "cur-paper"]) == 0
    (rows, settings), *_ = timed
    assert rows[0] == settings.over == "subquad:softmax:kernel=standard"
    assert rows[1:] == [f"subquad:cur:num_indices={count}" for count in (32, 64, 128)]
    assert all(mixer.params["iterations"] == 6 for mixer in choose_mixers(rows[1:])[0])
    assert (settings.heads, settings.dim // settings.heads, settings.core) == (16, 64, True)
    assert [(length, settings.samples(length)) for length in settings.lengths] == [
        (length, 64) for length in (1024, 2048, 3072, 4096)
    ]


def test_options_go_before_a_protocol(timed):
    options = ["--tokens", "4096", "--lengths", "1024", "--heads", "2", "--rounds", "3"]
    assert main(["bench", "mixers", "fourier", "--protocol", "cur-paper", *options]) == 0
    rows, settings = timed[0]
    assert (rows, settings.lengths, settings.samples(1024)) == (["fourier"], (1024,), 4)
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
    rows, settings = timed[0]
    assert (rows, settings.lengths, settings.causal, settings.precision) == (
        ["identity"],
        (8,),
        True,
        "bf16",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mixer: [agf]", "mixer: Extra inputs are not permitted; did you mean 'mixers'?"),
        ("lengths: [0]", "lengths.0: Input should be greater than 0"),
        ("lengths: [8, 16]\nbatch: [1]", "protocol: batch has 1 numbers for 2 lengths"),
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
        match=r"no protocol 'cur-papr'; did you mean 'cur-paper'\?; protocols: agf-table21, ",
    ):
        Protocol.read("cur-papr")


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
    assert [settings.lengths for _, settings in timed] == [(8,), (8,)]


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


@pytest.mark.ci
def test_speed_and_memory_are_also_given_over_a_row_of_the_protocol(tmp_path, capsys):
    file = tmp_path / "small.yaml"
    row = "softmax:kernel=standard"
    file.write_text(f"mixers: [fourier, '{row}']\nlengths: [32, 512]\nrounds: 1\nover: '{row}'\n")
    assert main(["bench", "mixers", "--protocol", str(file), "--json", "--tokens", "512"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = {
        (speed["mixer"], speed["length"]): (speed["both_us"], speed["peak_mib"])
        for speed in found["speeds"]
    }
    assert {row["mixer"] for row in found["over"]} == {"torch attention", "fourier"}
    for ratio in found["over"]:
        base, this = own[row, ratio["length"]], own[ratio["mixer"], ratio["length"]]
        assert (ratio["speed"], ratio["memory"]) == (base[0] / this[0], this[1] / base[1])
    file.write_text("mixers: [agf]\nover: agff\n")
    with pytest.raises(ConfigError, match=r"over: agff is none of the mixers; did you mean 'agf'"):
        Protocol.read(str(file))
