"""Lines, reduction and markers: pixel for pixel what Pillow draws, through which the original
images were made.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from subquad_datasets.pathfinder.drawing import drawing
from subquad_datasets.pathfinder.lanczos import reduce_image
from subquad_datasets.pathfinder.render import Markers, marker_image
from subquad_datasets.pathfinder.strokes import line_image
from subquad_datasets.pathfinder.tables import displacement

Image = pytest.importorskip("PIL.Image", reason="Pillow is the reference here")


@pytest.mark.parametrize(("reach", "width"), [(4, 1), (10, 2), (10, 3), (10, 4)])
def test_lines_are_pillows(reach, width):
    from PIL import ImageDraw

    size = 2 * (reach + 4) + 1
    for degree in range(0, 360, 5):
        end = displacement(math.radians(degree), reach)
        canvas = Image.new("F", (size, size), 0)
        centre = size // 2
        ImageDraw.Draw(canvas).line(
            [(centre, centre), (centre + end[1], centre + end[0])], fill=255, width=width
        )
        assert np.array_equal(np.array(canvas), line_image(size, end, width)), (degree, end)


@pytest.mark.parametrize(("large", "small"), [(17, 9), (29, 15), (41, 21), (64, 32), (20, 20)])
def test_reduction_is_pillows(large, small):
    image = np.random.default_rng(0).integers(0, 256, (large, large)).astype(np.uint8)
    for picture in (image, np.where(image > 127, 255, 0).astype(np.uint8)):
        expected = np.array(
            Image.fromarray(picture).resize((small, small), resample=Image.Resampling.LANCZOS)
        )
        assert np.array_equal(reduce_image(picture, small), expected)


@pytest.mark.parametrize("resolution", [32, 64, 128, 256])
def test_markers_are_the_reduced_disc_wherever_they_stand(resolution):
    what = drawing(resolution, "hard")
    markers = Markers.of(what)
    last = resolution - 1
    places = [
        (0, 0),
        (1, last),
        (last - 2, 3),
        (last, last),
        (resolution // 2, markers.reach),
        (5, last - 4),
    ]
    rim = markers.reach
    for y, x in places:
        canvas = np.zeros((1, resolution + 2 * rim, resolution + 2 * rim), dtype=np.uint16)
        markers.add(canvas, np.array([y]), np.array([x]), rim)
        expected = marker_image(resolution, (y, x), what.marker_radius).astype(int) * 100
        assert np.array_equal(canvas[0, rim:-rim, rim:-rim], expected), (y, x)
