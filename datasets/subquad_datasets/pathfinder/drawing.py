"""What is drawn: the parameter sets that the Long Range Arena lists for its release, by resolution
and difficulty.

Reference: docstrings of `Pathfinder32` .. `Pathfinder256` in google-research/long-range-arena,
which name what differs from the defaults of github.com/drewlinsley/pathfinder (Kim et al., 2020,
Linsley et al., 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Resolution = Literal[32, 64, 128, 256]
Difficulty = Literal["easy", "intermediate", "hard"]

ANTIALIAS = 2
"""Paddles and markers are drawn this much larger, then reduced."""

FOLDERS: dict[Difficulty, str] = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}

CONTOUR_LENGTHS: dict[Difficulty, int] = {"easy": 6, "intermediate": 9, "hard": 14}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One parameter set; lengths in pixels of the image.

    Attributes:
        window: height and width of the image.
        padding: border that no paddle may enter.
        seed_distance: between the origins of the two snakes; the first stays twice as far from
            every border.
        marker_radius: of the two discs.
        contour_length: paddles of each of the two snakes.
        distractor_length: paddles of a distractor snake.
        num_distractors: distractor snakes that are tried.
        paddle_length: of one paddle.
        paddle_thickness: of one paddle, a multiple of 1 / ANTIALIAS.
        margins: free space around a paddle; one of them is drawn for each image.
        continuity: weight of a turn by the angle t is cos(min(continuity t, 90 degrees)) squared.
        target_contrast: brightness of the two snakes in percent of a marker's.
        distractor_contrast: brightness of distractors in percent of a marker's.
    """

    window: int
    padding: int = 1
    seed_distance: int
    marker_radius: float
    contour_length: int
    distractor_length: int
    num_distractors: int
    paddle_length: int = 5
    paddle_thickness: float
    margins: tuple[int, ...]
    continuity: float = 1.8
    target_contrast: int
    distractor_contrast: int


def drawing(resolution: Resolution, difficulty: Difficulty) -> Drawing:
    """The parameters of one of the twelve sets.

    The lists give the contour length 14 only. For the other two difficulties the numbers that
    follow from it (a third of it for distractors, and a fixed count of paddles shared among them)
    are computed by the same rule.
    """
    length = CONTOUR_LENGTHS[difficulty]
    paddles = _PADDLES[resolution] // (length // 3)
    return Drawing(
        window=resolution,
        contour_length=length,
        distractor_length=length // 3,
        num_distractors=paddles,
        **_BY_RESOLUTION[resolution],
    )


_PADDLES: dict[Resolution, int] = {32: 20, 64: 22, 128: 35, 256: 30}

# A target paddle's contrast is paddle_contrast * snake_contrast, a distractor's is snake_contrast
# alone (as upstream): at 32 pixels 0.75 * 2 and 2. Padding and seed distance of 256 are not listed:
# the script's defaults.
_BY_RESOLUTION: dict[Resolution, dict] = {
    32: {
        "seed_distance": 7,
        "marker_radius": 1.5,
        "paddle_length": 2,
        "paddle_thickness": 0.5,
        "margins": (1,),
        "continuity": 1.0,
        "target_contrast": 150,
        "distractor_contrast": 200,
    },
    64: {
        "seed_distance": 12,
        "marker_radius": 2.5,
        "paddle_thickness": 1,
        "margins": (1,),
        "target_contrast": 80,
        "distractor_contrast": 80,
    },
    128: {
        "seed_distance": 20,
        "marker_radius": 3,
        "paddle_thickness": 1.5,
        "margins": (2, 3),
        "target_contrast": 90,
        "distractor_contrast": 90,
    },
    256: {
        "padding": 22,
        "seed_distance": 27,
        "marker_radius": 5,
        "paddle_thickness": 2,
        "margins": (3,),
        "target_contrast": 100,
        "distractor_contrast": 100,
    },
}
