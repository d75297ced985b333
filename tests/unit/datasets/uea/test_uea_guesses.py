"""What guesses score on UEA problems: the commonest class, and nearest neighbours before
normalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from splits import KEY, REAL_DATA, dataset_of, of_real_data

from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea import dataset as module
from subquad_datasets.uea.dataset import UeaDataset

PUBLISHED = {
    "ArticularyWordRecognition": 0.970,
    "AtrialFibrillation": 0.267,
    "BasicMotions": 0.600,
    "ERing": 0.944,
    "Handwriting": 0.332,
    "Libras": 0.828,
    "NATOPS": 0.839,
    "PenDigits": 0.977,
    "UWaveGestureLibrary": 0.875,
}


def guesses(dataset: UeaDataset) -> dict[str, float]:
    return dataset.reference_scores(dataset.split("test", KEY))


@pytest.mark.parametrize("normalize", [True, False])
def test_neighbours_are_those_of_the_values_in_the_file(tmp_path: Path, normalize: bool):
    dataset = UeaDataset(UeaConfig(problem="BasicMotions", normalize=normalize), tmp_path)
    assert guesses(dataset) == {"majority": 0.25, "one_nn": 0.6}


def test_neighbours_are_not_searched_among_series_of_unequal_length(tmp_path: Path):
    found = guesses(UeaDataset(UeaConfig(problem="JapaneseVowels"), tmp_path))
    assert found == {"majority": pytest.approx(31 / 370)}


def test_large_scales_decide_what_is_near(toy: Callable[..., UeaDataset]):
    # the second channel alone separates the classes, and only by its size
    dataset = toy(
        train="0,0:500,500:up\n1,1:-500,-500:down\n", test="1,1:400,400:up\n0,0:-400,-400:down\n"
    )
    assert guesses(dataset) == {"majority": 0.5, "one_nn": 1.0}


def test_a_search_that_would_take_long_is_left_out(toy, monkeypatch):
    dataset = toy(train="0,0:0,0:up\n1,1:1,1:down\n", test="0,1:0,0:up\n")
    monkeypatch.setattr(module, "MAX_PRODUCTS", 2 * 1 * 4)
    assert guesses(dataset) == {"majority": 0.0, "one_nn": 1.0}
    monkeypatch.setattr(module, "MAX_PRODUCTS", 2 * 1 * 4 - 1)
    assert guesses(dataset) == {"majority": 0.0}


@of_real_data
@pytest.mark.parametrize("problem", sorted(PUBLISHED))
def test_published_accuracies(problem: str, tmp_path: Path):
    """One nearest neighbour, Euclidean, not normalised, as printed beside the archive's results."""
    found = guesses(dataset_of("uea", tmp_path, problem=problem, path=str(REAL_DATA / "uea")))
    assert round(found["one_nn"], 3) == PUBLISHED[problem]
