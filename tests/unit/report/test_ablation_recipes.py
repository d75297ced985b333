"""The recipes of ablation studies: what the paper changes and nothing else, with its numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from subquad.experiment import Run, dump, load_study
from subquad.record.names import EXPERIMENT
from subquad.reports import read_report
from subquad.reports.beside import published_beside
from subquad.reports.published import published_tables
from subquad_plugins.agf import Config

SAMPLES = {
    "EthanolConcentration": 263, "FaceDetection": 3524, "Handwriting": 850, "Heartbeat": 205,
    "JapaneseVowels": 370, "PEMS-SF": 173, "SelfRegulationSCP1": 293, "SelfRegulationSCP2": 180,
    "SpokenArabicDigits": 2199, "UWaveGestureLibrary": 320,
    "listops": 2_000, "text": 25_000, "retrieval": 17_437, "image": 10_000, "pathfinder": 20_000,
}  # fmt: skip
ROWS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "uea": {
        "H_UV": ("Table 20", {"form": "uv"}),
        "H_SVD": ("Table 20", {"form": "svd_scalar"}),
        "agf-monomial": ("Table 19", {"basis": "monomial"}),
    },
    "lra": {
        "agf-none": ("Table 18", {"vector_activation": "none"}),
        "agf-sigmoid": ("Table 18", {"vector_activation": "sigmoid"}),
        "agf-tanh": ("Table 18", {"vector_activation": "tanh"}),
    },
}
WITHOUT_EFFECT = {
    "form": ("order", "basis", "jacobi_a", "jacobi_b", "fix_identity"),
    "basis": ("jacobi_a", "jacobi_b"),
    "vector_activation": (),
}
"""Settings of the base that have no effect beside the changed one, and stay at their defaults."""


@cache
def cells(recipe: str, *overrides: str) -> dict[tuple[str, str], Run]:
    """The runs of the first seed, by data set and mixer."""
    found = load_study(recipe, ["matrix.seed=[0]", *overrides]).runs
    return {(run.label.split("-" + run.axes["mixer"])[0], run.axes["mixer"]): run for run in found}


CELLS = [
    (table, task, mixer)
    for table, mixers in ROWS.items()
    for task, mixer in cells(f"{table}-agf-ablation")
    if mixer in mixers
]


def test_all_data_sets_and_rows_are_trained():
    assert len(CELLS) == 10 * 3 + 5 * 3
    assert {task for _, task, _ in CELLS} == SAMPLES.keys()


@pytest.mark.parametrize("table", ROWS)
def test_the_base_is_the_row_of_the_main_table(table):
    base = {key: run for key, run in cells(f"{table}-agf-ablation").items() if "paper" in key[1]}
    main = cells(f"{table}-agf")
    assert len(base) in (5, 10)
    for key, run in base.items():
        assert run.experiment.model_dump(exclude={"name"}) == main[key].experiment.model_dump(
            exclude={"name"}
        )


@pytest.mark.parametrize(("table", "task", "mixer"), CELLS)
def test_a_row_changes_one_thing(table, task, mixer):
    found = cells(f"{table}-agf-ablation")
    changed = found[task, mixer].experiment.model_dump(exclude={"name"})
    base = found[task, "agf-paper"].experiment.model_dump(exclude={"name"})
    (setting,) = (sets := ROWS[table][mixer][1])
    defaults = Config().model_dump()
    unused = {name: defaults[name] for name in WITHOUT_EFFECT[setting]}
    assert changed["mixer"]["params"] == base["mixer"]["params"] | unused | sets
    assert {**changed, "mixer": None} == {**base, "mixer": None}


@pytest.mark.parametrize(("table", "task", "mixer"), CELLS)
def test_a_row_is_comparable_with_the_number_that_the_paper_prints(factory, table, task, mixer):
    by_test = table == "uea" or task == "text"
    protocol = "paper" if by_test else "honest"
    run = cells(f"{table}-agf-ablation", f"protocol={protocol}")[task, mixer]
    known = {
        "dataset": task if table == "uea" else f"lra-{task}",
        "published": task,
        "mixer": "agf",
        "label": mixer,
        "protocol": protocol,
        "samples": SAMPLES[task],
    }
    folder = factory.run("one", **known)
    (folder / EXPERIMENT).write_text(dump(run.experiment), encoding="utf-8")
    (row,) = read_report([folder]).rows
    (beside,) = published_beside(row)
    (papers,) = published_tables()
    assert beside.published.table == ROWS[table][mixer][0]
    assert beside.published.model in papers.models[mixer]
    if beside.published.target:
        assert beside.verdict == "comparable"
    else:
        assert (task, beside.published.printed) == ("SpokenArabicDigits", "100.0")


def test_what_the_paper_does_not_say_stands_beside_the_number():
    (papers,) = published_tables()
    for mixer in ROWS["uea"]:
        for task in list(SAMPLES)[:10]:
            (row,) = papers.find("agf", task, "accuracy", mixer)
            assert any("taken to be" in caution for caution in row.cautions)


@pytest.mark.parametrize("task", SAMPLES)
def test_a_number_that_is_printed_again_is_shown_once(task):
    (papers,) = published_tables()
    (row,) = papers.find("agf", task, "accuracy", "agf-paper")
    assert row.table in ("Table 1", "Table 2")
