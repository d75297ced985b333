"""The data set that a module of tests is about, of files that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splits import dataset_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of the files."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def make(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Callable[..., Any]:
    """`make(**params)`: the module's DATASET, a name and parameters, of the files in `data`."""
    name, given = request.module.DATASET

    def made(**params: Any) -> Any:
        return dataset_of(name, tmp_path / "root", **{"path": str(data), **given, **params})

    return made
