"""The published rows of Long Range Arena beside runs with the settings of the recipes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from subquad.experiment import Run, dump, load_study
from subquad.record.names import EXPERIMENT
from subquad.reports import read_report
from subquad.reports.beside import Beside, published_beside
from subquad.reports.published import published_tables

SAMPLES = {
    "listops": 2_000,
    "text": 25_000,
    "retrieval": 17_437,
    "image": 10_000,
    "pathfinder": 20_000,
}
OURS = {
    ("wi2025agf", "Table 2"): {"AGF": "agf", "Transformer": "softmax"},
    ("francois2025cur", "Table 1"): {
        "Transformer": "softmax", "CURformer": "cur", "Mega": "mega", "Mega-chunk": "mega-chunk",
        "MegaCUR": "megacur",
    },
}  # fmt: skip
ON_TEST = (
    "checkpoint chosen on validation, published: checkpoint chosen on the test split, "
    "which is its dev split"
)
GOOGLE = "published: another network, trained as Tay et al. (2021) did"
MEGA = "published: Mega's own networks, of 4 to 8 layers, trained as Mega"


@cache
def cells(recipe: str, *overrides: str) -> dict[str, Run]:
    return {cell.label: cell for cell in load_study(recipe, overrides).runs}


def beside(factory, task: str, found: list[Run], **facts: Any) -> dict[str, Beside]:
    """Published rows beside finished runs of these cells, by source and model."""
    study = factory.study()
    for number, cell in enumerate(found):
        experiment = cell.experiment
        written: dict[str, Any] = {
            "dataset": f"lra-{task}",
            "published": task,
            "mixer": cell.mixer.found.name,
            "label": "same",
            "protocol": experiment.protocol,
            "seed": experiment.train.seed,
            "samples": SAMPLES[task],
            **facts,
        }
        run: Path = factory.run(study / "cells" / str(number), **{**written, "params": {}})
        (run / EXPERIMENT).write_text(dump(experiment), encoding="utf-8")
    (row,) = read_report([study]).rows
    return {
        f"{entry.published.source} {entry.published.model}": entry
        for entry in published_beside(row)
    }


def seeds(
    task: str,
    mixer: str,
    count: int = 5,
    recipe: str = "",
    overrides: tuple[str, ...] = (),
) -> list[Run]:
    """A mixer on a task, as the recipe of its paper trains it where the command line names both."""
    recipe = recipe or ("lra-cur" if mixer == "cur" else "lra-agf")
    chosen = cells(recipe, f"matrix.dataset=[{task}]", f"matrix.mixer=[{mixer}]", *overrides)
    return [chosen[f"{task}-{mixer}-seed{seed}"] for seed in range(count)]


def test_every_row_of_a_mixer_of_ours_is_found():
    (shipped,) = published_tables()
    known = {(row.source, row.table, row.model, row.benchmark) for row in shipped.rows}
    for (source, table), models in OURS.items():
        for model, mixer in models.items():
            for task in SAMPLES:
                assert (source, table, model, task) in known
                found = [
                    row
                    for row in shipped.find(mixer, task, "accuracy", mixer)
                    if (row.source, row.model) == (source, model)
                ]
                assert [row.table for row in found] == [table]
                assert shipped.conditions_of(found[0]) is not None


@pytest.mark.parametrize("task", sorted(set(SAMPLES) - {"text"}))
@pytest.mark.parametrize("mixer", ["agf-paper", "agf-code", "softmax", "cur"])
def test_recipes_with_the_official_data_are_comparable(factory, task, mixer):
    found = beside(factory, task, seeds(task, mixer))
    assert (
        found.pop("francois2025cur Transformer").reasons == (GOOGLE,)
        if mixer == "softmax"
        else True
    )
    assert [entry.verdict for entry in found.values()] == ["comparable"]


@pytest.mark.parametrize("mixer", ["agf-paper", "agf-code", "softmax", "cur"])
def test_text_is_comparable_where_it_selects_on_test(factory, mixer):
    honest = beside(factory, "text", seeds("text", mixer))
    (tested,) = [entry for name, entry in honest.items() if name != "francois2025cur Transformer"]
    assert tested.reasons == (ON_TEST,)
    factory.root = factory.root / "paper"
    paper = beside(factory, "text", seeds("text", mixer, overrides=("protocol=paper",)))
    (tested,) = [entry for name, entry in paper.items() if name != "francois2025cur Transformer"]
    assert tested.verdict == "comparable"


def test_text_of_4k_is_another_length_for_agf_only(factory):
    length = (
        "dataset.params={path: data/aclImdb, max_len: 4096, max_tokens: 4000}",
        "protocol=paper",
    )
    (agf,) = beside(factory, "text", seeds("text", "agf-paper", 1, overrides=length)).values()
    assert agf.reasons == ("padded length 4096, published 1024", "bytes read 4000, published 1000")
    factory.root = factory.root / "softmax"
    softmax = beside(factory, "text", seeds("text", "softmax", 1, overrides=length))
    assert softmax["wi2025agf Transformer"].verdict == "comparable"


def test_lengths_that_the_cur_paper_does_not_print_are_not_comparable(factory):
    (cur,) = beside(factory, "listops", seeds("listops", "cur", recipe="lra-agf")).values()
    assert cur.reasons == ("padded length 2048, published 1024",)


@pytest.mark.parametrize("mixer", ["mega", "megacur"])
def test_rows_of_other_networks_are_never_comparable(factory, mixer):
    found = beside(factory, "image", seeds("image", mixer, recipe="lra-cur"))
    assert found
    assert all(entry.reasons == (MEGA,) for entry in found.values())


def test_the_study_of_cur_is_comparable(factory):
    (cur,) = beside(factory, "pathfinder", seeds("pathfinder", "cur", recipe="lra-cur")).values()
    assert cur.verdict == "comparable"


def test_a_mean_of_fewer_seeds_is_named(factory):
    (cur,) = beside(factory, "listops", seeds("listops", "cur", 2)).values()
    assert cur.reasons == ("2 of the 5 seeds that the published mean has",)


def test_generated_data_are_not_comparable(factory):
    note = "stand-in data: generated ListOps, not the official files"
    (agf,) = beside(factory, "listops", seeds("listops", "agf-code", 1), notes=[note]).values()
    assert agf.verdict == "not comparable: stand-in data, published: the real data"


def test_settings_of_another_task_are_not_comparable(factory):
    (agf,) = beside(factory, "image", seeds("pathfinder", "agf-paper", 1)).values()
    assert agf.reasons == (
        "pixels a side not stated, published 32",
        "share for validation not stated, published 0.1",
        "steps 62400, published 35000",
        "warm-up steps 312, published 175",
        "steps between evaluations 312, published 175",
        "order 3, published 7",
        "jacobi_a 1.5, published 2",
        "ortho_weight 0.0001, published 0.01",
    )


@pytest.mark.parametrize("task", sorted(SAMPLES))
def test_smoke_names_what_differs(factory, task):
    found = seeds(task, "agf-paper", 1, recipe="lra-agf-smoke")
    (agf,) = beside(factory, task, found, samples=128).values()
    steps = {
        "listops": 5_000,
        "text": 20_000,
        "retrieval": 30_000,
        "image": 35_000,
        "pathfinder": 62_400,
    }[task]
    assert (
        next(reason for reason in agf.reasons if reason != ON_TEST)
        == f"steps 24, published {steps}"
    )
    assert "learning rate 0.001, published 0.0001" in agf.reasons
    assert f"128 test samples, published {SAMPLES[task]}" in agf.reasons
