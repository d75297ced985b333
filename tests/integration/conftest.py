"""Fixtures of the integration tests."""

from __future__ import annotations

import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import ready
from searches import MARK, Traces
from small_run import SMALL

from subquad.experiment import Run, load_study
from subquad.experiment.folder import start


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works() -> None:
    """A shell's background job ignores SIGINT, and so would all that is started here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The small experiment's file."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def ticket(small: Path, tmp_path: Path) -> Callable[..., Run]:
    """A new run of the small experiment with overrides."""

    def make(*overrides: str) -> Run:
        study = load_study(str(small), overrides)
        (found,) = start(study, tmp_path).runs
        return found

    return make


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """No process of ours stays behind. Its value finds those that there are."""
    ready()
    with tempfile.TemporaryDirectory(prefix="sq", dir="/tmp", ignore_cleanup_errors=True) as folder:
        traces = Traces(uuid.uuid4().hex, Path(folder))  # a short path: Ray's sockets are below it
        monkeypatch.setenv(MARK, traces.mark)
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield traces
        # after a kill of the driver Ray's agents stay for some 63 s
        assert not traces.after(seconds=90)
