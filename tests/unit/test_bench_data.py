"""Plumbing of `subquad bench data`: ways are compared before they are timed. No time is judged."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from subquad.bench import data
from subquad.cli.main import main
from subquad.data import Reading
from subquad.errors import DataError
from subquad_datasets.imagenet import readings as imagenet
from subquad_datasets.listops import readings as listops
from subquad_datasets.uea import readings as uea

NAMED = SimpleNamespace(found=SimpleNamespace(name="some"))


def reading(*others: object, tolerance: float = 0.0) -> Reading:
    wanted = [np.arange(3), b"bytes"]
    return Reading("this", 2, {"usual": lambda: iter(wanted), "own": lambda: iter(others)}, tolerance)


@pytest.fixture
def offered(monkeypatch):
    """`offered(reading, ...)`: what a data set declares."""
    monkeypatch.setattr(data, "_BLOCK_SECONDS", 0.0)

    def _offered(*found: Reading):
        monkeypatch.setattr(data, "build_class", lambda _: SimpleNamespace(readings=lambda folder: iter(found)))
        return data.measure_readings([NAMED], 1)

    return _offered


def test_each_way_has_a_rate_and_a_ratio(offered):
    usual, own = offered(reading(np.arange(3), b"bytes"))
    assert (usual["dataset"], usual["what"], usual["way"], own["way"]) == ("some", "this", "usual", "own")
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
    monkeypatch.setattr(listops, "SAMPLES", 64)
    monkeypatch.setattr(uea, "SHAPE", (12, 3, 5))
    monkeypatch.setattr(imagenet, "DRAWN", 32)
    monkeypatch.setattr(imagenet, "MEMBERS", 40)
    assert main(["bench", "data", "lra-listops", "uea", "imagenet", "--rounds", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["readings"]
    assert [one["way"] for one in rows[:6]] == [
        *("replace, split, dictionary", "one translation", "from prepared data"),
        *("sktime", "text", "kept, to memory"),
    ]
    assert [one["way"] for one in rows[6:9]] == ["webdataset", "by the index", "by the index, sums compared"]
    assert all(one["per_second"] > 0 for one in rows)


def test_an_unknown_data_set_is_one_line(capsys):
    assert main(["bench", "data", "lra-listop"]) == 2
    assert "lra-listops" in capsys.readouterr().err
