"""Workers that find no room, as machines of a cluster were lost: waited for, then given up."""

import pytest

from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room
from subquad.ray import existing
from subquad.ray.executor import RayExecutor
from subquad.ray.existing import ClusterExecutor

TWO = Resources(workers=2)
LOST = Room(((1.0, 0.0),), "the cluster")
WHOLE = Room(((1.0, 0.0), (1.0, 0.0)), "the cluster")


class Clock:
    """Time that a test moves on, and the room that a cluster has then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.room = LOST
        self.waited_for = ""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(existing.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(existing, "room_now", lambda resources: clock.room)
    monkeypatch.setattr(existing, "waited_for", lambda: clock.waited_for)
    return clock


def test_a_cluster_changes_what_its_base_asks_for():
    """A method under another name would never be called."""
    own = {name for name in vars(ClusterExecutor) if not name.startswith("_")}
    assert own <= {*dir(RayExecutor), "words", "option"}


def test_lost_machines_are_waited_for_and_then_given_up(clock):
    executor: RayExecutor = ClusterExecutor("127.0.0.1:6379")
    assert executor.still_lacking(None) == ""
    clock.now += 60
    assert executor.still_lacking([TWO]) == ""
    clock.now += 200
    assert "2" in executor.still_lacking([TWO])


def test_a_machine_that_comes_back_ends_the_wait(clock):
    executor: RayExecutor = ClusterExecutor("127.0.0.1:6379")
    executor.still_lacking(None)
    clock.now, clock.room = clock.now + 170, WHOLE
    assert executor.still_lacking([TWO]) == ""
    clock.now, clock.room = clock.now + 60, LOST
    assert executor.still_lacking([TWO]) == ""


def test_what_is_waited_for_is_told_once_and_never_given_up(clock, capsys):
    executor: RayExecutor = ClusterExecutor("127.0.0.1:6379")
    executor.still_lacking(None)
    clock.room = WHOLE
    said = []
    for waited_for in ("room", "", "room", "room", "room"):
        clock.waited_for = waited_for
        clock.now += 200
        assert executor.still_lacking([TWO]) == ""
        said.append(capsys.readouterr().err)
    assert said == ["", "", "", "room\n", ""]
