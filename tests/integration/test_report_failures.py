"""No failure of a report costs a training its result, and one line says how to make it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from result_file import read_result
from small_run import SMALL, only_run

from subquad.cli.main import main
from subquad.reports.drawing import LineChart

SPACE = "dims: {train.lr: {choice: [0.001, 0.01]}}\n"
SHORT = ["train.epochs=1", "--local"]
TUNE = ["--space", "./space.yaml", "--budget", "1-trials", "--sampler", "random"]
LINE = (
    "report failed: ValueError: 'xerr' must not contain negative values; results are safe, "
    "make it with: subquad report {}"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "space.yaml").write_text(SPACE)
    return tmp_path


def no_picture(self: LineChart, axes: object) -> None:
    raise ValueError("'xerr' must not contain\nnegative values")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["train", "small.yaml", *SHORT], id="train"),
        pytest.param(["train", "small.yaml", "matrix.seed=[0, 1]", *SHORT], id="study"),
        pytest.param(["tune", "small.yaml", *TUNE, *SHORT], id="tune"),
    ],
)
def test_a_chart_that_fails_costs_no_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys, command: list[str]
):
    with monkeypatch.context() as broken:
        broken.setattr(LineChart, "draw", no_picture)
        assert main(command) == 0
        (folder,) = place.glob("runs/*/*")
        final = folder / "final"
        reported = (final if final.exists() else folder).relative_to(place)
        assert LINE.format(reported) in capsys.readouterr().out
        results = [read_result(path.parent) for path in reported.rglob("result.json")]
        assert all(result["status"] == "finished" for result in results if result)
        assert main(["resume", str(folder.relative_to(place)), "--local"]) == 0
        assert LINE.format(reported) in capsys.readouterr().out
    assert main(["report", str(reported)]) == 0
    assert (reported / "report.html").exists()


@pytest.mark.parametrize("part", ["read_report", "print_document"])
def test_no_part_of_a_report_costs_a_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys, part: str
):
    def fail(*_: object) -> None:
        raise KeyError(part)

    monkeypatch.setattr(f"subquad.cli.study.{part}", fail)
    assert main(["train", "small.yaml", "--json", *SHORT]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["result"]["status"] == "finished"
    assert main(["resume", str(only_run(place)), "--local"]) == 0
    assert f"report failed: KeyError: '{part}'; " in capsys.readouterr().out
