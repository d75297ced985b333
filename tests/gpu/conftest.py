"""The device that is tested, and small runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_run import SMALL

from subquad.experiment import Run, load_study
from subquad.experiment.folder import start


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """cuda, or what --gpu-device says; a test is skipped where there is no such device."""
    name = request.config.getoption("--gpu-device")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here; --gpu-device cpu runs these tests on the CPU")
    return name


@pytest.fixture
def ticket(tmp_path: Path) -> Callable[..., Run]:
    """A new run of the small experiment with overrides."""
    (tmp_path / "small.yaml").write_text(SMALL)

    def make(*overrides: str) -> Run:
        (found,) = start(load_study(str(tmp_path / "small.yaml"), overrides), tmp_path).runs
        return found

    return make
