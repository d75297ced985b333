"""Golden arrays and the ways they are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import load_golden

# test_further_files.py asks other tests of this folder
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def golden() -> Callable[[str], dict[str, Any]]:
    """See `load_golden`."""
    return load_golden


@pytest.fixture
def assert_close() -> Callable[[torch.Tensor, torch.Tensor, float], None]:
    """Largest absolute difference, relative to 1 or to the largest expected value if that is
    more.
    """

    def check(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        assert got.shape == expected.shape
        scale = max(1.0, float(expected.abs().max()))
        assert float((got.detach().double() - expected.double()).abs().max()) <= tolerance * scale

    return check
