"""Guesses without a model: kept where they are accuracies, noted where they are not, never at
the cost of a run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.data import ArraySplit, Dataset, DataSpec, Split, SplitName
from subquad.engine.result import _reference_scores
from subquad.plugin import Config
from subquad.registry import resolve

SPLIT = ArraySplit({"labels": np.zeros(40, np.int64)})
GOAL = resolve("task", "classification").plugin


class Plain(Dataset):
    def describe(self) -> DataSpec:
        return DataSpec.series(max_len=1, channels=1)

    def load(self, name: SplitName) -> Split:
        raise AssertionError(f"{name} was opened")


class Guessing(Plain):
    def __init__(self, answer: Any):
        super().__init__(Config(), Path())
        self.answer = answer

    def reference_scores(self, split: Split) -> Mapping[str, float]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_data_set_without_guesses_has_none():
    assert _reference_scores(GOAL, Plain(Config(), Path()), SPLIT) == ({}, [])


def test_accuracies_are_kept_and_are_plain_json():
    found, notes = _reference_scores(
        GOAL, Guessing({"majority": np.float32(0.25), "all": 1}), SPLIT
    )
    assert json.loads(json.dumps(found)) == {"accuracy": {"majority": 0.25, "all": 1.0}}
    assert notes == []


def test_other_metrics_are_kept_by_their_names():
    given = {
        "lead-3": {"rougeL": 0.2, "rouge1": math.inf, "loss": 10**400},
        "unigram": {"perplexity": 900},
    }
    found, notes = _reference_scores(GOAL, Guessing(given), SPLIT)
    assert found == {"rougeL": {"lead-3": 0.2}, "perplexity": {"unigram": 900.0}}
    assert notes[0] == "reference score 'lead-3' left out: inf is no rouge1"
    assert notes[1].endswith("0 is no loss") or notes[1].endswith("…")


@pytest.mark.parametrize(
    "value", [float("nan"), 1.5, -0.1, "0.4", None, True, 10**400, np.zeros(2)], ids=str
)
def test_what_is_no_accuracy_is_left_out_and_named(value: Any):
    found, (note,) = _reference_scores(GOAL, Guessing({"majority": 0.5, "odd": value}), SPLIT)
    assert found == {"accuracy": {"majority": 0.5}}
    assert note.startswith("reference score 'odd' left out: ")


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (RuntimeError("two\n  lines"), "no reference scores: RuntimeError: two lines"),
        (3, "no reference scores: TypeError: 'int' object is not iterable"),
        (None, "no reference scores: TypeError: 'NoneType' object is not iterable"),
    ],
    ids=str,
)
def test_a_failing_data_set_costs_its_rows_only(answer: Any, note: str):
    assert _reference_scores(GOAL, Guessing(answer), SPLIT) == ({}, [note])


def test_notes_stay_short():
    _, (note,) = _reference_scores(GOAL, Guessing(ValueError("x" * 5000)), SPLIT)
    assert len(note) == 200
    assert note.endswith("…")


def test_a_name_that_is_no_text_is_left_out():
    _, notes = _reference_scores(GOAL, Guessing({3: 0.5, " ": 0.5}), SPLIT)
    assert notes == [
        "reference score 3 left out: 0.5 is no accuracy",
        "reference score ' ' left out: 0.5 is no accuracy",
    ]
