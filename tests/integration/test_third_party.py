"""Packages of somebody else's, as `subquad new` writes them: wheels in an environment of their own,
with subquad's.

What they hold is tested by their own tests, which a user gets with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command import cli
from hatchling.build import build_wheel
from small_run import only_run

from subquad.cli.main import main

REPO = Path(__file__).resolve().parents[2]
NEW = {
    "mixer": "running-mean",
    "dataset": "waves",
    "task": "balanced",
    "backbone": "stack",
    "space": "agf-near",
}
CHEAP = ("train.epochs=1", "tracking.uri=off")

pytestmark = pytest.mark.skipif(
    not (REPO / "pyproject.toml").is_file(), reason="runs beside the sources only"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the packages, and `venv`: their wheels and subquad's, and what those need as
    it is here.
    """
    root = tmp_path_factory.mktemp("third-party")
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in NEW.items():
            assert main(["new", kind, name, "--into", str(root)]) == 0
            patch.chdir(root / name)
            build_wheel(str(root / "dist"))
        patch.chdir(REPO)
        build_wheel(str(root / "dist"))
    uv, wheels = os.environ.get("UV", "uv"), [str(path) for path in (root / "dist").glob("*.whl")]
    run = lambda *words: subprocess.run(words, check=True, cwd=root, capture_output=True)  # noqa: E731
    run(uv, "venv", "--quiet", "--python", sys.executable, "venv")
    (packages(root) / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", "venv", *wheels)
    return root


def packages(root: Path) -> Path:
    (found,) = root.glob("venv/lib/python*/site-packages")
    return found


def test_listed_and_shown(place, tmp_path):
    path = str(packages(place))
    listed = json.loads(cli(["list", "--json"], tmp_path, PYTHONPATH=path).stdout)["plugins"]
    assert {
        plugin["kind"]: plugin["name"] for plugin in listed if plugin["distribution"] != "subquad"
    } == NEW
    shown = cli(["show", "mixer", "running-mean"], tmp_path, PYTHONPATH=path).stdout
    assert [
        word
        for word in ("initial bias of the gate", "running-mean 0.1.0", "always")
        if word not in shown
    ] == []
    shown = cli(["show", "space", "agf-near"], tmp_path, PYTHONPATH=path).stdout
    assert "mixer.params.order: {int: [2, 5]}" in shown


def test_their_own_tests_pass(place):
    python = place / "venv" / "bin" / "python"
    imported = subprocess.run(
        [python, "-c", "import subquad; print(subquad.__file__)"], capture_output=True, text=True
    )
    assert Path(imported.stdout).is_relative_to(place)
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NEW.values()]
    done = subprocess.run(
        words, cwd=place, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert (done.returncode, "failed" in done.stdout) == (0, False), done.stdout


@pytest.mark.parametrize(
    "how", [["--local"], pytest.param([], marks=pytest.mark.extended)], ids=["local", "ray"]
)
def test_trained_and_reported(place, tmp_path, how):
    path, experiment = str(packages(place)), str(place / "running-mean" / "experiment.yaml")
    done = cli(["train", experiment, *how, *CHEAP, "matrix.seed=[0]"], tmp_path, PYTHONPATH=path)
    assert "running-mean" in done.stdout
    study = only_run(tmp_path, "running-mean")
    assert "running-mean" in cli(["report", str(study)], tmp_path, PYTHONPATH=path).stdout
    environment = json.loads(
        (study / "cells" / "running-mean-seed0" / "environment.json").read_text()
    )
    assert ("running-mean", "0.1.0") in {
        (plugin["distribution"], plugin["version"]) for plugin in environment["plugins"]
    }
