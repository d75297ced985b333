"""One image, slowly: whole masks in two dimensions, one paddle after the other. The oracle of the
fast path.

Written along the original's steps, not for use. It shares with the fast path the drawing of one
paddle, the weight of a turn and the random words, and none of the flat, sparse or batched
arithmetic.

Letters: H height and width. Points are (y, x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from subquad_datasets.pathfinder.canvas import SEGMENT_TRIALS
from subquad_datasets.pathfinder.distractors import LEAST_FREE, SNAKE_TRIALS, TAKEN
from subquad_datasets.pathfinder.drawing import ANTIALIAS, Drawing
from subquad_datasets.pathfinder.generate import DISTRACTOR_STREAM, MARKER_WORD
from subquad_datasets.pathfinder.pairs import SEED_WORDS
from subquad_datasets.pathfinder.render import MARKER_CONTRAST, marker_image, stretch
from subquad_datasets.pathfinder.stream import below, child_keys
from subquad_datasets.pathfinder.strokes import Point
from subquad_datasets.pathfinder.tables import (
    CLASH,
    DEAD_END,
    SOLID,
    dilate,
    displacement,
    end_points,
    line_stamp,
    mask_stamp,
    room_for_first,
    turn_weight,
    usable_shape,
)


@dataclass(frozen=True)
class End:
    """The growing end of a snake: pivot and direction of its last paddle, where that is drawn
    from, and its mask.
    """

    pivot: Point
    angle: float
    start: Point
    mask: np.ndarray


class NaiveImages:
    """Images of one `Drawing` with one margin."""

    def __init__(self, drawing: Drawing, margin: int):
        self.drawing = drawing
        self.margin = margin
        self.reach = drawing.paddle_length + margin
        self.ends = end_points(self.reach)

    def image(self, key: np.ndarray, label: int) -> np.ndarray:
        """(H, H) uint8: the image of a stream (1,)."""
        attempt = 0
        pair = None
        while pair is None:
            pair = self.pair(child_keys(key, np.array([attempt])))
            attempt += 1
        image, mask, tips = pair
        image = self.distractors(child_keys(key, np.array([DISTRACTOR_STREAM])), image, mask)
        first = int(below(2, key, MARKER_WORD)[0])
        for tip in (tips[first][0], tips[first if label else 1 - first][1]):
            disc = marker_image(self.drawing.window, tip, self.drawing.marker_radius)
            image = np.maximum(image, disc.astype(np.int64) * MARKER_CONTRAST)
        return stretch(image[None])[0]

    def pair(
        self, key: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[tuple[Point, Point]]] | None:
        """One attempt at two snakes: image, mask and the tips of both; None where it fails."""
        drawing = self.drawing
        image = np.zeros((drawing.window,) * 2, np.int64)
        mask = self.border(drawing.padding)
        snakes = self.seeds(key)
        origins = [snake.start for snake in snakes]
        for snake, angle in zip(snakes, self._seed_angles(key), strict=True):
            image = np.maximum(image, self.paddle(snake.start, angle) * drawing.target_contrast)
        for paddle in range(drawing.contour_length - 1):
            for which in range(2):
                place = SEED_WORDS + SEGMENT_TRIALS * (2 * paddle + which)
                grown = self.extend(snakes[which], mask, key, place)
                if grown is None:
                    return None
                mask = np.maximum(mask, snakes[which].mask)
                snakes[which] = grown
                image = np.maximum(
                    image, self.paddle(grown.start, grown.angle + math.pi) * drawing.target_contrast
                )
        return (
            image,
            np.maximum(mask, snakes[1].mask),
            [(o, s.start) for o, s in zip(origins, snakes, strict=True)],
        )

    def distractors(self, key: np.ndarray, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The image with short snakes where they find room."""
        for number in range(self.drawing.num_distractors):
            for trial in range(SNAKE_TRIALS):
                of_trial = child_keys(key, np.array([number * SNAKE_TRIALS + trial]))
                drawn = self.distractor(of_trial, image, mask)
                if drawn is not None:
                    image, mask = drawn
                    break
        return image

    def distractor(
        self, key: np.ndarray, image: np.ndarray, mask: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """One attempt at a short snake: image and mask with it; None where it fails."""
        contrast = self.drawing.distractor_contrast
        snake = self.distractor_seed(key, mask)
        if snake is None:
            return None
        image = np.maximum(image, self.paddle(snake.start, snake.angle) * contrast)
        for paddle in range(self.drawing.distractor_length - 1):
            grown = self.extend(snake, mask, key, 2 * SEGMENT_TRIALS + SEGMENT_TRIALS * paddle)
            if grown is None:
                return None
            mask = np.maximum(mask, snake.mask)
            snake = grown
            image = np.maximum(image, self.paddle(grown.start, grown.angle + math.pi) * contrast)
        return image, np.maximum(mask, snake.mask)

    def extend(self, snake: End, mask: np.ndarray, key: np.ndarray, place: int) -> End | None:
        """The snake with one more paddle, None where there is no room."""
        pivot = _add(
            snake.pivot, displacement(snake.angle, self.drawing.paddle_length + 2 * self.margin)
        )
        free = SOLID - dilate(mask, self.margin)
        weights = np.cumsum([self._weight(free, pivot, end, snake.angle) for end in self.ends])
        if weights[-1] <= DEAD_END:
            return None
        for trial in range(SEGMENT_TRIALS):
            drawn = below(weights[-1:], key, place + trial)[0]
            end = self.ends[int(np.searchsorted(weights, drawn, side="right"))]
            angle = math.atan2(*end)
            head = _add(pivot, end)
            room = self.room(head, angle + math.pi)
            if (mask.astype(np.int64) + room).max() < CLASH:
                return End(pivot, angle, head, room)
        return None

    def _weight(self, free: np.ndarray, pivot: Point, end: Point, angle: float) -> int:
        y, x = _add(pivot, end)
        if not (0 <= y < len(free) and 0 <= x < len(free)):
            return 0
        return int(free[y, x]) * turn_weight(angle, math.atan2(*end), self.drawing.continuity)

    def seeds(self, key: np.ndarray) -> list[End]:
        """Both snakes with one paddle."""
        distance = self.drawing.seed_distance
        window = self.drawing.window
        border = self.border(2 * distance)
        usable = [degree for degree in range(-180, 180) if self._fits_somewhere(border, degree)]
        first, second = self._seed_angles(key, usable)
        places = np.argwhere(~self._blocked(border, first))
        y, x = (int(part) for part in places[below(len(places), key, 1)[0]])
        turn = math.radians(int(below(360, key, 2)[0]))
        away = (round(distance * math.sin(turn), 9), round(distance * math.cos(turn), 9))
        beside = (int(np.rint(y + away[0])), int(np.rint(x + away[1])))
        assert window > max(beside) >= min(beside) >= 0
        return [self._first((y, x), first), self._first(beside, second)]

    def _seed_angles(self, key: np.ndarray, usable: list[int] | None = None) -> tuple[float, float]:
        border = self.border(2 * self.drawing.seed_distance)
        usable = usable or [
            degree for degree in range(-180, 180) if self._fits_somewhere(border, degree)
        ]
        first = usable[below(len(usable), key, 0)[0]]
        return _radians(first), _radians(int(below(360, key, 3)[0]) - 180)

    def _fits_somewhere(self, mask: np.ndarray, degree: int) -> bool:
        angle = _radians(degree)
        return usable_shape(self.shape(angle)) and not self._blocked(mask, angle).all()

    def distractor_seed(self, key: np.ndarray, mask: np.ndarray) -> End | None:
        """A first paddle where there is room, None where there is none."""
        window = self.drawing.window
        for trial in range(SEGMENT_TRIALS):
            angle = _radians(int(below(360, key, 2 * trial)[0]) - 180)
            if (mask <= TAKEN).sum() < LEAST_FREE * window**2 or not usable_shape(
                self.shape(angle)
            ):
                return None
            places = np.argwhere(~self._blocked(np.maximum(mask, self.border(1)), angle))
            if not len(places):
                return None
            place = places[below(len(places), key, 2 * trial + 1)[0]]
            y, x = map(int, place)
            snake = self._first((y, x), angle)
            head = _add((y, x), displacement(angle, self.drawing.paddle_length))
            if all(0 <= part < window for part in (*head, *snake.pivot)):
                return snake
        return None

    def _first(self, start: Point, angle: float) -> End:
        head = _add(start, displacement(angle, self.drawing.paddle_length))
        return End(
            _add(head, displacement(angle + math.pi, self.reach)),
            angle,
            start,
            self.room(start, angle),
        )

    def shape(self, angle: float) -> list[Point]:
        """Where a first paddle needs room, relative to its start."""
        return room_for_first(mask_stamp(self.drawing, self.margin, self._tip(angle)), self.reach)

    def _blocked(self, mask: np.ndarray, angle: float) -> np.ndarray:
        """(H, H) bool: where a first paddle cannot start; pixels outside of the image do not
        count.
        """
        reach = self.reach
        blocked = np.zeros(mask.shape, bool)
        padded = np.pad(mask > TAKEN, reach)
        for y, x in self.shape(angle):
            blocked |= padded[reach + y :, reach + x :][: len(mask), : len(mask)]
        return blocked

    def paddle(self, start: Point, angle: float) -> np.ndarray:
        """(H, H) int64: one paddle on black."""
        return self._placed(line_stamp(self.drawing, self.margin, self._tip(angle)), start)

    def room(self, start: Point, angle: float) -> np.ndarray:
        """(H, H) int64: the mask of one paddle."""
        return self._placed(mask_stamp(self.drawing, self.margin, self._tip(angle)), start)

    def _tip(self, angle: float) -> Point:
        return displacement(angle, ANTIALIAS * self.drawing.paddle_length)

    def _placed(self, stamp: np.ndarray, start: Point) -> np.ndarray:
        half = len(stamp) // 2
        window = self.drawing.window
        canvas = np.zeros((window + 2 * len(stamp),) * 2, np.int64)
        y, x = (part + len(stamp) - half for part in start)
        canvas[y : y + len(stamp), x : x + len(stamp)] = stamp
        return canvas[len(stamp) : -len(stamp), len(stamp) : -len(stamp)]

    def border(self, width: int) -> np.ndarray:
        """(H, H) int64: taken on the outer `width` pixels."""
        mask = np.full((self.drawing.window,) * 2, SOLID, np.int64)
        mask[width:-width, width:-width] = 0
        return mask


def _radians(degree: int) -> float:
    return 2 * math.pi * degree / 360


def _add(first: Point, other: Point) -> Point:
    return first[0] + other[0], first[1] + other[1]
