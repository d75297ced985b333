"""What the places of the two discs alone say of a Pathfinder label.

    python benchmarks/pathfinder.py [--images 12000] [--resolution 32] [--difficulty hard] [--discs
    official]

Images are generated, four fifths of them to learn from. Printed in percent, with the standard error
of the last:

    found      official discs that are found in the pixels, within a pixel of where they were drawn
    reference  `disc_positions`, the reference score of the data set
    trees      boosted trees on the places, their difference and their distance (needs scikit-learn)
    distance   the same on the distance alone
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from subquad_datasets.pathfinder import Config
from subquad_datasets.pathfinder.dataset import Pathfinder
from subquad_datasets.pathfinder.drawing import drawing
from subquad_datasets.pathfinder.generate import MARKER_WORD, draw_labels, draw_tips
from subquad_datasets.pathfinder.stream import below, image_keys


def features(discs: np.ndarray) -> np.ndarray:
    """(N, 7): both places, the upper disc first, their difference and their distance."""
    places = discs.reshape(-1, 2, 2).astype(np.int64)
    swapped = places[:, 0, 0] * 256 + places[:, 0, 1] > places[:, 1, 0] * 256 + places[:, 1, 1]
    places[swapped] = places[swapped][:, ::-1]
    apart = places[:, 1] - places[:, 0]
    return np.column_stack([places.reshape(-1, 4), apart, np.hypot(*apart.T)])


def trees(known: np.ndarray, labels: np.ndarray, asked: np.ndarray, right: np.ndarray) -> float:
    chosen: dict[str, Any] = {
        "max_iter": 300,
        "learning_rate": 0.06,
        "early_stopping": True,
        "random_state": 0,
    }
    model = HistGradientBoostingClassifier(**chosen)
    return float(model.fit(known, labels).score(asked, right))


def found(config: Config, discs: np.ndarray) -> float:
    """Share of the first 500 images of TRAIN with both discs where they were drawn."""
    what, indices = drawing(config.resolution, config.difficulty), np.arange(min(500, len(discs)))
    keys, labels = image_keys(config.seed, 0, indices), draw_labels(config.seed, 0, indices)
    tips, first = draw_tips(what, keys), below(2, keys, MARKER_WORD)
    ends = tips[indices, first, 0], tips[indices, np.where(labels == 1, first, 1 - first), 1]
    drawn, seen = np.stack(ends, axis=1), discs[indices].reshape(-1, 2, 2).astype(np.int64)
    off = [np.abs(image - drawn).max(axis=(1, 2)) for image in (seen, seen[:, ::-1])]
    return float(np.mean(np.minimum(*off) <= 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=12_000)
    parser.add_argument("--resolution", type=int, default=32)
    parser.add_argument("--difficulty", default="hard")
    parser.add_argument("--discs", default="official")
    told = vars(parser.parse_args())
    images = told.pop("images")
    sizes = {"train_size": images * 4 // 5 - 2, "validation_size": 2, "test_size": images // 5}
    config = Config.model_validate({**told, **sizes, "processes": 1})
    with tempfile.TemporaryDirectory() as folder:
        dataset = Pathfinder(config, Path(folder))
        train, test = dataset.load("trainval"), dataset.load("test")
        reference = dataset.reference_scores(test)["disc_positions"]
        known, asked = features(train.discs), features(test.discs)
        scores = [
            trees(known[:, part], train.labels, asked[:, part], test.labels)
            for part in (slice(7), slice(6, 7))
        ]
        seen = f"{100 * found(config, train.discs):.1f}" if config.discs == "official" else "-"
        error = 50 / np.sqrt(len(test))
    cells = [
        *told.values(),
        images,
        seen,
        *(f"{100 * score:.1f}" for score in (reference, *scores)),
        f"{error:.1f}",
    ]
    print(
        "| resolution | difficulty | discs | images | found | reference | trees | "
        "distance | standard error |"
    )
    print("|" + "---|" * len(cells) + "\n| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
