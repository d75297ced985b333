"""A mixer of somebody else's, as a wheel in an environment of its own: listed, shown, trained, reported."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import cli
from small_run import SMALL, only_run

MIXER = '''"""A running mean over the sequence."""
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param


class RunningMean(TokenMixer):
    """Mean of all real tokens, gated per channel."""

    class Config(MixerConfig):
        gate: float = param(1.0, meaning="initial gate", ge=0.0, le=4.0)

    facts = Facts(padding_invariant=True, complexity="L")
    paper = "nobody, 2026"

    def __init__(self, config, site):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.full((site.dim,), config.gate))
        self.value = torch.nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        value = self.value(x)
        if keep is None:
            return value.mean(1, keepdim=True) * self.gate + x
        weight = keep.unsqueeze(-1).to(value.dtype)
        return (value * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1) * self.gate + x
'''
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "running-mean"
version = "0.3.1"
[project.entry-points."subquad.mixers"]
running-mean = "running_mean:RunningMean"
[tool.hatch.build.targets.wheel]
only-include = ["running_mean.py"]
"""


def test_the_example_is_short():
    assert len([line for line in MIXER.splitlines() if line.strip()]) <= 30
    ast.parse(MIXER)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the built wheel installed."""
    root = tmp_path_factory.mktemp("third-party")
    (root / "running_mean.py").write_text(MIXER)
    (root / "pyproject.toml").write_text(PYPROJECT)
    run = lambda *words: subprocess.run(words, check=True, cwd=root, capture_output=True)  # noqa: E731
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(root / "dist"), str(root))
    (wheel,) = (root / "dist").glob("running_mean-0.3.1-*.whl")
    run(
        os.environ.get("UV", "uv"), "pip", "install", "--quiet", "--no-deps", "--target", str(root / "site"), str(wheel)
    )
    return root / "site"


def test_listed_and_shown(site, tmp_path):
    listed = json.loads(cli(["list", "mixer", "--json"], tmp_path, PYTHONPATH=str(site)).stdout)
    assert "running-mean" in json.dumps(listed)
    shown = cli(["show", "mixer", "running-mean"], tmp_path, PYTHONPATH=str(site)).stdout
    assert "gate" in shown
    assert "initial gate" in shown
    assert "running-mean 0.3.1" in shown


@pytest.mark.ci
@pytest.mark.parametrize("local", [True, False])
def test_trained_and_reported(site, tmp_path, local):
    (tmp_path / "own.yaml").write_text(
        SMALL.replace("mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}", STUDY)
    )
    how = ["--local"] if local else []
    done = cli(["train", "own.yaml", *how, "train.epochs=1"], tmp_path, PYTHONPATH=str(site))
    assert "running-mean" in done.stdout
    study = only_run(tmp_path)
    report = cli(["report", str(study)], tmp_path, PYTHONPATH=str(site))
    assert "running-mean" in report.stdout
    environment = json.loads((study / "cells" / "running-mean-recall-seed0" / "environment.json").read_text())
    assert ("running-mean", "0.3.1") in {(one["distribution"], one["version"]) for one in environment["plugins"]}


STUDY = """mixer: running-mean
matrix: {mixer: [running-mean, {name: running-mean, label: half, params: {gate: 0.5}}], dataset: [recall], seed: [0]}"""
