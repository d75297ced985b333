"""The curves are there, and show what they should."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
from matplotlib.image import imread

from subquad.tracking.plots import _curves_of, draw_run, draw_study


def size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def ink(path: Path) -> float:
    """Share of pixels that are not white."""
    return float((np.asarray(imread(path))[..., :3].min(axis=-1) < 0.9).mean())


def trained(folder) -> None:
    folder.train(range(1, 30))
    for step in (10, 20):
        folder.record(step, {"loss": 1.0, "accuracy": step / 40}, kind="eval", split="validation")
    folder.result()


def test_a_run_gets_loss_metric_and_learning_rate(run_folder, tmp_path: Path, monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # another test may have wanted it
    trained(run_folder)
    made = draw_run(run_folder.path, tmp_path / "out")
    assert [path.name for path in made] == ["loss.png", "accuracy.png", "learning_rate.png"]
    assert all(size(path) == (864, 504) and 0.01 < ink(path) < 0.5 for path in made)
    assert "matplotlib.pyplot" not in sys.modules


def test_values_that_cannot_be_drawn_are_left_out(run_folder, tmp_path: Path):
    run_folder.record(1, {"loss": float("inf")})
    run_folder.record(2, {"loss": float("nan")})
    assert draw_run(run_folder.path, tmp_path / "out") == []
    run_folder.record(3, {"loss": 2.0})
    assert _curves_of(run_folder.path) == {"train/loss": ([3], [2.0])}
    assert [path.name for path in draw_run(run_folder.path, tmp_path / "out")] == ["loss.png"]


def test_an_odd_label_or_metric_is_drawn_as_text(run_folder, tmp_path: Path):
    run_folder.record(1, {"../top@5 $x_": 2.0}, kind="eval", split="validation")
    run_folder.result(label="$\\frac{$ <b>" + "x" * 200, metric="../top@5 $x_")
    assert [path.name for path in draw_run(run_folder.path, tmp_path / "out")] == ["___top_5__x_.png"]


def test_a_study_gets_one_plot_of_all_cells_also_of_many(tmp_path: Path, make_run):
    cells = [make_run(tmp_path / f"cell{index}") for index in range(14)]
    for cell in cells:
        trained(cell)
    [path] = draw_study([cell.path for cell in cells], "study", tmp_path / "out")
    assert path.name == "overview.png"
    assert 0.01 < ink(path) < 0.6
    assert draw_study([], "study", tmp_path / "none") == []
