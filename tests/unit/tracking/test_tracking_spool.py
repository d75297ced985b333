"""Reading metrics.jsonl while it grows, after a cut, and with torn lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from subquad.runs import Record
from subquad.tracking.spool import SyncState

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
    assert (steps(first), steps(second), progress.place.lines) == ([1, 2, 3], [4, 5], 5)


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
    assert (steps(records), progress.place.unreadable, progress.place.lines) == ([1, 2], 2, 5)


def test_after_a_cut_every_step_is_read_exactly_once_though_system_records_differ(run_folder):
    """Ten system records of the first attempt are gone after the cut, so counting lines would lose training steps."""
    run = run_folder.path
    run_folder.train(range(1, 21), system_every=2)
    first, progress = drain(run, NOTHING)
    run_folder.cut(15)  # steps 1 to 10 with their system records
    run_folder.train(range(11, 31), attempt=2)
    second, progress = drain(run, progress)
    assert steps(first) + steps(second) == list(range(1, 31))
    assert steps(second, "system") == []
    assert drain(run, progress)[0] == []


def test_a_cut_seen_before_and_after_the_rewriting_reads_nothing_twice(run_folder):
    run_folder.train(range(1, 21))
    _, progress = drain(run_folder.path, NOTHING)
    run_folder.cut(10)
    nothing, progress = drain(run_folder.path, progress)
    run_folder.train(range(11, 16), attempt=2)
    again, progress = drain(run_folder.path, progress)
    run_folder.train(range(16, 23), attempt=2)
    last, _ = drain(run_folder.path, progress)
    assert (nothing, again, steps(last)) == ([], [], [21, 22])


def test_streams_of_evaluation_go_on_apart(run_folder):
    run_folder.train(range(1, 11))
    run_folder.record(5, {"accuracy": 0.1}, kind="eval", split="validation")
    _, progress = drain(run_folder.path, NOTHING)
    run_folder.cut(5)
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


def test_another_store_starts_anew_and_the_first_one_is_remembered():
    first = replace(SyncState.of(None, "a", "e"), run_id="r1", steps={"train": 7}, closed="x")
    second = replace(SyncState.of(first, "b", "e"), run_id="r2", steps={"train": 3})
    back = SyncState.of(second, "a", "e")
    assert (SyncState.of(first, "b", "e").steps, second.key) == ({}, first.key)
    assert (back.run_id, back.steps, back.closed) == ("r1", {"train": 7}, "x")
    assert SyncState.of(back, "b", "e").run_id == "r2"
    assert SyncState.of(back, "a", "e") is back


def test_an_unreadable_mlflow_json_counts_as_none(run_folder):
    (run_folder.path / "mlflow.json").write_text('{"uri": 3}')
    assert SyncState.load(run_folder.path) is None
