"""Plumbing of benchmarks/readings.py: ways are compared before they are timed. No time is
judged.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from benchmark import benchmark

from subquad.errors import DataError

data = benchmark("readings")


def reading(*others: object, tolerance: float = 0.0):
    wanted = [np.arange(3), b"bytes"]
    return data.Reading(
        "this", 2, {"usual": lambda: iter(wanted), "own": lambda: iter(others)}, tolerance
    )


@pytest.fixture
def offered(monkeypatch):
    """`offered(reading, ...)`: what a data set declares."""
    monkeypatch.setattr(data, "_BLOCK_SECONDS", 0.0)

    def _offered(*found):
        monkeypatch.setitem(
            sys.modules, "readings_some", SimpleNamespace(readings=lambda folder: iter(found))
        )
        return data.measure_readings(["some"], 1)

    return _offered


def test_each_way_has_a_rate_and_a_ratio(offered):
    usual, own = offered(reading(np.arange(3), b"bytes"))
    assert (usual["dataset"], usual["what"], usual["way"], own["way"]) == (
        "some",
        "this",
        "usual",
        "own",
    )
    assert usual["ratio"] == 1.0
    assert own["ratio"] == pytest.approx(own["per_second"] / usual["per_second"])
    assert offered(reading(np.array([0, 1, 2.5]), b"bytes", tolerance=0.5))


@pytest.mark.parametrize(
    "others",
    [
        (np.arange(3), b"other"),
        (np.arange(3),),
        (np.arange(3), b"bytes", b"more"),
        (np.arange(2), b"bytes"),
        (np.array([0, 1, 3]), b"bytes"),
    ],
)
def test_ways_that_read_something_else_are_not_timed(offered, others):
    with pytest.raises(DataError, match="some, this: own reads something else than usual"):
        offered(reading(*others))


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset leaves shards open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_readers_of_data_sets_read_as_the_usual_code_does(monkeypatch, capsys):
    monkeypatch.setattr(data, "_BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(benchmark("readings_listops"), "SAMPLES", 64)
    monkeypatch.setattr(benchmark("readings_uea"), "SHAPE", (12, 3, 5))
    monkeypatch.setattr(benchmark("readings_imagenet"), "DRAWN", 32)
    monkeypatch.setattr(benchmark("readings_imagenet"), "MEMBERS", 40)
    data.main(["listops", "uea", "imagenet", "--rounds", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["readings"]
    assert [row["way"] for row in rows[:6]] == [
        *("replace, split, dictionary", "one translation", "from prepared data"),
        *("sktime", "text", "kept, to memory"),
    ]
    assert [row["way"] for row in rows[6:9]] == [
        "webdataset",
        "by the index",
        "by the index, sums compared",
    ]
    assert all(row["per_second"] > 0 for row in rows)
