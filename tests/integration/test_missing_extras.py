"""Libraries that are not installed are missed before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.cli.main import main

TUNE = ("tune", "small.yaml", "--space", "./space.yaml")
RAY = "subquad: Ray is not installed: pip install 'subquad[ray]', or go without Ray by --local\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    (tmp_path / "pictures" / "cat" / "one.jpg").write_bytes(b"")
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")
    return tmp_path


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("ray", [*TUNE], RAY),
        ("ray", [*TUNE, "--dry-run"], RAY),
        ("ray", ["train", "small.yaml"], RAY),
        (
            "pandas",
            [*TUNE],
            "subquad: Ray needs pandas: pip install 'subquad[ray]', or go without Ray by --local\n",
        ),
        (
            "mlflow",
            [*TUNE, "--local", "tracking.uri=http://host"],
            "subquad: tracking.uri is given, but MLflow is not installed: pip "
            "install 'subquad[mlflow]', or set "
            "tracking.uri=off\n",
        ),
        (
            "webdataset",
            ["data", "shard", "pictures", "shards", "--split", "train", "--jobs", "1"],
            "subquad: this needs webdataset, which is not installed: pip install 'subquad[all]'\n",
        ),
    ],
)
def test_nothing_is_left_behind(place, monkeypatch, capsys, module, arguments, message):
    before = sorted(place.iterdir())
    monkeypatch.setitem(sys.modules, module, None)
    assert main(arguments) == 2
    assert capsys.readouterr().err == message
    assert sorted(place.iterdir()) == before


def test_a_store_that_is_none_is_refused_as_early(place, capsys):
    assert main([*TUNE, "--local", "tracking.uri=ftp://host"]) == 2
    assert "tracking.uri: 'ftp://host' is no MLflow store" in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_without_ray_a_local_search_is_done(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*TUNE, "--local", "--dry-run"]) == 0


def test_a_search_without_optuna_is_refused(place):
    """In a process of its own: Optuna is imported with the spaces, once."""
    code = (
        "import sys; sys.modules['optuna'] = None; from subquad.cli.main import main; "
        f"sys.exit(main({TUNE}))"
    )
    before = sorted(place.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "subquad: a search needs Optuna: pip install 'subquad[tune]'\n",
    )
    assert sorted(place.iterdir()) == before
