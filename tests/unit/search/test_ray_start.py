"""A Ray cluster's start, which may fail on a loaded machine, and signals while it runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from subquad.errors import TrainingFailed
from subquad.execution.signals import listening
from subquad.ray import cluster
from subquad.ray.cluster import OwnCluster

ray = pytest.importorskip("ray")


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Let Ray's next starts fail; gives for how long each asked for its node."""
    from ray._private import services

    def never(*address: object) -> None:
        raise RuntimeError

    def make(*failures: str) -> list[float]:
        left, limits, now = list(failures), list[float](), [0.0]

        def init(**settings: object) -> None:
            begun = now[0]
            with suppress(RuntimeError):
                services.get_node("address", "id")
            limits.append(now[0] - begun)
            if left:
                raise RuntimeError(left.pop(0))

        monkeypatch.setattr(services, "get_node", never)
        monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(
            cluster.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
        )
        monkeypatch.setattr(ray, "init", init)
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        return limits

    return make


def in_cluster(work, signum=lambda: 0):
    cluster = OwnCluster()
    try:
        return cluster.do(work, signum)
    finally:
        cluster.stop()


def test_a_failed_start_is_one_line_and_tried_again_with_more_time(
    starts, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    before = dict(os.environ)
    limits = starts("The current node timed out\nduring startup.")
    folder = Path(in_cluster(lambda: os.environ["RAY_TMPDIR"])["returned"])
    assert limits == pytest.approx([30, 90], abs=1)
    message = "The current node timed out during startup; it is tried again, for up to 90 s"
    assert capsys.readouterr().err == f"Ray did not start: RuntimeError: {message}\n"
    assert folder.parent == tmp_path
    assert not list(tmp_path.iterdir())
    assert dict(os.environ) == before


def test_the_last_failed_start_says_what_to_do(starts, capsys):
    limits = starts("one", "two", "three")
    with pytest.raises(
        TrainingFailed, match=r"^Ray did not start: RuntimeError: three\. Where .* by --local$"
    ):
        in_cluster(str)
    assert limits == pytest.approx([30, 90, 270], abs=1)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_no_start_is_tried_again_after_a_signal(starts):
    with listening() as signum:
        limits = starts("one", "two")
        os.kill(os.getpid(), signal.SIGTERM)
        outcome = in_cluster(str, signum)
    assert signum() == signal.SIGTERM
    assert list(outcome) == ["raised"]
    assert len(limits) == 1


def test_what_a_block_hears_is_known_around_it_and_in_later_ones(tmp_path):
    stop, later, before = tmp_path / "stop", tmp_path / "later", signal.getsignal(signal.SIGTERM)
    with listening() as around:
        with listening(stop) as within:
            os.kill(os.getpid(), signal.SIGTERM)
            assert within() == signal.SIGTERM
        with listening(later) as after:
            assert after() == around() == signal.SIGTERM
    assert stop.read_text() == later.read_text() == str(int(signal.SIGTERM))
    assert signal.getsignal(signal.SIGTERM) is before
