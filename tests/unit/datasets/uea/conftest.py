"""Hand-made .ts files, small enough to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset

HEADER = (
    "# two channels, two classes\n@problemName Toy\n@timeStamps false\n@missing "
    "false\n@univariate false\n"
    "@dimensions 2\n@equalLength false\n@classLabel true up down\n@data\n"
)
TRAIN = "1,2,3:4,5,6:up\n7,8:9,10:down\n1,1,2:3,5,8:up\n0,1:1,0:down\n"
TEST = "2,3,4,5:1,2,3,4:up\n5,6:7,8:down\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("name.ts", rows, header=...)`: a file in the test's folder; text or bytes."""

    def _write(name: str, rows: str | bytes, header: str | bytes = HEADER) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [part.encode() if isinstance(part, str) else part for part in (header, rows)]
        path.write_bytes(b"".join(parts))
        return path

    return _write


@pytest.fixture
def toy(write: Write, tmp_path: Path) -> Callable[..., UeaDataset]:
    """`toy(train=..., test=..., **params)`: the data set of hand-made files; `test=None` leaves
    TEST away.
    """

    def _toy(
        train: str = TRAIN, test: str | None = TEST, header: str = HEADER, **params: object
    ) -> UeaDataset:
        write("data/Toy/Toy_TRAIN.ts", train, header)
        if test is not None:
            write("data/Toy/Toy_TEST.ts", test, header)
        config = UeaConfig.model_validate(
            {"problem": "Toy", "path": str(tmp_path / "data"), **params}
        )
        return UeaDataset(config, tmp_path / "root")

    return _toy
