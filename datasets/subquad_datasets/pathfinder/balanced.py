"""Images whose discs say nothing by where they stand: for each there is one of the other label with
the same places.

Not the published task. Many scenes are drawn, each of which could be marked in four ways: on one
snake, or from the first tip of one to the last tip of the other. A way that connects and one of
another scene that does not make a pair, where both discs stand in the same cells of an image of 32
x 32. At 32 pixels these are the very same pixels.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from subquad_datasets.pathfinder.drawing import Drawing
from subquad_datasets.pathfinder.generate import draw_labels, draw_marked, draw_tips
from subquad_datasets.pathfinder.stream import image_keys

IN_BLOCK = 512
"""Images of one pool of scenes; another number is another data set."""

_POOL = 4 * IN_BLOCK
_APART = 1 << 20
"""Between the first scenes of two pools."""

_AT_ONCE = 64
_CELLS = 32


def draw_balanced(
    drawing: Drawing, seed: int, split: int, block: int
) -> tuple[np.ndarray, np.ndarray]:
    """`IN_BLOCK` images of a split: (n, H * H) uint8 pixels, row by row, and (n,) uint8 labels.

    The images 2 i and 2 i + 1 have their discs in the same places; which of them is connected is
    random.
    """
    size = _POOL
    while True:
        keys = image_keys(seed, split, block * _APART + np.arange(size))
        pairs = match(draw_tips(drawing, keys) // (drawing.window // _CELLS))
        if len(pairs) >= IN_BLOCK // 2:
            break
        size *= 2
    labels = draw_labels(seed, split, block * IN_BLOCK + np.arange(IN_BLOCK))
    scene, first = pairs[np.arange(IN_BLOCK) // 2, labels].T
    parts = np.split(np.arange(IN_BLOCK), IN_BLOCK // _AT_ONCE)
    return np.concatenate(
        [draw_marked(drawing, keys[scene[p]], labels[p], first[p]) for p in parts]
    ), labels


def match(tips: np.ndarray) -> np.ndarray:
    """Pairs of ways to mark scenes, each scene in one pair at most.

    Args:
        tips: (N, 2, 2, 2) cells: of each snake the first and the last tip, y and x.

    Returns:
        (P, 2, 2): of each pair, by label, the scene and the snake whose first tip has a disc.
    """
    ways = [defaultdict[tuple[tuple[int, ...], ...], list[tuple[int, int]]](list) for _ in range(2)]
    for scene, snakes in enumerate(tips.tolist()):
        for label, first in np.ndindex(2, 2):
            ends = snakes[first][0], snakes[first if label else 1 - first][1]
            ways[label][tuple(sorted(map(tuple, ends)))].append((scene, first))
    pairs = list[tuple[tuple[int, int], tuple[int, int]]]()
    used = set[int]()
    for cells, connected in ways[1].items():
        apart = ways[0].get(cells, [])
        for way in connected:
            scene = way[0]
            free = (other for other in apart if other[0] not in used and other[0] != scene)
            partner = next(free, None)
            if partner and scene not in used:
                used |= {scene, partner[0]}
                pairs.append((partner, way))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2, 2)
