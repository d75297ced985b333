"""Searches that are extended, begun with points or another search's trials, repeated over seeds,
retried, exported.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from result_file import read_result
from small_run import SMALL

import subquad
from subquad.cli.main import main
from subquad.errors import ConfigError
from subquad.record.files import read_json

SHORT = ["train.steps=4", "train.epochs=null", "train.eval_every_epochs=null"]
SPACE = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, train.batch_size: {choice: [8, 16]}}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_pictures: None) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "space.yaml").write_text(SPACE)


def tune(*more: str) -> int:
    length = [] if any(setting.startswith("train.steps") for setting in more) else SHORT
    return main(
        [
            "tune",
            "small.yaml",
            *length,
            "--space",
            "./space.yaml",
            "--local",
            "--jobs",
            "1",
            "final.seeds=1",
            *more,
        ]
    )


def newest(root: Path) -> Path:
    return max((root / "runs" / "small-search").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def trials(search: Path) -> list[dict]:
    return [read_json(path) or {} for path in sorted(search.glob("trials/small/*/trial.json"))]


def summary(search: Path) -> dict:
    return (read_json(search / "search.json") or {})["candidates"][0]


def test_a_search_is_extended_by_the_trials_that_a_larger_one_has(tmp_path, capsys):
    assert tune("--budget", "4-trials", "--sampler", "tpe") == 0
    whole = newest(tmp_path)
    assert tune("--budget", "2-trials", "--sampler", "tpe") == 0
    search = newest(tmp_path)
    assert main(["resume", str(search), "--budget", "1-trial", "--local", "--jobs", "1"]) == 2
    assert (
        "--budget: the search has 2-trials, got 1-trial; it can only be given more"
        in capsys.readouterr().err
    )
    assert main(["resume", str(search), "--budget", "2h", "--local", "--jobs", "1"]) == 2
    assert main(["resume", str(search), "--budget", "4-trials", "--local", "--jobs", "1"]) == 0
    assert trials(search) == trials(whole)
    assert (search / "final-1").is_dir()
    assert list((read_json(search / "search.json") or {})["earlier_finals"]) == ["final-1"]
    assert summary(search)["best"] == summary(whole)["best"]
    assert main(["resume", str(search), "--local", "--jobs", "1"]) == 0, "it remembers"
    assert len(trials(search)) == 4
    (search / "budgets.json").write_text("{}")
    assert main(["resume", str(search), "--local", "--jobs", "1"]) == 2


def extended(tmp_path: Path, first: str, second: str) -> tuple[Path, bytes]:
    """A search of two candidates over one point each, extended by another one; and what its
    final run of agf said.
    """
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-9, 1e-1]}}")
    more = [
        "matrix.mixer=[agf, softmax]",
        "dataset.params.train_size=400",
        "train.steps=80",
        *SHORT[1:],
    ]
    points = ["--points", f"train.lr={first}", "--points", f"train.lr={second}"]
    assert tune(*more, *points, "--budget", "1-trial") == 0
    search = newest(tmp_path)
    result = search / "final" / "cells" / "agf-seed0" / "result.json"
    before = result.read_bytes()
    assert main(["resume", str(search), "--budget", "2-trials", "--local", "--jobs", "1"]) == 0
    return search, before


def openings(search: Path) -> list[dict]:
    ledger = search.parent.parent / "test-openings.jsonl"
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_a_winner_that_stays_is_not_tested_again(tmp_path, capsys):
    search, before = extended(tmp_path, "0.01", "1e-9")
    cells = search / "final" / "cells"
    assert (cells / "agf-seed0" / "result.json").read_bytes() == before
    assert sorted(Path(line["run"]).name for line in openings(search)) == [
        "agf-seed0",
        "softmax-seed0",
    ]
    assert {line["opening"] for line in openings(search)} == {1}
    assert not list(search.glob("final-1/cells/*"))
    assert (read_json(search / "search.json") or {})["earlier_finals"] == {"final-1": []}
    assert main(["verify", str(search)]) == 0
    capsys.readouterr()
    assert main(["report", str(search)]) == 0
    output = capsys.readouterr().out
    assert "test opened once" in " ".join(output.split())
    assert "opened before" not in output


def test_another_winner_opens_test_again_and_the_report_says_so(tmp_path, capsys):
    search, _ = extended(tmp_path, "1e-9", "0.01")
    assert [line["opening"] for line in openings(search)] == [1, 1, 2, 2]
    assert (read_json(search / "search.json") or {})["earlier_finals"] == {
        "final-1": ["agf-seed0", "softmax-seed0"]
    }
    result = read_result(search / "final" / "cells" / "agf-seed0") or {}
    assert result["openings"] == 2
    assert main(["verify", str(search)]) == 0
    capsys.readouterr()
    assert main(["report", str(search)]) == 0
    for text in (
        capsys.readouterr().out,
        (search / "report.md").read_text(),
        (search / "report.html").read_text(),
    ):
        assert "the test split was opened before with other winners" in text.replace("\\", "")
        assert "test opened 2 times" in " ".join(text.split())
        assert "opened once" not in text


def test_given_points_come_first_and_count(tmp_path, capsys):
    (tmp_path / "points.yaml").write_text("- {train.lr: 1e-3, train.batch_size: 16}\n")
    assert (
        tune("--budget", "3-trials", "--points", "./points.yaml", "--points", "train.lr=0.002") == 0
    )
    points = [trial["point"] for trial in trials(newest(tmp_path))]
    assert points[0] == {"train.lr": 1e-3, "train.batch_size": 16}
    assert points[1]["train.lr"] == 0.002
    assert len(points) == 3
    for given, message in [
        ("train.lr=5.0", "--points: train.lr: the space does not try 5.0"),
        ("train.weight=1", "--points: train.weight: is not searched"),
    ]:
        assert tune("--points", given) == 2
        assert message in capsys.readouterr().err


def test_several_seeds_are_runs_below_the_trial_and_their_mean_counts(tmp_path, capsys):
    settings = [
        "train.steps=8",
        *SHORT[1:],
        "train.eval_every_steps=2",
        "--pruner",
        "median",
        "trial.seeds=2",
    ]
    assert tune(*settings, "--budget", "2-trials", "--json") == 0
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    search = newest(tmp_path)
    runs = sorted(search.glob("trials/small/*/seed-*"))
    assert [f"{run.parent.name}/{run.name}" for run in runs] == [
        f"0000{number}/seed-{seed}" for number in range(2) for seed in (0, 1)
    ]
    results = [read_result(run) or {} for run in runs]
    assert {result["status"] for result in results} == {"finished"}
    means = [
        sum(
            result["best"]["metrics"]["accuracy"] for result in results[2 * number : 2 * number + 2]
        )
        / 2
        for number in range(2)
    ]
    assert candidate["best"]["value"] == pytest.approx(max(means))
    assert (candidate["trials"]["finished"], candidate["steps"]) == (2, 4 * 8)
    assert not list(search.glob("trials/**/checkpoints"))


def test_trials_as_one_table(tmp_path):
    assert tune("--budget", "2-trials") == 0
    table = newest(tmp_path) / "trials.csv"
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["candidate"], row["number"], row["state"]) for row in rows] == [
        ("small", "0", "finished"),
        ("small", "1", "finished"),
    ]
    assert list(rows[0]) == [
        *("candidate", "number", "state", "train.lr", "train.batch_size"),
        *("objective", "loss", "steps", "flops", "seconds", "reason"),
    ]
    assert all(1e-4 <= float(row["train.lr"]) <= 1e-2 and float(row["flops"]) > 0 for row in rows)


def test_from_python(tmp_path):
    found = subquad.tune("small.yaml", SHORT, space="./space.yaml", budget="1-trial", final_seeds=1)
    assert found["candidates"][0]["trials"]["finished"] == 1
    assert Path(found["folder"], "final").is_dir()
    with pytest.raises(
        ConfigError, match=r"--sampler: got 'tpo', must be one of .*; did you mean 'tpe'"
    ):
        subquad.tune("small.yaml", SHORT, space="./space.yaml", sampler="tpo")


LOUD = """\
import torch


class Loud(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        return 3 * torch.randn_like(x)
"""


def test_a_search_finds_how_many_layers_to_replace(tmp_path):
    """Each replaced layer drowns its tokens in noise, so that one is the best of {1, 3, 6}."""
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "space.yaml").write_text(
        "dims: {mixers.0.layers: {choice: [-6..-1, -3..-1, -1]}}\n"
    )
    mixers = ["mixer=softmax", "mixers=[{name: ./loud.py:Loud, layers: -1}]"]
    settings = [*mixers, "backbone.params.num_layers=7", "final.seeds=1"]
    command = ["tune", "small.yaml", "--space", "./space.yaml", "--sampler", "grid", "--local"]
    assert main([*command, "--budget", "3-trials", *settings]) == 0
    (search,) = (tmp_path / "runs" / "small-search").iterdir()
    (best,) = (search / "best").glob("*.yaml")
    assert yaml.safe_load(best.read_text())["mixers"][0]["layers"] == [-1]
