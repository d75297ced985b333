"""Which trials run at once, and which go again."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.drivers.folder import write_down
from subquad.drivers.local import LocalExecutor
from subquad.drivers.preflight import Room
from subquad.engine import attempts
from subquad.engine.attempts import Attempt
from subquad.errors import DiskError, RunError
from subquad.experiment import Run, load_study
from subquad.ray.queue import TrialQueue
from subquad.runs import ATTEMPTS, append_line, read_result, write_result

ENDED = {"error": "", "kind": ""}


@pytest.fixture
def ticket(tmp_path: Path) -> Callable[..., Run]:
    (tmp_path / "small.yaml").write_text(SMALL)

    def make(label: str, cpus: float = 0.5, gpus: float = 0.0) -> Run:
        scale = [f"resources.cpus_per_worker={cpus}", f"resources.gpus_per_worker={gpus}"]
        (one,) = load_study(str(tmp_path / "small.yaml"), scale).runs
        folder = tmp_path / "trials" / label
        made = replace(one, place=folder, label=label, launch=uuid.uuid4().hex, is_trial=True)
        write_down(made)
        return made

    return make


class Search:
    """Gives these tickets, and remembers which it was told of."""

    def __init__(self, *tickets: Run, cpus: float = 1.0, gpus: int = 0):
        self.left = list(tickets)
        self.ended: list[str] = []
        self.queue = TrialQueue(
            lambda: self.left.pop(0) if self.left else None,
            lambda one: self.ended.append(one.label),
            Room(((cpus, gpus),)),
        )

    def start(self, key: str) -> str | None:
        started = self.queue.start(key)
        return started and started.label


def begin(one: Run) -> None:
    append_line(one.folder / ATTEMPTS, vars(Attempt(len(attempts.read(one.folder)) + 1, 0, one.launch, 1, 1)))


def finish(one: Run) -> None:
    write_result(one.folder, {"status": "finished"})


def test_as_many_as_fit_and_no_point_is_drawn_early(ticket):
    first = ticket("a")
    search = Search(first, ticket("b"), ticket("c"))
    assert [search.start(key) for key in "123"] == ["a", "b", None]
    assert [one.label for one in search.left] == ["c"]
    begin(first)
    finish(first)
    search.queue.back("1", ENDED)
    assert search.ended == ["a"]
    assert search.start("3") == "c"


def test_one_that_needs_more_waits_until_there_is_room(ticket):
    small, large = ticket("small"), ticket("large", cpus=1.0)
    search = Search(small, large)
    assert [search.start(key) for key in "12"] == ["small", None]
    finish(small)
    search.queue.back("1", ENDED)
    assert search.start("2") == "large"


@pytest.mark.parametrize(
    ("gpus", "shares", "started"),
    [
        (1, (0.3, 0.3, 0.3, 0.3), 3),
        (1, (0.6, 0.6), 1),
        (2, (0.6, 0.6, 0.6), 2),
        (2, (0.6, 0.3, 0.6, 0.6), 3),
        (2, (0.4, 1.0, 0.6, 1.0), 2),
        (3, (2.0, 0.5, 0.5, 0.5), 1),
        (3, (0.5, 1.0, 1.0, 0.5), 3),
    ],
)
def test_a_share_comes_from_one_gpu_and_more_from_whole_ones(ticket, gpus, shares, started):
    tickets = [ticket(str(number), cpus=0.1, gpus=share) for number, share in enumerate(shares)]
    search = Search(*tickets, gpus=gpus)
    assert [search.start(key) for key in "abcd"] == [*map(str, range(started)), *[None] * (4 - started)]
    if started < len(shares):
        finish(tickets[0])
        search.queue.back("a", ENDED)
        assert search.start("e") == str(started)


def test_none_now_is_asked_again_when_another_has_ended(ticket):
    first = ticket("a")
    search = Search(first)
    assert search.start("1") == "a"
    search.left = []
    assert search.start("2") is None
    search.left = [ticket("b")]
    assert search.start("2") is None
    finish(first)
    search.queue.back("1", ENDED)
    assert search.start("2") == "b"


def test_a_trial_whose_process_died_goes_again_before_others(ticket):
    first = ticket("a")
    search = Search(first, ticket("b"), cpus=0.5)
    search.start("1")
    begin(first)
    search.queue.back("1", None)
    assert search.ended == []
    assert search.start("2") == "a"


def test_one_that_always_dies_before_it_begins_has_failed(ticket):
    first = ticket("a")
    search = Search(first)
    for _ in range(3):
        assert search.start("1") == "a"
        search.queue.all_back()
        assert search.ended == []
    assert search.start("1") == "a"
    search.queue.all_back()
    assert search.ended == ["a"]
    reason = (read_result(first.folder) or {})["reason"]
    assert reason == "its process died 4 times before it could begin (resources.max_failures: 3)"
    assert search.queue.idle
    assert not search.queue.more()


def test_a_process_that_dies_after_the_result_takes_nothing_with_it(ticket):
    first = ticket("a")
    search = Search(first)
    search.start("1")
    begin(first)
    finish(first)
    search.queue.back("1", None)
    assert search.ended == ["a"]
    assert not search.queue.more()


def test_a_stopped_trial_has_not_ended(ticket):
    search = Search(ticket("a"))
    search.start("1")
    search.queue.back("1", ENDED)
    assert search.ended == []
    assert not search.queue.more()


def test_what_a_user_did_wrong_fails_the_trial(ticket):
    first = ticket("a")
    search = Search(first)
    search.start("1")
    search.queue.back("1", {"error": "dim 16 is not divisible by num_heads 3", "kind": "PluginError"})
    assert search.ended == ["a"]
    assert (read_result(first.folder) or {})["reason"] == "dim 16 is not divisible by num_heads 3"


def test_a_trial_in_other_hands_ends_the_search(ticket):
    first = ticket("a")
    search = Search(first)
    search.start("1")
    with pytest.raises(RunError, match="another process is still writing this run"):
        search.queue.back("1", {"error": "another process is still writing this run", "kind": "RunError"})
    assert read_result(first.folder) is None


def test_a_full_disk_ends_the_search_and_fails_no_trial(ticket, monkeypatch):
    first, ended = ticket("a"), list[Run]()

    def full(run: Run, *more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(run.folder / "metrics.jsonl"))

    monkeypatch.setattr("subquad.drivers.work.train_run", full)
    said = f"{first.folder}/metrics.jsonl: No space left on device"
    with pytest.raises(DiskError, match=said):
        LocalExecutor().search(lambda: first, None, ended.append)
    search = Search(first)
    search.start("1")
    with pytest.raises(DiskError, match=said):
        search.queue.back("1", {"error": said, "kind": "DiskError"})
    assert read_result(first.folder) is None
    assert ended == []


def test_what_the_machine_cannot_give_fails_at_once(ticket):
    search = Search(ticket("large", cpus=2), ticket("b"))
    assert search.start("1") == "b"
    assert search.ended == ["large"]
