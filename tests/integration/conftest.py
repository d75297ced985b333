"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.drivers.session import start
from subquad.engine.ticket import Ticket
from subquad.experiment import load


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The small experiment's file."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def ticket(small: Path, tmp_path: Path) -> Callable[..., Ticket]:
    """A new run of the small experiment with overrides."""

    def make(*overrides: str) -> Ticket:
        (found,) = start(load(str(small), overrides), tmp_path).tickets
        return found

    return make
