"""Lines, reduction and markers: pixel for pixel what Pillow draws, through which the original images were made."""

from __future__ import annotations

import math

import numpy as np
import pytest

from subquad_datasets.pathfinder.lanczos import reduce_image
from subquad_datasets.pathfinder.lines import line_image
from subquad_datasets.pathfinder.parameters import drawing
from subquad_datasets.pathfinder.render import Markers, marker_image, stretch
from subquad_datasets.pathfinder.tables import dilate, displacement, end_points, turn_weight

Image = pytest.importorskip("PIL.Image", reason="Pillow is the reference here")


@pytest.mark.parametrize(("reach", "width"), [(4, 1), (10, 2), (10, 3), (10, 4)])
def test_lines_are_pillows(reach, width):
    from PIL import ImageDraw

    size = 2 * (reach + 4) + 1
    for degree in range(0, 360, 5):
        end = displacement(math.radians(degree), reach)
        canvas = Image.new("F", (size, size), 0)
        centre = size // 2
        ImageDraw.Draw(canvas).line([(centre, centre), (centre + end[1], centre + end[0])], fill=255, width=width)
        assert np.array_equal(np.array(canvas), line_image(size, end, width)), (degree, end)


@pytest.mark.parametrize(("large", "small"), [(17, 9), (29, 15), (41, 21), (64, 32), (20, 20)])
def test_reduction_is_pillows(large, small):
    image = np.random.default_rng(0).integers(0, 256, (large, large)).astype(np.uint8)
    for picture in (image, np.where(image > 127, 255, 0).astype(np.uint8)):
        expected = np.array(Image.fromarray(picture).resize((small, small), resample=Image.Resampling.LANCZOS))
        assert np.array_equal(reduce_image(picture, small), expected)


@pytest.mark.parametrize("resolution", [32, 64, 128, 256])
def test_markers_are_the_reduced_disc_wherever_they_stand(resolution):
    what = drawing(resolution, "hard")
    markers = Markers.of(what)
    last = resolution - 1
    places = [(0, 0), (1, last), (last - 2, 3), (last, last), (resolution // 2, markers.reach), (5, last - 4)]
    rim = markers.reach
    for y, x in places:
        canvas = np.zeros((1, resolution + 2 * rim, resolution + 2 * rim), dtype=np.uint16)
        markers.add(canvas, np.array([y]), np.array([x]), rim)
        expected = marker_image(resolution, (y, x), what.marker_radius).astype(int) * 100
        assert np.array_equal(canvas[0, rim:-rim, rim:-rim], expected), (y, x)


def test_a_marker_is_a_disc_of_its_radius():
    """Brightness adds up to the disc's area."""
    for resolution in (32, 64, 128, 256):
        radius = drawing(resolution, "hard").marker_radius
        disc = marker_image(resolution, (resolution // 2, resolution // 2), radius) / 255
        assert disc.max() == 1
        assert disc.sum() == pytest.approx(math.pi * radius**2, rel=0.08)


def test_stretching_uses_the_whole_range_and_rounds_halves_up():
    values = np.array([[[0, 1], [1, 2]], [[10, 20], [20, 30]], [[0, 100], [150, 200]]])
    assert stretch(values).tolist() == [[[0, 128], [128, 255]], [[0, 128], [128, 255]], [[0, 128], [191, 255]]]


def test_dilation_is_a_maximum_over_a_disc():
    image = np.zeros((7, 7), dtype=np.uint8)
    image[3, 3] = 9
    assert dilate(image, 0).sum() == 9
    assert np.array_equal(dilate(image, 1) > 0, np.add.outer(abs(np.arange(-3, 4)), abs(np.arange(-3, 4))) <= 1)
    assert (dilate(image, 2) > 0).sum() == 13


def test_turns_weigh_a_squared_cosine_and_nothing_backwards():
    assert turn_weight(0.3, 0.3, 1.8) == 2**16
    assert turn_weight(0, math.pi / 4, 1.0) == 2**15
    assert turn_weight(3.0, -3.0, 1.0) == turn_weight(0, 2 * math.pi - 6, 1.0)
    assert turn_weight(0, math.pi, 1.0) == 0
    assert turn_weight(0, math.pi / 3.5, 1.8) == 0


def test_end_points_lie_around_a_circle():
    assert end_points(3)[0] == (-3, -2)
    for reach in (3, 6, 7, 8):
        radii = [math.hypot(y + 0.5, x + 0.5) for y, x in end_points(reach)]
        assert max(abs(radius - reach) for radius in radii) < 1


def test_displacements_do_not_hang_on_the_last_bit_of_a_sine():
    assert displacement(math.pi, 4) == (0, -4)
    assert displacement(-math.pi / 2, 4) == (-4, 0)
    assert displacement(math.radians(30), 4) == (2, 4)
