"""The recipes of vision transformers: layers and parameters as the papers print them, and what
is shown beside them.
"""

import pytest

from subquad.experiment import load_study
from subquad.reports.published import published_tables


def cells(recipe):
    return {run.label: run.experiment for run in load_study(recipe).runs}


@pytest.mark.parametrize(
    ("dataset", "order", "weight", "layers"),
    [("imagenet-100", 4, 0.0, "0..10"), ("imagenet-1k", 3, 1e-4, "0..5")],
)
def test_agf_stands_in_the_last_layers_with_the_appendix_s_parameters(
    dataset, order, weight, layers
):
    agf = cells("deit-small-agf")[f"{dataset}-agf-seed0"]
    found = [agf.mixer.params[key] for key in ("order", "ortho_weight", "jacobi_a", "jacobi_b")]
    assert found == [order, weight, -0.5, 0.0]
    assert [(mixer.name, mixer.layers) for mixer in agf.mixers] == [("subquad:softmax", (layers,))]
    softmax = cells("deit-small-agf")[f"{dataset}-softmax-seed0"]
    assert (softmax.mixers, softmax.train) == ((), agf.train)


def test_cur_is_tuned_for_as_long_as_printed():
    found = cells("vit-b16-cur-finetune")
    assert {(cell.train.steps, cell.train.batch_size) for cell in found.values()} == {(1532, 64)}
    params = [cell.mixer.params for label, cell in found.items() if "cur" in label]
    assert [
        (param["num_indices"], param["selection"], param["iterations"]) for param in params
    ] == [(16, "step", 4), (32, "step", 4), (64, "step", 4)]


@pytest.mark.parametrize("recipe", ["deit-small-agf", "vit-b16-cur-finetune"])
@pytest.mark.parametrize("size", ["small", "smoke"])
def test_smaller_sizes_have_the_same_mixers(recipe, size):
    full, smaller = cells(recipe), cells(f"{recipe}-{size}")
    assert set(smaller) <= set(full)
    assert all(
        cell.mixer == full[label].mixer and cell.mixers == full[label].mixers
        for label, cell in smaller.items()
    )
    assert max(cell.train.steps or 0 for cell in cells(f"{recipe}-smoke").values()) <= 8


@pytest.mark.parametrize(
    ("mixer", "label", "benchmark", "value"),
    [
        ("agf", "agf", "imagenet-100", 81.3),
        ("agf", "agf", "imagenet-1k", 80.3),
        ("softmax", "softmax", "imagenet-100", 80.6),
        ("cur", "cur-16", "imagenet-1k", 70.2),
        ("cur", "cur-64", "imagenet-1k", 79.35),
    ],
)
def test_printed_rows_stand_beside_them(mixer, label, benchmark, value):
    (papers,) = published_tables()
    (row,) = papers.find(mixer, benchmark, "accuracy", label)
    assert row.value == value
    conditions = papers.conditions_of(row)
    assert conditions is not None
    assert "are not said" in conditions.never
