"""Short snakes that lead nowhere, drawn into what room the two long ones leave; those that find
none are left out.

Letters: N images, S distractors, T paddles of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subquad_datasets.pathfinder.canvas import SEGMENT_TRIALS, Canvas, Snake
from subquad_datasets.pathfinder.drawing import Drawing
from subquad_datasets.pathfinder.pairs import first_paddle
from subquad_datasets.pathfinder.stream import below, child_keys
from subquad_datasets.pathfinder.tables import DEGREES

SNAKE_TRIALS = 5
"""Attempts at one distractor."""

TAKEN = 76
"""A pixel is taken where its mask is above 0.3 of 255."""

LEAST_FREE = 0.01
"""No more distractors where less of the image than this is free."""

_FIRST_WORDS = 2 * SEGMENT_TRIALS


@dataclass(frozen=True)
class Distractors:
    """Distractors of N images.

    Attributes:
        start: (N, S, T) flat positions the paddles are drawn from.
        stamp: (N, S, T) which lines.
        drawn: (N, S) bool, whether there was room for it.
    """

    start: np.ndarray
    stamp: np.ndarray
    drawn: np.ndarray


def draw_distractors(drawing: Drawing, canvas: Canvas, keys: np.ndarray) -> Distractors:
    """Draw into the room that is left on `canvas`, and take it.

    Args:
        drawing: the parameters.
        canvas: of N images.
        keys: (N,) random streams.
    """
    shape = (len(keys), drawing.num_distractors, drawing.distractor_length)
    result = Distractors(
        np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape[:2], bool)
    )
    for number in range(drawing.num_distractors):
        waiting = np.arange(len(keys))
        for trial in range(SNAKE_TRIALS):
            of_trial = child_keys(keys, np.full(len(keys), number * SNAKE_TRIALS + trial))
            drawn = _attempt(
                canvas, waiting, of_trial, result.start[:, number], result.stamp[:, number]
            )
            result.drawn[drawn, number] = True
            waiting = np.setdiff1d(waiting, drawn)
    return result


def _attempt(
    canvas: Canvas, rows: np.ndarray, keys: np.ndarray, start: np.ndarray, stamp: np.ndarray
) -> np.ndarray:
    """One attempt in each of the images `rows`; `start` and `stamp` (N, T) are filled. Returns
    where it succeeded.
    """
    rows, snake = _first_paddles(canvas, rows, keys)
    before = [
        (plane, plane.reshape(-1, canvas.size)[rows]) for plane in (canvas.mask, canvas.dilated)
    ]
    grown = rows
    for paddle in range(start.shape[1]):
        if paddle:
            place = _FIRST_WORDS + SEGMENT_TRIALS * (paddle - 1)
            grown = canvas.extend(grown, snake, keys, place)
        start[grown, paddle] = snake.start[grown]
        stamp[grown, paddle] = snake.stamp[grown]
    canvas.add(grown, snake.start[grown], snake.stamp[grown])
    failed = ~np.isin(rows, grown)
    for plane, saved in before:
        plane.reshape(-1, canvas.size)[rows[failed]] = saved[failed]
    return grown


def _first_paddles(canvas: Canvas, rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, Snake]:
    """Where a distractor may begin: the images of `rows` that have room, and snakes of one
    paddle, (N,) each.
    """
    tables = canvas.tables
    start = np.zeros(len(keys), np.int64)
    orientation = np.zeros(len(keys), np.int64)
    pieces = []
    open_ = rows
    for trial in range(SEGMENT_TRIALS):
        orientation[open_] = below(DEGREES, keys[open_], 2 * trial)
        open_ = open_[tables.usable[orientation[open_]]]
        start[open_] = [
            _draw_start(canvas, row, int(orientation[row]), keys[row : row + 1], 2 * trial + 1)
            for row in open_.tolist()
        ]
        open_ = open_[start[open_] >= 0]
        ends = (
            start[open_] + offset[orientation[open_]] for offset in (tables.heads, tables.backs)
        )
        fits = np.logical_and(*(tables.inside(end) for end in ends))
        pieces.append(open_[fits])
        open_ = open_[~fits]
    return np.sort(np.concatenate(pieces)), first_paddle(tables, start, orientation)


def _draw_start(canvas: Canvas, row: int, orientation: int, key: np.ndarray, place: int) -> int:
    """A free place for a first paddle, each as likely; -1 where there is none. What leaves the
    image needs no room.
    """
    tables = canvas.tables
    taken = canvas.mask[row * canvas.size : (row + 1) * canvas.size] > TAKEN
    if canvas.size - np.count_nonzero(taken) < LEAST_FREE * tables.window**2:
        return -1
    taken &= tables.image
    first = tables.rim * tables.pitch
    last = canvas.size - tables.rim * tables.pitch
    blocked = ~tables.image[first:last]
    for offset in dict.fromkeys(tables.shape[orientation].tolist()):
        blocked |= taken[first + offset : last + offset]
    free = np.flatnonzero(~blocked)
    if len(free):
        return first + int(free[below(len(free), key, place)[0]])
    return -1
