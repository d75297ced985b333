"""A tiny release in the official layout: real PNG files, metadata as text or as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from subquad_datasets.pathfinder import Config
from subquad_datasets.pathfinder.dataset import Pathfinder

Release = Callable[..., Path]


_PARAMETERS = ["1.0", "14", "4", "2", "0.5", "1", "1"]


def metadata_row(folder: int, number: int, label: int) -> list[str]:
    return [f"imgs/{folder}", f"sample_{number}.png", str(number), str(label), *_PARAMETERS]


def image_of(folder: int, number: int, size: int = 32) -> np.ndarray:
    """(size, size) uint8: its own for each image, a third black."""
    values = np.random.default_rng([folder, number]).integers(0, 256, (size, size))
    return np.where(values < 85, 0, values).astype(np.uint8)


@pytest.fixture(name="image_of")
def _image_of() -> Callable[..., np.ndarray]:
    """`image_of(folder, number)`: the pixels of an image of the tiny release."""
    return image_of


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """`release(form="text" | "array", folders=2, each=10)`: the path of `lra_release`; labels
    alternate.
    """
    image = pytest.importorskip("PIL.Image", reason="writes PNG files")

    def _release(
        form: str = "text", folders: int = 2, each: int = 10, leaf: str = "curv_contour_length_14"
    ) -> Path:
        root = tmp_path / "lra_release" / "lra_release" / "pathfinder32" / leaf
        (root / "metadata").mkdir(parents=True)
        for folder in range(folders):
            (root / "imgs" / str(folder)).mkdir(parents=True)
            rows = [metadata_row(folder, number, number % 2) for number in range(each)]
            for number in range(each):
                image.fromarray(image_of(folder, number)).save(
                    root / "imgs" / str(folder) / f"sample_{number}.png"
                )
            path = root / "metadata" / f"{folder}.npy"
            if form == "text":
                path.write_text("".join(" ".join(row) + "\n" for row in rows))
            else:
                np.save(path, np.array(rows))
        return tmp_path / "lra_release"

    return _release


@pytest.fixture
def pathfinder(tmp_path: Path) -> Callable[..., Pathfinder]:
    """`pathfinder(**params)`: the data set; generated ones are small and easy unless told
    otherwise.
    """

    def _pathfinder(**params: object) -> Pathfinder:
        small = {
            "difficulty": "easy",
            "train_size": 12,
            "validation_size": 4,
            "test_size": 6,
            "processes": 1,
        }
        given = params if "path" in params else {**small, **params}
        given = {
            key: str(value) if isinstance(value, Path) else value for key, value in given.items()
        }
        return Pathfinder(Config.model_validate(given), tmp_path / "root")

    return _pathfinder
