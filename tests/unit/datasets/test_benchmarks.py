"""Under which name published tables have a data set."""

from __future__ import annotations

from typing import Any

import pytest
from splits import dataset_of

from subquad.reports.published import published_tables

FEW: dict[str, Any] = {"train_size": 40, "test_size": 4}
IMAGES: dict[str, Any] = {"train_size": 2, "validation_size": 1, "test_size": 1, "processes": 1}
LENGTHS = {"min_length": 5, "max_length": 20}
ARENA: dict[str, dict[str, Any]] = {
    "text": {"max_len": 64, **FEW},
    "listops": {"validation_size": 4, **LENGTHS, **FEW},
    "retrieval": {"max_len": 64, "max_tokens": 64, **FEW},
    "image": FEW,
    "pathfinder": IMAGES,
}
"""Tasks of Long Range Arena, generated."""


@pytest.mark.parametrize("task", ARENA)
def test_long_range_arena_has_the_names_of_the_ledger(tmp_path, task):
    dataset = dataset_of(f"lra-{task}", tmp_path, **ARENA[task])
    dataset.prepare()
    assert dataset.describe().benchmark == task
    assert any(table.find("softmax", task, "accuracy") for table in published_tables())


def test_nothing_is_published_of_other_difficulties(tmp_path):
    dataset = dataset_of("lra-pathfinder", tmp_path, difficulty="easy", **IMAGES)
    dataset.prepare()
    assert dataset.describe().benchmark == ""
