"""The generator: equal to its slow oracle, the same everywhere, and images that are what they claim."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import cast

import numpy as np
import pytest
from scipy import ndimage

from subquad_datasets.pathfinder import naive
from subquad_datasets.pathfinder.generate import (
    MARGIN_WORD,
    draw_images,
    draw_labels,
    draw_scenes,
)
from subquad_datasets.pathfinder.naive import NaiveImages
from subquad_datasets.pathfinder.parameters import Resolution, drawing
from subquad_datasets.pathfinder.stream import below, child_keys, image_keys, words
from subquad_datasets.pathfinder.tables import dilate
from subquad_datasets.pathfinder.worker import IMAGES_IN_BLOCK, Order, blocks


@pytest.fixture
def quick_oracle(monkeypatch):
    for name in ("line_stamp", "mask_stamp", "turn_weight"):
        monkeypatch.setattr(naive, name, functools.cache(getattr(naive, name)))


@pytest.mark.ci
@pytest.mark.usefixtures("quick_oracle")
@pytest.mark.parametrize(
    ("resolution", "difficulty", "count"), [(32, "hard", 2), (32, "easy", 8), (64, "easy", 4), (128, "easy", 3)]
)
def test_images_equal_the_oracles_bit_for_bit(resolution, difficulty, count):
    what, indices = drawing(resolution, difficulty), np.arange(7, 7 + count)
    pixels, labels = draw_images(what, 5, 1, indices)
    keys = image_keys(5, 1, indices)
    margins = below(len(what.margins), keys, MARGIN_WORD)
    for row in range(count):
        slow = NaiveImages(what, what.margins[margins[row]])
        assert np.array_equal(pixels[row], slow.image(keys[row : row + 1], int(labels[row])).ravel()), row


def test_an_image_depends_on_nothing_but_its_number():
    what = drawing(32, "intermediate")
    together, labels = draw_images(what, 3, 0, np.arange(40))
    backwards, _ = draw_images(what, 3, 0, np.arange(40)[::-1])
    alone = [draw_images(what, 3, 0, np.array([row])) for row in (0, 17, 39)]
    assert np.array_equal(together[::-1], backwards)
    for (pixels, label), row in zip(alone, (0, 17, 39), strict=True):
        assert np.array_equal(pixels[0], together[row])
        assert label[0] == labels[row]


def test_seeds_and_splits_have_images_of_their_own():
    what = drawing(32, "easy")
    drawn = [draw_images(what, seed, split, np.arange(20))[0] for seed, split in ((0, 0), (0, 1), (0, 2), (1, 0))]
    assert len({row.tobytes() for pixels in drawn for row in pixels}) == 80


@pytest.mark.ci
def test_one_and_two_processes_draw_the_same(monkeypatch):
    monkeypatch.setitem(IMAGES_IN_BLOCK, 32, 512)
    order = Order(32, "easy", 0, 0, 1100)
    alone, shared = (list(blocks(order, processes)) for processes in (1, 2))
    assert [len(labels) for _, labels in alone] == [512, 512, 76]
    for (pixels, labels), (other_pixels, other_labels) in zip(alone, shared, strict=True):
        assert np.array_equal(pixels, other_pixels)
        assert np.array_equal(labels, other_labels)


_DIGEST = """
import hashlib, numpy as np
from subquad_datasets.pathfinder.generate import draw_images
from subquad_datasets.pathfinder.parameters import drawing
sums = hashlib.sha256()
for resolution, difficulty in ((32, "hard"), (64, "easy"), (128, "easy")):
    for part in draw_images(drawing(resolution, difficulty), 0, 0, np.arange(4)):
        sums.update(part.tobytes())
print(sums.hexdigest())
"""

GOLDEN = "fa357ff31f6425543d5c4d6a2bda4190dd9ffe253dc2b84bebcee5677cac71f5"
"""Pins the images: a change of theirs must raise the version of what is prepared."""


def digest(**environment: str) -> str:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run([sys.executable, "-c", _DIGEST], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.ci
def test_images_do_not_depend_on_the_cpu():
    """Without NumPy's vector instructions, and without the mathematics library's fused ones."""
    import numpy._core._multiarray_umath as core

    dispatched = [name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]]
    plain = {"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched), "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"}
    assert dispatched or "NPY_DISABLE_CPU_FEATURES" in os.environ
    assert digest(**plain) == digest() == GOLDEN


def test_labels_are_balanced_whatever_the_count():
    labels = draw_labels(0, 0, np.arange(2000))
    assert (labels.reshape(-1, 2).sum(axis=1) == 1).all()
    assert abs(labels[::2].mean() - 0.5) < 0.08  # five standard deviations
    assert np.array_equal(draw_labels(0, 0, np.arange(5, 9)), labels[5:9])


def test_markers_are_tips_of_one_snake_or_of_two():
    what = drawing(32, "hard")
    keys, labels = image_keys(0, 0, np.arange(40)), draw_labels(0, 0, np.arange(40))
    scenes = draw_scenes(what, 1, keys, labels)
    start = scenes.pairs.start
    for row, label in enumerate(labels):
        origin, end = scenes.marked[row]
        first = start[row, :, 0].tolist().index(origin)
        assert end == start[row, first if label else 1 - first, -1]


def test_a_snake_is_a_chain_of_its_paddles_and_stays_in_the_image():
    """Consecutive starts are one step apart: paddle, margin on both sides, and rounding."""
    counts: dict[Resolution, int] = {32: 30, 64: 4, 128: 4}
    for resolution, count in counts.items():
        what = drawing(resolution, "intermediate")
        for margin in what.margins:
            scenes = draw_scenes(what, margin, image_keys(0, 0, np.arange(count)), np.zeros(count, np.uint8))
            assert scenes.pairs.start.shape == (count, 2, 9)
            y, x = scenes.tables.split(scenes.pairs.start)
            step = np.hypot(np.diff(y[..., 1:]), np.diff(x[..., 1:]))
            assert step.min() > 1
            assert step.max() <= what.paddle_length + 2 * margin + 4
            assert min(y.min(), x.min()) >= what.padding
            assert max(y.max(), x.max()) < resolution - what.padding
            apart = np.hypot(*(part[:, 0, 0] - part[:, 1, 0] for part in (y, x)))
            assert abs(apart - what.seed_distance).max() < 1


def test_the_eye_can_follow_a_snake_from_tip_to_tip():
    """With its gaps closed (paddles and margins, one pixel wider) a snake is one piece that holds both of its tips."""
    what = drawing(32, "hard")
    scenes = draw_scenes(what, 1, image_keys(2, 0, np.arange(12)), np.ones(12, np.uint8))
    tables, pairs = scenes.tables, scenes.pairs
    for row, snake in np.ndindex(12, 2):
        canvas = np.zeros(tables.pitch**2, np.uint8)
        places = pairs.start[row, snake][:, None] + tables.mask.places[pairs.stamp[row, snake]]
        canvas[places] = 1
        pieces, count = cast(tuple[np.ndarray, int], ndimage.label(dilate(canvas.reshape(tables.pitch, -1), 1)))
        tips = pieces.ravel()[pairs.start[row, snake, [0, -1]]]
        assert (count, tips.tolist()) == (1, [1, 1])


def test_statistics_of_the_hard_images_are_the_originals():
    """66.0 % black and brightness 20.18 in 1,024 images of the original algorithm; ours must agree to five sigma."""
    pixels, _ = draw_images(drawing(32, "hard"), 0, 0, np.arange(300))
    assert (pixels.min(axis=1) == 0).all()
    assert (pixels.max(axis=1) == 255).all()
    assert (pixels == 0).mean() == pytest.approx(0.660, abs=5 * 0.0026)
    assert pixels.mean() == pytest.approx(20.18, abs=5 * 0.134)


def test_one_distractor_on_average_at_32_pixels_and_nearly_all_at_128():
    found: dict[int, float] = {}
    counts: dict[Resolution, int] = {32: 300, 128: 6}
    for resolution, count in counts.items():
        what = drawing(resolution, "hard")
        scenes = draw_scenes(what, what.margins[0], image_keys(0, 0, np.arange(count)), np.zeros(count, np.uint8))
        found[resolution] = scenes.distractors.found.sum(axis=1).mean()
    assert 0.8 < found[32] < 1.6
    assert found[128] > 7


def test_parameters_follow_the_published_lists():
    hard = {resolution: drawing(resolution, "hard") for resolution in (32, 64, 128, 256)}
    assert {what.contour_length for what in hard.values()} == {14}
    assert {what.distractor_length for what in hard.values()} == {4}
    assert [what.num_distractors for what in hard.values()] == [5, 5, 8, 7]
    assert [what.margins for what in hard.values()] == [(1,), (1,), (2, 3), (3,)]
    assert [drawing(32, name).contour_length for name in ("easy", "intermediate")] == [6, 9]


def test_words_are_splitmix64():
    """The published first outputs of SplitMix64 for the seed 1234567."""
    seeds = np.full(3, 1234567, np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert words(seeds, np.arange(1, 4)).tolist() == expected


def test_bounded_integers_are_uniform_and_child_streams_differ():
    keys = child_keys(np.zeros(60_000, np.uint64), np.arange(60_000))
    assert len(np.unique(keys)) == 60_000
    counts = np.bincount(below(6, keys, 0), minlength=6)
    assert counts.shape == (6,)
    assert abs(counts - 10_000).max() < 500  # five standard deviations
