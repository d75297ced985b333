"""Everything about a paddle that does not depend on the image: where it may go next, and what it
leaves behind.

A paddle has one of few orientations: the first of a snake points in whole degrees, the next ones to
one of K end points around a pivot. So drawing is looking up: lines, masks and weights are integer
tables, and no image depends on how a machine rounds a cosine.

Letters: K end points, O = 360 + K orientations, S different drawn lines, P pixels of the largest of
them. Positions are flat: y * pitch + x on a canvas with `rim` spare pixels around the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from subquad_datasets.pathfinder.drawing import ANTIALIAS, Drawing
from subquad_datasets.pathfinder.lanczos import reduce_image
from subquad_datasets.pathfinder.strokes import Point, line_image

SOLID = 255
CLASH = 459
"""Two masks clash where their sum, of 0..255 each, reaches this: 1.8 of 2."""

WEIGHT_ONE = 1 << 16
DEAD_END = int(1e-4 * WEIGHT_ONE * SOLID)
"""A snake ends where all free end points together weigh no more than this."""

DEGREES = 360


@dataclass(frozen=True)
class Stamps:
    """What each of S lines leaves on a canvas: its pixels that are not 0. The first is repeated to
    fill a row.

    Attributes:
        places: (S, P) int64 flat offsets from where the line starts.
        levels: (S, P) uint8.
    """

    places: np.ndarray
    levels: np.ndarray


@dataclass(frozen=True)
class Tables:
    """The tables of one `Drawing` with one margin.

    Attributes:
        window: height and width of the image.
        rim: spare pixels on each side of it.
        ends: (K,) flat offsets of possible end points from a pivot.
        weights: (O, K) int32, of an end point after a paddle of an orientation; 2**16 straight on.
        steps: (O,) flat offsets from a pivot to the next.
        heads: (360,) flat offsets from the start of a first paddle to its end.
        backs: (360,) flat offsets from the start of a first paddle to its pivot.
        stamp_of: (O,) the line to draw: from the start of a first paddle, or back from an end
            point.
        line: brightness of a paddle.
        mask: its mask, the paddle and its margin.
        dilated: the mask widened by another margin: where no paddle may end.
        dense: the part of the mask that can clash with another.
        core: the same pixels; levels are the least of another mask that clashes.
        shape: (360, P) offsets that must be free for a first paddle; rows filled up with their
            first.
        usable: (360,) bool, whether a first paddle may have an orientation at all, see
            `usable_shape`.
        border: (pitch * pitch,) uint8, the mask of an empty image, and
        border_dilated: the same, widened.
        image: (pitch * pitch,) bool, True on the image, False on the rim.
    """

    window: int
    rim: int
    ends: np.ndarray
    weights: np.ndarray
    steps: np.ndarray
    heads: np.ndarray
    backs: np.ndarray
    stamp_of: np.ndarray
    line: Stamps
    mask: Stamps
    dilated: Stamps
    dense: Stamps
    core: Stamps
    shape: np.ndarray
    usable: np.ndarray
    border: np.ndarray
    border_dilated: np.ndarray
    image: np.ndarray

    @property
    def pitch(self) -> int:
        """Pixels of a row of the canvas."""
        return self.window + 2 * self.rim

    def flat(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Flat positions of pixels of the image."""
        return (y + self.rim) * self.pitch + x + self.rim

    def split(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(y, x) of flat positions, in pixels of the image."""
        return position // self.pitch - self.rim, position % self.pitch - self.rim

    def inside(self, position: np.ndarray) -> np.ndarray:
        """Whether positions lie in the image."""
        y, x = self.split(position)
        return (y >= 0) & (y < self.window) & (x >= 0) & (x < self.window)


def build_tables(drawing: Drawing, margin: int) -> Tables:
    """The tables of `drawing` for images with this margin."""
    length = drawing.paddle_length
    reach = drawing.paddle_length + margin
    rim = max(reach + margin + 3, _half(drawing, margin) + margin + 1)
    pitch = drawing.window + 2 * rim
    ends = end_points(reach)
    first = [2 * math.pi * degree / DEGREES for degree in range(-DEGREES // 2, DEGREES // 2)]
    angles = first + [math.atan2(y, x) for y, x in ends]
    drawn = first + [angle + math.pi for angle in angles[DEGREES:]]
    tips = [displacement(angle, ANTIALIAS * length) for angle in drawn]
    different = sorted(set(tips))
    masks = [mask_stamp(drawing, margin, tip) for tip in different]
    border = _border(pitch, rim + drawing.padding)
    flat = _Flat(pitch)
    shapes = [room_for_first(masks[different.index(tip)], reach) for tip in tips[:DEGREES]]
    dense = flat.stamps([np.where(mask >= CLASH - SOLID, mask, 0) for mask in masks])
    return Tables(
        window=drawing.window,
        rim=rim,
        ends=flat(ends),
        weights=_turn_weights(angles, drawing.continuity),
        steps=flat([displacement(angle, length + 2 * margin) for angle in angles]),
        heads=flat([displacement(angle, length) for angle in first]),
        backs=flat(
            [_sum(displacement(a, length), displacement(a + math.pi, reach)) for a in first]
        ),
        stamp_of=np.array([different.index(tip) for tip in tips]),
        line=flat.stamps([line_stamp(drawing, margin, tip) for tip in different]),
        mask=flat.stamps(masks),
        dilated=flat.stamps([dilate(np.pad(mask, margin), margin) for mask in masks]),
        dense=dense,
        core=Stamps(dense.places, (CLASH - dense.levels.astype(np.int64)).astype(np.uint8)),
        shape=_filled([flat(shape) for shape in shapes]),
        usable=np.array([usable_shape(shape) for shape in shapes]),
        border=border.ravel(),
        border_dilated=dilate(border, margin).ravel(),
        image=np.pad(np.ones((drawing.window,) * 2, bool), rim).ravel(),
    )


def _border(pitch: int, width: int) -> np.ndarray:
    """(pitch, pitch) uint8: solid but for what lies further inside than `width`."""
    border = np.full((pitch, pitch), SOLID, np.uint8)
    border[width:-width, width:-width] = 0
    return border


def _turn_weights(angles: list[float], continuity: float) -> np.ndarray:
    weights = []
    for last in angles:
        weights.append([turn_weight(last, end, continuity) for end in angles[DEGREES:]])
    return np.array(weights, np.int32)


def displacement(angle: float, distance: float) -> Point:
    """(dy, dx) of a step, rounded up. Nine digits decide, so that no last bit of a sine does."""
    y = distance * math.sin(angle)
    x = distance * math.cos(angle)
    return math.ceil(round(y, 9)), math.ceil(round(x, 9))


def end_points(reach: int) -> list[Point]:
    """The K different (dy, dx) on a circle of radius `reach`, one for each pixel of its length,
    rounded down.
    """
    turns = range(math.ceil(round(2 * math.pi * reach, 9)))
    points = [(reach * math.sin(turn / reach), reach * math.cos(turn / reach)) for turn in turns]
    return sorted({(math.floor(round(y, 9)), math.floor(round(x, 9))) for y, x in points})


def turn_weight(last: float, following: float, continuity: float) -> int:
    """The weight of a turn between two directions, of 2**16: cos(min(continuity * turn, 90
    degrees)) squared.
    """
    turn = abs(last - following)
    bent = min(min(turn, 2 * math.pi - turn) * continuity, math.pi / 2)
    return round(WEIGHT_ONE * math.cos(bent) ** 2)


def line_stamp(drawing: Drawing, margin: int, tip: Point) -> np.ndarray:
    """(2 h + 1, 2 h + 1) uint8: a paddle from the centre, brightness 0..255; h = length +
    thickness + margin.
    """
    return reduce_image(_enlarged(drawing, margin, tip), 2 * _half(drawing, margin) + 1)


def mask_stamp(drawing: Drawing, margin: int, tip: Point) -> np.ndarray:
    """(2 h + 1, 2 h + 1) uint8: the mask of a paddle, its line widened by the margin."""
    widened = dilate(_enlarged(drawing, margin, tip), margin * ANTIALIAS)
    return reduce_image(widened, 2 * _half(drawing, margin) + 1)


def _enlarged(drawing: Drawing, margin: int, tip: Point) -> np.ndarray:
    size = 2 * ANTIALIAS * _half(drawing, margin) + 1
    return line_image(size, tip, round(drawing.paddle_thickness * ANTIALIAS))


def _half(drawing: Drawing, margin: int) -> int:
    return drawing.paddle_length + math.ceil(drawing.paddle_thickness) + margin


def dilate(image: np.ndarray, radius: int) -> np.ndarray:
    """(h, w): at each pixel the maximum of `image` over the disc of this radius around it."""
    padded = np.pad(image, radius)
    out = image.copy()
    height, width = image.shape
    span = range(-radius, radius + 1)
    for y, x in [(y, x) for y in span for x in span if x * x + y * y <= radius * radius]:
        np.maximum(
            out, padded[radius + y : radius + y + height, radius + x : radius + x + width], out=out
        )
    return out


def room_for_first(mask: np.ndarray, reach: int) -> list[Point]:
    """Where a first paddle needs room: the solid pixels of its mask, one pixel down and to the
    right (as upstream).
    """
    moved = np.argwhere(mask == SOLID) - len(mask) // 2 + 1
    return [(int(y), int(x)) for y, x in moved[(abs(moved) <= reach).all(1)]]


def usable_shape(shape: list[Point]) -> bool:
    """Whether some pixel of `shape` stays in the image at each of the image's corners.

    Upstream dilates the mask with this shape. At a corner where all of it lies outside, the
    dilation has no value to take (OpenCV gives the smallest number there is), and upstream then
    takes the whole image for occupied. At 32 pixels this leaves 31 of 360 orientations, which is
    why its images have one or two distractors and not five. Kept, because the released images were
    drawn so.
    """
    for down, right in product((1, -1), repeat=2):
        if not any(y * down >= 0 and x * right >= 0 for y, x in shape):
            return False
    return True


def _sum(first: Point, other: Point) -> Point:
    return first[0] + other[0], first[1] + other[1]


class _Flat:
    """Makes flat offsets for a canvas of a given pitch."""

    def __init__(self, pitch: int):
        self.pitch = pitch

    def __call__(self, points: list[Point]) -> np.ndarray:
        return np.array([y * self.pitch + x for y, x in points], dtype=np.int64)

    def stamps(self, images: list[np.ndarray]) -> Stamps:
        places = []
        for image in images:
            points = np.argwhere(image) - len(image) // 2
            places.append(self([(int(y), int(x)) for y, x in points]))
        values = [image[image > 0] for image in images]
        return Stamps(_filled(places), _filled(values))


def _filled(rows: list[np.ndarray]) -> np.ndarray:
    """One array of rows of unequal length: each is filled up with its first element."""
    longest = max(len(row) for row in rows)
    return np.stack([np.concatenate([row, np.repeat(row[:1], longest - len(row))]) for row in rows])
