"""Golden arrays and the ways they are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Arrays = dict[str, Any]


@pytest.fixture
def golden() -> Callable[[str], Arrays]:
    """Numeric arrays of tests/golden/data/<name>.npz as tensors; the few strings in them as they are."""

    def load(name: str) -> Arrays:
        with np.load(Path(__file__).parent / "data" / f"{name}.npz") as stored:
            arrays = {key: stored[key] for key in stored.files}
        return {
            key: torch.from_numpy(value) if value.dtype.kind != "U" else str(value) for key, value in arrays.items()
        }

    return load


@pytest.fixture
def assert_close() -> Callable[[torch.Tensor, torch.Tensor, float], None]:
    """Largest absolute difference, relative to 1 or to the largest expected value if that is more."""

    def check(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        assert got.shape == expected.shape
        scale = max(1.0, float(expected.abs().max()))
        assert float((got.detach().double() - expected.double()).abs().max()) <= tolerance * scale

    return check
