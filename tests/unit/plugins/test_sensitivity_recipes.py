"""The recipes of sensitivity studies: bases of the table's recipes, values of the paper's
tables.
"""

from __future__ import annotations

from functools import cache

import pytest

from subquad.experiment import Run, load_study
from subquad.reports.published import published_tables

TABLES = {
    "lra": ("listops", "text", "retrieval", "image", "pathfinder"),
    "uea": (
        "EthanolConcentration", "FaceDetection", "Handwriting", "Heartbeat", "JapaneseVowels",
        "PEMS-SF", "SelfRegulationSCP1", "SelfRegulationSCP2", "SpokenArabicDigits",
        "UWaveGestureLibrary",
    ),
}  # fmt: skip
TASKS = [(table, task) for table, tasks in TABLES.items() for task in tasks]


@cache
def cells(recipe: str) -> dict[str, Run]:
    return {cell.label: cell for cell in load_study(recipe, ["matrix.seed=[0]"]).runs}


def plain(cell: Run):
    found = cell.experiment.model_dump(exclude={"name"})
    found["dataset"]["params"].pop("download", None)
    return found


@pytest.mark.parametrize(("table", "task"), TASKS)
def test_the_base_is_the_paper_s_cell_of_the_table(table, task):
    base = cells(f"{table}-agf-sensitivity")[f"{task}-agf-paper-base-seed0"]
    assert plain(base) == plain(cells(f"{table}-agf")[f"{task}-agf-paper-seed0"])


@pytest.mark.parametrize(("table", "task"), TASKS)
def test_every_printed_value_is_trained(table, task):
    found = [
        cell
        for label, cell in cells(f"{table}-agf-sensitivity").items()
        if label.startswith(f"{task}-")
    ]
    base = found[0].experiment.mixer.params
    (papers,) = published_tables()
    for key in ("order", "ortho_weight", "jacobi_a", "jacobi_b"):
        printed = {
            value
            for value, *_ in papers.find_varied("agf", f"mixer.params.{key}", task, "accuracy")
        }
        ours = {cell.experiment.mixer.params[key] for cell in found}
        assert ours == (printed | {base[key]} if printed else {base[key]})
