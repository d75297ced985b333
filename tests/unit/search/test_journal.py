"""The journal of a search: the same trials again, and nothing of a stranger's that runs, fills the
memory or ends in a traceback.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.storages import JournalStorage
from search_trials import ACCURACY, MIXED, of, trial

from subquad.errors import RunError
from subquad.record.files import append_line, parse_object
from subquad.record.names import JOURNAL
from subquad.search import journal
from subquad.search.journal import Journal, Trials, read_trials
from subquad.search.pruner import Pruner
from subquad.search.sampler import Sampler
from subquad.search.trial import Evaluation
from subquad.security.disk import hold


def opened(folder: Path) -> Trials:
    return read_trials(folder, [of(MIXED, label="agf")])["agf"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the journal of three trials, one of which runs."""
    trials = opened(tmp_path)
    sampler, pruner = Sampler("tpe", MIXED, 0), Pruner("asha", ACCURACY)
    for number in range(3):
        point = trials.ask(sampler)
        trials.record(trial(number, point=point, seeds=(1, 2)))
        for step, value in ((10, 0.1 * number), (20, math.nan)):
            evaluation = Evaluation(step=step, value=value)
            trials.reason_to_stop(pruner, number, 0, evaluation)
        if number < 2:
            best = Evaluation(step=10, value=0.1 * number, loss=0.5)
            ended = trial(number, state="finished", point=point, flops=1e20)
            trials.record(replace(ended, best=best))
    return tmp_path


def test_what_was_recorded_is_read_again(written):
    first = opened(written)
    assert [each.state for each in first.known] == ["finished", "finished", "running"]
    assert first.known[1].best == Evaluation(step=10, value=0.1, loss=0.5)
    assert first.known[1].flops == 1e20
    assert [each.seeds for each in first.known] == [[], [], [1, 2]]
    again = opened(written)
    assert again.known == first.known
    assert again.ask(Sampler("tpe", MIXED, 0)) == first.ask(Sampler("tpe", MIXED, 0))


def test_a_reader_writes_nothing(written):
    before = (written / JOURNAL).read_bytes()
    trials = opened(written)
    trials.ask(Sampler("tpe", MIXED, 0))
    assert (written / JOURNAL).read_bytes() == before
    assert os.listdir(written) == [JOURNAL]


def test_a_change_is_there_whole_or_not_at_all(written):
    """For a verdict successive halving notes the value and the rung."""
    trials = opened(written)
    trials.reason_to_stop(Pruner("asha", ACCURACY), 2, 1, Evaluation(step=90, value=0.0))
    *_, last = (written / JOURNAL).read_bytes().splitlines()
    changes = parse_object(last)["changes"]
    assert {"intermediate_value", "system_attr"} <= set().union(*changes)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_torn_last_line_is_none(written, cut):
    path = written / JOURNAL
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(content[:-cut])
    assert len(opened(written).known) == 3
    assert path.read_bytes() == content[:-cut], "a reader leaves it"
    trials = opened(written)
    trials.record(trials.known[2])
    kept = path.read_bytes().splitlines(keepends=True)
    assert kept[:-1] == lines[:-1]
    assert opened(written).known == trials.known


def edited(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / JOURNAL
        path.write_bytes(b"\n".join([*edit(path.read_bytes().splitlines()), b""]))

    return change


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def edit(lines: list[bytes]) -> list[bytes]:
        assert any(old in line for line in lines)
        return [line.replace(old, new) for line in lines]

    return edited(edit)


def added(*changes: Any) -> Callable[[Path], None]:
    """A line whose check fits, as a stranger can write it."""

    def add(folder: Path) -> None:
        path = folder / JOURNAL
        number = len(path.read_bytes().splitlines()) + 1
        append_line(path, {"line": number, "changes": list(changes)})

    return add


OWN = {"op_code": 8, "worker_id": "x", "trial_id": 2}
PARAM = {"op_code": 5, "worker_id": "x", "trial_id": 3, "param_name": "train.lr"}
NOON = "2026-01-01T12:00:00"
WIDE = distribution_to_json(FloatDistribution(1e-9, 10.0, log=True))
NEW = {"op_code": 4, "worker_id": "x", "study_id": 0, "datetime_start": None}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            replaced(b'"value": 0.1', b'"value": 0.9'),
            r"trials\.jsonl:\d+: damaged: Value",
        ),
        (edited(lambda lines: [*lines[:2], b"", *lines[2:]]), r"trials\.jsonl:3: damaged: "),
        (edited(lambda lines: [b"[" * 10_000]), r"trials\.jsonl:1: damaged: ValueError: nested"),
        (edited(lambda lines: lines[1:]), r"trials\.jsonl:1: damaged: ValueError: was line 2"),
        (added(1), r"trials\.jsonl:\d+: damaged: TypeError"),
        (added("intermediate_value"), r"trials\.jsonl:\d+: damaged: TypeError"),
        (added([]), r"trials\.jsonl: damaged: TypeError"),
        (added({}), r"trials\.jsonl: damaged: KeyError: 'op_code'"),
        (added({"op_code": 77}), r"trials\.jsonl: damaged: AssertionError"),
        (added({**NEW, "datetime_start": "yesterday"}), r"trials\.jsonl: damaged: ValueError"),
        (
            added(NEW, {**PARAM, "param_value_internal": 0, "distribution": '{"name": "Evil"}'}),
            r"trials\.jsonl: damaged: ",
        ),
        (
            added(NEW, {**PARAM, "param_value_internal": 0, "distribution": "[" * 100_000}),
            r"trials\.jsonl: damaged: ",
        ),
        (added({**OWN, "user_attr": {"subquad": 3}}), r"trials\.jsonl: trial 2 of agf: damaged: "),
        (
            added({**OWN, "user_attr": {"subquad": {"state": "won"}}}),
            r"trials\.jsonl: trial 2 of agf: damaged: ValidationError",
        ),
        (
            added({**OWN, "user_attr": {"point": {"mixer": "./evil.py:Evil"}}}),
            r"trials\.jsonl: trial 2 of agf: damaged: ValueError: is at no point of the space",
        ),
        (
            added({**PARAM, "trial_id": 2, "param_value_internal": 7.0, "distribution": WIDE}),
            r"trials\.jsonl: trial 2 of agf: damaged: ValueError: is at no point of the space",
        ),
        (
            added({**OWN, "op_code": 6, "state": 1, "datetime_complete": NOON, "values": None}),
            r"trials\.jsonl: damaged: TypeError",
        ),
        (added({**OWN, "user_attr": {"point": 3}}), r"trials\.jsonl: trial 2 of agf: damaged: "),
        (added({"op_code": 1, "worker_id": "x", "study_id": 0}), ""),
    ],
)
def test_a_damaged_journal_is_told_in_one_line(written, damage, message):
    damage(written)
    if not message:
        assert opened(written).known == []
        return
    with pytest.raises(RunError, match=message) as raised:
        _ = opened(written).known
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_a_study_of_another_goal_is_told(tmp_path):
    create = {"op_code": 0, "worker_id": "x", "study_name": "agf", "directions": [1, 2]}
    append_line(tmp_path / JOURNAL, {"line": 1, "changes": [create]})
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged: .*objectives"):
        opened(tmp_path)


class Loaded:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_nothing_in_it_is_run(written, monkeypatch):
    """A pickle, which Optuna reads of other journals, is text here."""
    monkeypatch.chdir(written)
    code = pickle.dumps(Loaded()).decode("latin1")
    added({**OWN, "system_attr": {"x": code}, "op_code": 9})(written)
    added({**OWN, "user_attr": {code: code}})(written)
    assert len(opened(written).known) == 3
    assert not (written / "executed").exists()


def test_a_link_is_refused(written, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret"
    (written / JOURNAL).rename(elsewhere)
    (written / JOURNAL).symlink_to(elsewhere)
    hold(written)
    with pytest.raises(RunError, match=r"trials\.jsonl: a link, which is refused"):
        opened(written)


@pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_VALUES"])
def test_it_is_bounded(written, monkeypatch, bound):
    monkeypatch.setattr(journal, bound, 100)
    with pytest.raises(RunError, match=r"trials\.jsonl: more than \S+ bytes or \S+ values$"):
        opened(written)


def test_its_changes_are_those_of_optuna(written):
    """Read by Optuna's own storage they make the same trials."""
    known = JournalStorage(Journal(written))
    (study,) = known.get_all_studies()
    states = [each.state.name for each in known.get_all_trials(study._study_id)]
    assert states == ["COMPLETE", "COMPLETE", "RUNNING"]
