"""Which runs go at once, in which worker groups, and which go again."""

from __future__ import annotations

import errno
import math
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from result_file import read_result
from small_run import SMALL

from subquad.errors import DiskError, PluginError, RunError, TrainingFailed
from subquad.execution.executor import Source
from subquad.execution.local import LocalExecutor
from subquad.execution.queue import END, WAIT, Done, RunQueue
from subquad.experiment import Run, load_study
from subquad.experiment.folder import write_down
from subquad.preparation.preflight import Room
from subquad.record.files import append_line
from subquad.record.integrity import write_result
from subquad.record.metrics import Attempt, read_attempts
from subquad.record.names import ATTEMPTS


@pytest.fixture
def ticket(tmp_path: Path) -> Callable[..., Run]:
    (tmp_path / "small.yaml").write_text(SMALL)

    def make(label: str, cpus: float = 0.5, gpus: float = 0.0) -> Run:
        scale = [f"resources.cpus_per_worker={cpus}", f"resources.gpus_per_worker={gpus}"]
        (run,) = load_study(str(tmp_path / "small.yaml"), scale).runs
        folder = tmp_path / "trials" / label
        made = replace(run, place=folder, label=label, launch=uuid.uuid4().hex, is_trial=True)
        write_down(made)
        return made

    return make


class Driver:
    """Gives these runs to worker groups, and remembers which it was told of."""

    def __init__(
        self,
        *runs: Run,
        cpus: float = 1.0,
        gpus: int = 0,
        jobs: int | None = None,
        alone: bool = False,
    ):
        self.left = list(runs)
        self.ended: list[str] = []
        self.signum = 0
        room = Room(((cpus, gpus),))
        source = Source(
            lambda: self.left.pop(0) if self.left else None,
            lambda run: self.ended.append(run.label),
            alone=alone,
        )
        self.queue = RunQueue(source, room.check, lambda _: room, jobs, lambda: self.signum)

    def start(self, worker_group: str) -> str | None:
        """The first run of a new worker group, which begins."""
        if self.queue.open(worker_group) is None:
            return None
        return self.ask(worker_group, None)

    def ask(self, worker_group: str, done: Done | None = Done()) -> str:  # noqa: B008
        answer = self.queue.ask(worker_group, done)
        return answer.label if isinstance(answer, Run) else answer


def begin(run: Run) -> None:
    number = len(read_attempts(run.folder)) + 1
    append_line(run.folder / ATTEMPTS, vars(Attempt(number, 0, run.launch, 1, 1)))


def finish(run: Run) -> None:
    write_result(run.folder, {**run.names, "status": "finished", "launch": run.launch})


def reason(run: Run) -> str:
    return (read_result(run.folder) or {})["reason"]


def test_as_many_as_fit_and_none_is_drawn_early(ticket):
    first = ticket("a")
    driver = Driver(first, ticket("b"), ticket("c"))
    assert [driver.start(worker_group) for worker_group in "123"] == ["a", "b", None]
    assert [run.label for run in driver.left] == ["c"]
    finish(first)
    assert driver.ask("1") == "c"
    assert driver.ended == ["a"]


def test_no_more_than_were_asked_for(ticket):
    driver = Driver(ticket("a"), ticket("b"), jobs=1)
    assert [driver.start(worker_group) for worker_group in "12"] == ["a", None]


def test_a_worker_group_ends_where_nothing_is_left_for_it(ticket):
    first, second = ticket("a"), ticket("b")
    driver = Driver(first, second)
    assert [driver.start(worker_group) for worker_group in "12"] == ["a", "b"]
    finish(first)
    assert driver.ask("1") == END
    driver.queue.close("1", "")
    finish(second)
    assert driver.ask("2") == END
    driver.queue.close("2", "")
    assert driver.ended == ["a", "b"]
    assert driver.queue.idle


def test_a_worker_group_takes_what_another_one_has_not_begun(ticket):
    first = ticket("a")
    driver = Driver(first, ticket("b"))
    assert driver.start("1") == "a"
    assert driver.queue.open("2")
    finish(first)
    assert driver.ask("1") == "b"
    assert driver.ask("2", None) == END


def test_one_that_needs_more_waits_until_there_is_room(ticket):
    small, large = ticket("small"), ticket("large", cpus=1.0)
    driver = Driver(small, large)
    assert [driver.start(worker_group) for worker_group in "12"] == ["small", None]
    finish(small)
    assert driver.ask("1") == END  # its room is needed
    driver.queue.close("1", "")
    assert driver.start("2") == "large"


def test_a_worker_group_stays_while_the_next_run_is_for_another_one(ticket):
    small, large = ticket("small", cpus=0.4), ticket("large", cpus=0.6)
    driver = Driver(small, large, ticket("large again", cpus=0.6), ticket("small again", cpus=0.4))
    assert [driver.start(worker_group) for worker_group in "12"] == ["small", "large"]
    finish(small)
    assert driver.ask("1") == WAIT
    finish(large)
    assert driver.ask("2") == "large again"
    assert driver.ask("1", None) == "small again"


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
    runs = [ticket(str(number), cpus=0.1, gpus=share) for number, share in enumerate(shares)]
    driver = Driver(*runs, gpus=gpus)
    assert [driver.start(worker_group) for worker_group in "abcd"] == [
        *map(str, range(started)),
        *[None] * (4 - started),
    ]
    if started < len(shares):
        finish(runs[0])
        driver.queue.close("a", "")
        assert driver.start("e") == str(started)


def test_none_now_is_asked_again_when_another_has_ended(ticket):
    first = ticket("a")
    driver = Driver(first)
    assert driver.start("1") == "a"
    assert driver.start("2") is None
    driver.left = [ticket("b")]
    assert driver.start("2") is None
    finish(first)
    assert driver.ask("1") == "b"


def test_a_run_whose_process_died_goes_again_before_others(ticket):
    first = ticket("a")
    driver = Driver(first, ticket("b"), cpus=0.5)
    driver.start("1")
    begin(first)
    driver.queue.close("1", "its process died")
    assert driver.ended == []
    assert driver.start("2") == "a"


def test_workers_that_were_started_again_get_their_run_again(ticket):
    first = ticket("a")
    driver = Driver(first, ticket("b"), cpus=0.5)
    driver.start("1")
    begin(first)
    assert driver.ask("1", None) == "a"


def test_one_that_always_dies_before_it_begins_has_failed(ticket):
    first = ticket("a")
    driver = Driver(first)
    for _ in range(4):
        assert driver.ended == []
        assert driver.start("1") == "a"
        driver.queue.close("1", "its process died")
    assert driver.ended == ["a"]
    message = "its process died 4 times before it could begin (resources.max_failures: 3)"
    assert reason(first) == message
    assert driver.queue.idle
    assert driver.start("1") is None


def test_the_only_run_that_never_begins_is_told(ticket):
    driver = Driver(ticket("a"), alone=True)
    for _ in range(3):
        driver.start("1")
        driver.queue.close("1", "its process died")
    driver.start("1")
    with pytest.raises(TrainingFailed, match=r"died 4 times .* `subquad resume` tries again"):
        driver.queue.close("1", "its process died")


def test_workers_that_find_no_room_are_started_more_often(ticket):
    first = ticket("a")
    driver = Driver(first)
    for _ in range(13):
        assert driver.ended == []
        assert driver.start("1") == "a"
        driver.queue.close("1", "its workers found no room", most=12)
    assert driver.ended == ["a"]


def test_to_wait_for_room_is_no_failure(ticket):
    driver = Driver(ticket("a"))
    for _ in range(40):
        assert driver.start("1") == "a"
        driver.queue.close("1", "its workers found no room", most=math.inf)
    assert driver.ended == []


def test_a_process_that_dies_after_the_result_takes_nothing_with_it(ticket):
    first = ticket("a")
    driver = Driver(first)
    driver.start("1")
    begin(first)
    finish(first)
    driver.queue.close("1", "its process died")
    assert driver.ended == ["a"]
    assert driver.start("1") is None


def test_a_failure_before_this_start_is_no_result(ticket):
    first = ticket("a")
    failed = {"status": "failed", "launch": "an earlier one", "reason": ""}
    write_result(first.folder, {**first.names, **failed})
    driver = Driver(first)
    driver.start("1")
    driver.queue.close("1", "its process died")
    assert driver.ended == []
    assert driver.start("2") == "a"


def test_after_a_signal_nothing_starts_and_what_was_stopped_has_not_ended(ticket):
    driver = Driver(ticket("a"), ticket("b"))
    driver.start("1")
    assert driver.queue.open("2")
    driver.signum = 15
    assert driver.ask("1", Done(stopped=True)) == END
    assert driver.ask("2", None) == END
    assert driver.ended == []
    for worker_group in "12":
        driver.queue.close(worker_group, "its process died")
    assert driver.start("3") is None


def test_after_a_stop_file_nothing_starts(ticket):
    driver = Driver(ticket("a"), ticket("b"))
    driver.start("1")
    assert driver.ask("1", Done(stopped=True)) == END
    assert driver.start("2") is None


def test_what_a_user_did_wrong_fails_the_run_and_is_told_of_the_only_one(ticket):
    first, wrong = ticket("a"), Done("dim 16 is not divisible by num_heads 3", "PluginError")
    driver = Driver(first)
    driver.start("1")
    driver.ask("1", wrong)
    assert driver.ended == ["a"]
    assert reason(first) == "dim 16 is not divisible by num_heads 3"
    driver = Driver(ticket("b"), alone=True)
    driver.start("1")
    with pytest.raises(PluginError, match="dim 16 is not divisible by num_heads 3"):
        driver.ask("1", wrong)


def test_a_run_in_other_hands_ends_all(ticket):
    first = ticket("a")
    driver = Driver(first)
    driver.start("1")
    with pytest.raises(RunError, match="another process is still writing this run"):
        driver.ask("1", Done("another process is still writing this run", "RunError"))
    assert read_result(first.folder) is None


def test_a_full_disk_ends_all_and_fails_no_run(ticket, monkeypatch, tmp_path):
    first, ended = ticket("a"), list[Run]()

    def full(run: Run, *more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(run.folder / "metrics.jsonl"))

    monkeypatch.setattr("subquad.execution.worker.train_run", full)
    message = f"{first.folder}/metrics.jsonl: No space left on device"
    left = [first]
    source = Source(lambda: left.pop() if left else None, ended.append)
    with pytest.raises(DiskError, match=message):
        LocalExecutor().work(source, tmp_path)
    driver = Driver(first)
    driver.start("1")
    with pytest.raises(DiskError, match=message):
        driver.ask("1", Done(message, "DiskError"))
    assert read_result(first.folder) is None
    assert ended == []


def test_what_the_machine_cannot_give_fails_at_once(ticket):
    driver = Driver(ticket("large", cpus=2), ticket("b"))
    assert driver.start("1") == "b"
    assert driver.ended == ["large"]
