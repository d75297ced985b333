"""The studies of the papers' tables have every row of them."""

from __future__ import annotations

import pytest

from subquad.experiment import load_study
from subquad.report.published import published_tables

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
    printed = {row.model for row in shipped.rows if (row.source, row.table, row.benchmark) == (source, table, dataset)}
    assert set(found) == printed - SAME
    assert len(usual) < 6 < len(runs)
