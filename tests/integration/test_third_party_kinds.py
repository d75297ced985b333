"""Plugins that do what those of `subquad new` do not, of somebody else's: each is trained with
the built-in others.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import cli
from small_run import SMALL, only_run

PLUGINS = Path(__file__).parents[1] / "support" / "third_party"
ENTRY_POINTS = """
[subquad.mixers]
third-mean = third_mixer:Mean
third-linear = third_core:LinearAttention
[subquad.backbones]
third-decoder = third_backbone:PLUGIN
[subquad.tasks]
third-next-token = third_task:PLUGIN
[subquad.recipes]
third = third_recipes
"""
DECODER = ("backbone={name: third-decoder}", "task=third-next-token", "mixer=softmax")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the distribution's metadata, beside which its modules are found."""
    root = tmp_path_factory.mktemp("third")
    info = root / "third-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    for source in PLUGINS.glob("*.py"):
        (root / source.name).write_text(source.read_text())
    (root / "third_recipes").mkdir()
    (root / "third_recipes" / "third-recall.yaml").write_text(
        (PLUGINS / "files" / "third-recall.yaml").read_text()
    )
    return root


@pytest.mark.parametrize(
    "path",
    sorted({*PLUGINS.rglob("third*.py"), *PLUGINS.rglob("third*.yaml")}),
    ids=lambda path: path.stem,
)
def test_a_plugin_of_any_kind_is_short(path):
    assert len(path.read_text().splitlines()) <= 40


@pytest.mark.parametrize(
    ("changes", "metric", "label"),
    [
        (["mixer=third-mean"], "accuracy", "recall"),
        (["mixer=third-linear"], "accuracy", "recall"),
        (
            [*DECODER, "dataset={name: copy, params: {train_size: 64}}"],
            "perplexity",
            "copy",
        ),
    ],
    ids=["mixer", "core", "backbone and task"],
)
def test_it_trains_with_the_built_in_others(site, tmp_path, changes, metric, label):
    (tmp_path / "own.yaml").write_text(SMALL)
    cli(
        ["train", "own.yaml", "--local", "train.epochs=1", *changes], tmp_path, PYTHONPATH=str(site)
    )
    run = only_run(tmp_path)
    (result,) = (json.loads(path.read_text()) for path in run.rglob("result.json"))
    assert (result["status"], result["dataset"]) == ("finished", label)
    assert metric in result["test"]["metrics"]


def test_what_does_not_fit_is_refused_by_words_that_both_sides_said(site, tmp_path):
    (tmp_path / "own.yaml").write_text(SMALL)
    done = cli(
        ["train", "own.yaml", "--local", "task=third-next-token"],
        tmp_path,
        check=2,
        PYTHONPATH=str(site),
    )
    assert (
        "backbone.name: got 'encoder', which serves targets 'class' or 'positions'" in done.stderr
    )
    assert (
        "does not fit task 'third-next-token' on dataset 'recall', of 'next-token'" in done.stderr
    )


def test_a_recipe_extends_a_built_in_one(site, tmp_path):
    cli(
        ["train", "third-recall", "--local", "matrix.mixer=[softmax]"],
        tmp_path,
        PYTHONPATH=str(site),
    )
    results = [
        json.loads(path.read_text())
        for path in tmp_path.glob("runs/third-recall/*/cells/*/result.json")
    ]
    assert [result["status"] for result in results] == ["finished"] * 2
    assert sorted(str(result["axes"]["change"]) for result in results) == [
        "{'train.lr': 0.01}",
        "{}",
    ]
