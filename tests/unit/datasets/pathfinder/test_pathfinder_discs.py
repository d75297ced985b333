"""Where the discs stand: found in the pixels, a reference score, and a variant in which it says
nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from subquad_datasets.pathfinder import PLUGIN, Config, balanced
from subquad_datasets.pathfinder.discs import find_discs, guess
from subquad_datasets.pathfinder.drawing import drawing
from subquad_datasets.pathfinder.generate import draw_marked, draw_tips
from subquad_datasets.pathfinder.stream import image_keys
from subquad_datasets.pathfinder.worker import Order


@pytest.mark.parametrize(
    ("resolution", "difficulty", "count"), [(32, "hard", 250), (64, "easy", 40)]
)
def test_discs_are_found_where_they_were_drawn(resolution, difficulty, count):
    what, keys, rows = (
        drawing(resolution, difficulty),
        image_keys(0, 0, np.arange(count)),
        np.arange(count),
    )
    labels, first, tips = rows % 2, rows // 2 % 2, draw_tips(what, keys)
    drawn = np.stack(
        [tips[rows, first, 0], tips[rows, np.where(labels, first, 1 - first), 1]], axis=1
    )
    pixels = draw_marked(what, keys, labels, first)
    found = find_discs(pixels, resolution, what.marker_radius).reshape(-1, 2, 2).astype(int)
    right = [(image == drawn).all(axis=(1, 2)) for image in (found, found[:, ::-1])]
    assert np.mean(right[0] | right[1]) > 0.96


def test_places_that_tell_are_learned_whichever_disc_comes_first():
    random = np.random.default_rng(0)
    discs = random.integers(0, 32, (3000, 4)).astype(np.uint8)
    labels = (np.hypot(*(discs[:, :2].astype(int) - discs[:, 2:]).T) < 16).astype(np.uint8)
    train, test = slice(2500), slice(2500, None)
    right = [
        np.mean(guess(discs[train], labels[train], ordered) == labels[test])
        for ordered in _both_ways(discs[test])
    ]
    assert right[0] == pytest.approx(right[1], abs=0.01)  # equally near ones may be others
    assert right[0] > 0.85
    shuffled = random.permutation(labels)
    assert 0.4 < np.mean(guess(discs[train], shuffled[train], discs[test]) == shuffled[test]) < 0.6


def _both_ways(discs: np.ndarray) -> list[np.ndarray]:
    return [discs, discs[:, [2, 3, 0, 1]]]


def test_each_balanced_image_has_one_of_the_other_label_with_its_discs_in_the_same_places(
    pathfinder, monkeypatch
):
    monkeypatch.setattr(balanced, "IN_BLOCK", 64)
    monkeypatch.setattr(balanced, "_POOL", 256)  # too small: it is doubled
    dataset = pathfinder(discs="balanced", train_size=100, validation_size=28)
    train = dataset.load("trainval")
    # the two discs in one order
    pairs = np.sort(train.discs.reshape(-1, 2, 2, 2).astype(int) @ [256, 1], axis=2)
    assert np.mean(pairs[:50, 0] == pairs[:50, 1]) > 0.95
    assert (train.labels.reshape(-1, 2).sum(axis=1) == 1).all()
    assert 0 < train.labels[::2].mean() < 1
    assert len({row.tobytes() for row in train.pixels}) == 128
    assert dataset.describe().notes[-1].startswith("balanced variant, not the published task: ")
    assert dataset.describe().benchmark == pathfinder().describe().benchmark == ""


def test_balanced_images_do_not_depend_on_how_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(balanced, "IN_BLOCK", 64)
    monkeypatch.setattr(balanced, "_POOL", 1024)
    few, many = (list(Order(32, "easy", 0, 0, count, balanced=True).draw()) for count in (10, 70))
    assert [len(labels) for _, labels in many] == [64, 6]
    assert np.array_equal(few[0][0], many[0][0][:10])


def test_names_and_what_cannot_be():
    assert PLUGIN.label(Config(discs="balanced")) == "lra-pathfinder-balanced"
    assert PLUGIN.label(Config(resolution=128)) == ""
    with pytest.raises(ValueError, match="discs"):
        Config(path="release", discs="balanced")
