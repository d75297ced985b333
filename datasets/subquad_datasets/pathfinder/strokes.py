"""Straight lines of a given width on a grid, in integers: the pixels that Pillow's `ImageDraw.line`
sets.

Reference: Pillow's `Draw.c` (Bresenham for width 1; a filled rectangle with rounded corners for
others).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

Point = tuple[int, int]


def line_image(size: int, end: Point, width: int) -> np.ndarray:
    """(size, size) uint8, 255 on the line from the centre to the centre plus `end` (dy, dx), 0
    elsewhere.
    """
    centre = size // 2
    image = np.zeros((size, size), dtype=np.uint8)
    for y, x in thin_line(end) if width == 1 else wide_line(end, width):
        image[centre + y, centre + x] = 255
    return image


def thin_line(end: Point) -> list[Point]:
    """Points (y, x) of Bresenham's line from (0, 0) to `end`, both included."""
    dy, dx = map(abs, end)
    sy, sx = (1 if part > 0 else -1 for part in end)
    length = max(dy, dx)
    other = min(dy, dx)
    error = 2 * other - length
    minor = 0
    points = []
    for major in range(length):
        points.append((minor * sy, major * sx) if dx > dy else (major * sy, minor * sx))
        if error >= 0:
            minor = minor + 1
            error = error - 2 * length
        error += 2 * other
    return [*points, end]


def wide_line(end: Point, width: int) -> list[Point]:
    """Points (y, x) of a line from (0, 0) to `end`: the rectangle around it, corners rounded, edges
    included.

    Rows are filled from edge to edge, with exact fractions.
    """
    corners = _corners(end, width)
    edges = list(zip(corners, corners[1:] + corners[:1], strict=True))
    rows = range(min(y for y, _ in corners), max(y for y, _ in corners) + 1)
    return [(y, x) for y in rows for x in _row(edges, y)]


def _corners(end: Point, width: int) -> list[Point]:
    dy, dx = end
    length = math.hypot(dx, dy)
    half = (width - 1) / 2
    wide = math.floor(half + 0.5) / length
    narrow = math.ceil(half - 0.5) / length
    y_wide = _nearest(wide * dx)
    y_narrow = _nearest(narrow * dx)
    x_wide = _nearest(wide * dy)
    x_narrow = _nearest(narrow * dy)
    return [
        (y_wide, -x_narrow),
        (dy + y_wide, dx - x_narrow),
        (dy - y_narrow, dx + x_wide),
        (-y_narrow, x_wide),
    ]


def _nearest(value: float) -> int:
    """The nearest integer, halves towards 0. Nine digits decide, so that no last bit of a square
    root does.
    """
    return int(math.copysign(math.ceil(abs(round(value, 9)) - 0.5), value))


def _row(edges: list[tuple[Point, Point]], y: int) -> range:
    crossings: list[Fraction] = []
    for (y0, x0), (y1, x1) in edges:
        if y0 == y1 == y:
            crossings += [Fraction(x0), Fraction(x1)]
        elif min(y0, y1) <= y <= max(y0, y1) and y0 != y1:
            crossings.append(x0 + Fraction((y - y0) * (x1 - x0), y1 - y0))
    half = Fraction(1, 2)
    return range(math.floor(min(crossings) + half), math.ceil(max(crossings) - half) + 1)
