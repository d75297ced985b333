"""Which machines train without storage, and a run that a machine of a cluster has from storage."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_run import SMALL

from subquad.errors import ConfigError
from subquad.experiment import Run, load_study
from subquad.experiment.schema import Resources
from subquad.ray.machines import room_now
from subquad.ray.train import NODE, _brought, machine_of, worker_bundle
from subquad.record.names import ERROR, LAST, RESULT, SEARCH, STUDY

ray = pytest.importorskip("ray")


def node(name: str, cpus: float) -> dict:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": cpus}}


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's and another one, each with two CPUs."""
    here = SimpleNamespace(get_node_id=lambda: "10.0.0.1")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    monkeypatch.setattr(ray, "nodes", lambda: [node("10.0.0.1", 2), node("10.0.0.2", 2)])


def test_without_storage_the_drivers_machine_alone_trains(two_nodes):
    alone = Resources(workers=2)
    room_now(alone).check(alone)
    assert worker_bundle(alone) == {"CPU": 1.0}
    assert machine_of(alone) == {NODE: "10.0.0.1"}
    four = Resources(workers=4)
    message = r"4 CPUs asked, the driver's machine \(others need resources\.storage, a place"
    with pytest.raises(ConfigError, match=message):
        room_now(four).check(four)
    shared = Resources(workers=4, storage="/shared")
    room_now(shared).check(shared)
    assert machine_of(shared) == {}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A study's run that storage has, at a place below the driver's root."""
    (tmp_path / "small.yaml").write_text(SMALL)
    setting = f"resources.storage={tmp_path / 'shared'}"
    made = load_study(str(tmp_path / "small.yaml"), [setting]).runs[0]
    kept = tmp_path / "shared" / "runs" / "small" / "one"
    (kept / "cells" / "a").mkdir(parents=True)
    (kept / STUDY).write_text("name: small")
    (kept / "cells" / "a" / LAST).write_text("{}")
    return replace(made, place=Path("runs", "small", "one", "cells", "a"))


def test_a_run_comes_from_storage_with_the_mark_of_its_study_and_goes_there(run, tmp_path):
    kept = tmp_path / "shared" / run.folder
    with _brought(run, first=True) as here:
        assert here.folder.is_absolute()
        assert here.files.kept == kept
        assert (here.folder / LAST).read_text() == "{}"
        assert (here.folder.parents[1] / STUDY).read_text() == "name: small"
        assert not (here.folder.parents[1] / SEARCH).exists()
        (here.folder / RESULT).write_text("done")
    assert (kept / RESULT).read_text() == "done"
    assert not here.folder.exists()
    with _brought(run, first=False) as other:
        (other.folder / LAST).write_text("of another rank")
    assert (kept / LAST).read_text() == "{}"
    placed = replace(run, place=tmp_path / "runs")
    with _brought(placed, first=True) as here:
        assert here is placed


def test_the_first_rank_to_fail_says_why(run, tmp_path):
    cause = tmp_path / "shared" / run.folder / ERROR
    cause.write_text("of the attempt before")
    with suppress(RuntimeError), _brought(run, first=True) as first:
        assert (first.folder / ERROR).read_text() == "of the attempt before"
        assert not cause.exists()
        with suppress(RuntimeError), _brought(run, first=False) as second:
            (second.folder / ERROR).write_text("the cause")
            raise RuntimeError
        (first.folder / ERROR).write_text("a peer has gone")
        raise RuntimeError
    assert cause.read_text() == "the cause"
