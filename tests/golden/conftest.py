"""Golden arrays and the ways they are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import OWN, READ, load_golden, unread

sys.path.insert(0, str(Path(__file__).parent))  # test_further_files.py asks other tests of this folder


@pytest.fixture
def golden() -> Callable[[str], dict[str, Any]]:
    """See `load_golden`."""
    return load_golden


@pytest.fixture
def assert_close() -> Callable[[torch.Tensor, torch.Tensor, float], None]:
    """Largest absolute difference, relative to 1 or to the largest expected value if that is more."""

    def check(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        assert got.shape == expected.shape
        scale = max(1.0, float(expected.abs().max()))
        assert float((got.detach().double() - expected.double()).abs().max()) <= tolerance * scale

    return check


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was looked into to find tests is not read by one yet."""
    READ.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist says what it has read."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["golden"] = list(map(str, READ))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    READ.update(map(Path, getattr(node, "workeroutput", {}).get("golden", ())))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files of SUBQUAD_GOLDEN that no test has read."""
    if found := unread():
        terminalreporter.section("golden files that NO TEST HAS READ", sep="!", red=True, bold=True)
        for path in found:
            ours = (OWN / path.name).exists()
            reason = (
                "ours of the same name is read" if ours else "of no kind that a test knows (tests/golden/README.md)"
            )
            terminalreporter.line(f"{path}: {reason}", red=True)
