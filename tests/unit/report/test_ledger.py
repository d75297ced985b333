"""The published ledger, and the verdict on holding a run against it."""

from __future__ import annotations

import pytest

from subquad.reports import read_report
from subquad.reports.beside import published_beside
from subquad.reports.published import published_tables, source_title

UEA_BACKBONE = {
    "dim": 512, "ffn_dim": 2048, "norm": "post", "activation": "gelu", "dropout": 0.1,
    "positions": "learned", "position_init": "uniform", "input_scale": True, "mask_mixer": False,
    "final_norm": True, "final_activation": "gelu", "head": "flatten", "head_hidden": None,
    "head_dropout": 0.1,
}  # fmt: skip
UEA_TRAIN = {"epochs": 100, "clip_norm": 4.0, "eval_every_epochs": 2}
AGF = {
    "order": 4, "basis": "legendre", "jacobi_a": 1.0, "jacobi_b": 0.2, "ortho_weight": 0.01,
    "fix_identity": False, "form": "svd", "coeff_activation": "tanh", "sigma_map": "unit",
    "vector_activation": "softmax", "ortho_norm": "l1",
}  # fmt: skip
SOFTMAX = {"bias": True, "qk_norm": "none", "rotary": False, "dropout": 0.0}
AS_PUBLISHED = {"protocol": "paper", "backbone": UEA_BACKBONE, "train": UEA_TRAIN, "samples": 370}


def rows():
    return [row for table in published_tables() for row in table.rows]


def find(*where):
    return [row for table in published_tables() for row in table.find(*where)]


def beside(factory, **facts):
    (row,) = read_report([factory.run("one", **facts)]).rows
    return published_beside(row)


def test_published_rows_of_a_mixer():
    (agf,) = find("agf", "JapaneseVowels", "accuracy")
    (softmax,) = find("softmax", "JapaneseVowels", "accuracy")
    assert (agf.model, agf.value, agf.source, agf.table) == ("AGF", 99.5, "wi2025agf", "Table 1")
    assert (softmax.model, softmax.value) == ("Transformer", 98.7)
    assert find("identity", "JapaneseVowels", "accuracy") == []
    assert find("agf", "JapaneseVowels", "perplexity") == []


def test_a_label_with_rows_of_its_own_comes_before_the_mixer():
    (full,) = find("mdfwa", "PubMed", "rougeL", "MDFWA")
    (ablation,) = find("mdfwa", "PubMed", "rougeL", "MDFWA-fixed-scales")
    assert (full.value, full.table, ablation.value, ablation.table) == (
        21.9,
        "Table 1",
        21.2,
        "Table 2",
    )
    assert find("mdfwa", "PubMed", "rougeL", "mine") == []


def test_the_perfect_score_is_never_a_target():
    (row,) = find("agf", "SpokenArabicDigits", "accuracy")
    assert (row.value, row.target) == (100.0, False)
    assert row.cautions[0] == "never a target: training on the test file is very probable"


def test_every_source_has_a_title():
    assert all(source_title(row.source) != row.source for row in rows())


def test_a_run_under_the_published_conditions_is_comparable(factory):
    (entry,) = beside(factory, mixer="softmax", params=SOFTMAX, **AS_PUBLISHED)
    assert (entry.published.value, entry.verdict, entry.published.reference) == (
        98.7,
        "comparable",
        "wi2025agf Table 1",
    )


@pytest.mark.parametrize(
    "params", [AGF, {**AGF, "basis": "jacobi", "jacobi_a": 0.0, "jacobi_b": 0.0}]
)
def test_parameters_equal_in_effect_are_comparable(factory, params):
    (entry,) = beside(factory, params=params, **AS_PUBLISHED)
    assert entry.verdict == "comparable"


def test_another_parameter_of_the_mixer_is_named(factory):
    (entry,) = beside(factory, params={**AGF, "order": 3, "fix_identity": True}, **AS_PUBLISHED)
    assert entry.verdict == "not comparable: fix_identity on, published off; order 3, published 4"


def test_an_honest_run_names_every_condition_that_differs(factory):
    facts = {
        **AS_PUBLISHED,
        "protocol": "honest",
        "backbone": {**UEA_BACKBONE, "dim": 128, "ffn_dim": None},
    }
    (entry,) = beside(factory, mixer="softmax", params=SOFTMAX, **facts)
    assert entry.verdict == (
        "not comparable: checkpoint chosen on validation, published: best test "
        "accuracy over 100 epochs; "
        "width 128, published 512"
    )


def test_a_condition_the_run_does_not_state_is_no_match(factory):
    backbone = {key: value for key, value in UEA_BACKBONE.items() if key != "norm"}
    (entry,) = beside(
        factory, mixer="softmax", params=SOFTMAX, **{**AS_PUBLISHED, "backbone": backbone}
    )
    assert entry.verdict == "not comparable: layer norm not stated, published post"


def test_other_test_data_are_not_comparable(factory):
    (entry,) = beside(factory, mixer="softmax", params=SOFTMAX, **{**AS_PUBLISHED, "samples": 369})
    assert entry.verdict == "not comparable: 369 test samples, published 370"


def test_stand_in_data_are_not_comparable(factory):
    (entry,) = beside(
        factory, mixer="softmax", params=SOFTMAX, notes=["stand-in data"], **AS_PUBLISHED
    )
    assert entry.verdict == "not comparable: stand-in data, published: the real data"


def test_a_number_that_is_no_target_is_never_comparable(factory):
    facts = {**AS_PUBLISHED, "dataset": "SpokenArabicDigits", "samples": 2199}
    facts["train"] = {**UEA_TRAIN, "optimizer": "adam"}
    params = {
        **AGF,
        "basis": "jacobi",
        "jacobi_a": 1.0,
        "jacobi_b": 0.0,
        "ortho_weight": 0.5,
        "fix_identity": True,
    }
    (entry,) = beside(factory, params=params, **facts)
    assert (
        entry.verdict
        == "not comparable: never a target: training on the test file is very probable"
    )


def test_unknown_conditions_are_not_comparable(factory):
    found = beside(factory, mixer="softmax", dataset="mine", published="average", protocol="paper")
    assert {entry.published.source for entry in found} == {"wi2025agf", "francois2025cur"}
    assert all(entry.reasons[0] == "conditions unknown" for entry in found)


def test_an_unfinished_run_is_not_comparable(factory):
    (entry,) = beside(
        factory, mixer="softmax", params=SOFTMAX, **{**AS_PUBLISHED, "status": "failed"}
    )
    assert entry.reasons == ("no finished run",)
