"""The studies of the papers' tables have every row of them, and the controls every mixer."""

from __future__ import annotations

import pytest

from subquad.experiment import load_study
from subquad.registry import find_plugins
from subquad.reports.published import published_tables

SAME = {"FlashAttention"}
"""Rows that compute what another row does."""


@pytest.mark.parametrize(
    ("recipe", "source", "table", "dataset"),
    [
        ("uea-agf", "wi2025agf", "Table 1", "Handwriting"),
        ("lra-agf", "wi2025agf", "Table 2", "listops"),
        ("lra-cur", "francois2025cur", "Table 1", "listops"),
    ],
)
def test_every_published_row_is_a_row_of_the_study(recipe, source, table, dataset, tmp_path):
    few = ["matrix.seed=[0]", f"matrix.dataset=[{dataset}]"]
    usual = load_study(recipe, few, cwd=tmp_path).runs
    runs = load_study(recipe, [*few, "matrix.mixer=all"], cwd=tmp_path).runs
    (shipped,) = published_tables()
    found = [
        row.model
        for run in runs
        for row in shipped.find(run.mixer.found.name, dataset, "accuracy", run.axes["mixer"])
        if (row.source, row.table) == (source, table)
    ]
    printed = {
        row.model
        for row in shipped.rows
        if (row.source, row.table, row.benchmark) == (source, table, dataset)
    }
    assert set(found) == printed - SAME
    assert len(usual) < 6 < len(runs)


def test_the_controls_have_every_mixer(tmp_path):
    study = load_study(
        "controls", ["matrix.mixer=all", "matrix.dataset=[copy]", "matrix.seed=[0]"], cwd=tmp_path
    )
    own = {row.name for row in find_plugins("mixer") if row.distribution == "subquad"}
    assert {run.experiment.mixer.name.removeprefix("subquad:") for run in study.runs} == own
    assert len(load_study("controls", cwd=tmp_path).runs) == 5 * 3 * 3
