"""Reading the records of attempts while they grow, and with torn lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from subquad.records import Record
from subquad.tracking.state import SyncState, Upload

NOTHING = SyncState(uri="u", experiment="e", key="k")


def drain(run: Path, state: SyncState) -> tuple[list[Record], SyncState]:
    """Everything there is, as a sender takes it."""
    records, place = state.unsent(run)
    return records, replace(state.after(records), place=place)


def steps(records: list[Record], kind: str = "train") -> list[int]:
    return [record.step for record in records if record.kind == kind]


def test_each_record_is_read_once_while_the_file_grows(run_folder):
    run, progress = run_folder.path, NOTHING
    assert drain(run, progress) == ([], progress)
    run_folder.train(range(1, 4))
    first, progress = drain(run, progress)
    assert drain(run, progress) == ([], progress)
    run_folder.train(range(4, 6))
    second, progress = drain(run, progress)
    assert (steps(first), steps(second), progress.place.read["metrics.jsonl"][1]) == (
        [1, 2, 3],
        [4, 5],
        5,
    )


def test_another_process_goes_on_where_the_first_one_was(run_folder):
    run_folder.train(range(1, 4))
    _, progress = drain(run_folder.path, NOTHING)
    progress.save(run_folder.path)
    run_folder.train(range(4, 6))
    reread = SyncState.load(run_folder.path)
    assert reread == progress
    records, _ = drain(run_folder.path, reread)
    assert steps(records) == [4, 5]


def test_a_torn_last_line_waits_for_its_end(run_folder):
    run_folder.train(range(1, 3))
    line = Record(kind="train", step=3, epoch=0.3, seconds=3, time=3, metrics={"loss": 1.0}).line()
    run_folder.append(line[:20])
    run = run_folder.path
    first, progress = drain(run, NOTHING)
    run_folder.append(line[20:])
    second, _ = drain(run, progress)
    assert (steps(first), steps(second)) == ([1, 2], [3])


def test_an_unreadable_line_is_passed_over_and_reported(run_folder):
    run_folder.train(range(1, 2))
    run_folder.append('\0\0\0\n[1]\n{"kind": "train"}\n')
    run_folder.train(range(2, 3))
    records, progress = drain(run_folder.path, NOTHING)
    assert (steps(records), progress.place.unreadable) == (
        [1, 2],
        ("metrics.jsonl:2", "metrics.jsonl:3", "metrics.jsonl:4"),
    )


def test_after_a_resume_every_step_is_read_exactly_once(run_folder):
    run = run_folder.path
    run_folder.train(range(1, 21), system_every=2)
    first, progress = drain(run, NOTHING)
    run_folder.train(range(11, 31), attempt=2)
    second, progress = drain(run, progress)
    assert steps(first) + steps(second) == list(range(1, 31))
    assert steps(second, "system") == []
    assert drain(run, progress)[0] == []


def test_steps_that_are_trained_again_are_not_read_twice_while_they_come(run_folder):
    run_folder.train(range(1, 21))
    _, progress = drain(run_folder.path, NOTHING)
    run_folder.train(range(11, 16), attempt=2)
    again, progress = drain(run_folder.path, progress)
    run_folder.train(range(16, 23), attempt=2)
    last, _ = drain(run_folder.path, progress)
    assert (again, steps(last)) == ([], [21, 22])


def test_streams_of_evaluation_go_on_apart(run_folder):
    run_folder.train(range(1, 11))
    run_folder.record(5, {"accuracy": 0.1}, kind="eval", split="validation")
    _, progress = drain(run_folder.path, NOTHING)
    run_folder.record(10, {"accuracy": 0.2}, kind="eval", split="validation", attempt=2)
    run_folder.record(10, {"accuracy": 0.3}, kind="eval", split="test", attempt=2)
    records, _ = drain(run_folder.path, progress)
    assert [(record.split, record.metrics) for record in records] == [
        ("validation", {"accuracy": 0.2}),
        ("test", {"accuracy": 0.3}),
    ]


def test_a_sender_that_ended_half_way_is_followed_by_one_that_sends_the_other_half(run_folder):
    run_folder.train(range(1, 11))
    records, _ = NOTHING.unsent(run_folder.path)
    assert steps(NOTHING.after(records[:4]).unsent(run_folder.path)[0]) == list(range(5, 11))


def test_events_are_not_sent(run_folder):
    run_folder.record(1, {}, kind="event")
    assert NOTHING.unsent(run_folder.path)[0] == []


def test_another_store_starts_anew_and_the_first_one_is_recognised_by_the_key(tmp_path: Path):
    first = SyncState.of(tmp_path, Upload(tmp_path, "a", "e"))
    replace(first, run_id="r1", steps={"train": 7}, closed="x").save(tmp_path)
    assert SyncState.of(tmp_path, Upload(tmp_path, "a", "e")).steps == {"train": 7}
    second = SyncState.of(tmp_path, Upload(tmp_path, "b", "e"))
    assert (second.run_id, second.steps, second.closed) == (None, {}, "")
    assert second.key == first.key


def test_an_unreadable_mlflow_json_counts_as_none(run_folder):
    (run_folder.path / "mlflow.json").write_text('{"uri": 3}')
    assert SyncState.load(run_folder.path) is None
