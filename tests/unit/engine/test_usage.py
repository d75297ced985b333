"""Seconds of a step and peak memory: which steps count, and which process."""

from __future__ import annotations

import pytest

from subquad.engine import log
from subquad.engine.group import Group
from subquad.engine.log import WARM_UP, Usage


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told to go on."""
    now = [0.0]
    monkeypatch.setattr(log.time, "perf_counter", lambda: now[0])

    def go_on(seconds: float) -> None:
        now[0] += seconds

    return go_on


def make_step(usage: Usage, clock, seconds: float, after: float = 0.0, weight: float = 1.0) -> None:
    usage.step_starts()
    clock(seconds)
    usage.steps_ended([weight])
    clock(after)


def test_the_first_steps_and_what_lies_between_steps_do_not_count(clock):
    usage = Usage(Group())
    for _ in range(WARM_UP):
        make_step(usage, clock, 64.0)
    for seconds in (1.0, 2.0, 4.0):
        make_step(usage, clock, seconds, after=512.0)
    assert usage.to_json()["seconds_per_step"] == 2.0


def test_tokens_per_second_are_of_the_same_steps_where_weights_are_tokens(clock):
    usage = Usage(Group())
    for number in range(WARM_UP + 3):
        make_step(usage, clock, 2.0, weight=100.0 * number)
    assert "tokens_per_second" not in usage.to_json()
    assert usage.to_json(tokens=True)["tokens_per_second"] == 50.0 * (WARM_UP + 1)
    assert "tokens_per_second" not in Usage(Group()).to_json(tokens=True)


def test_of_a_short_attempt_the_last_step_counts(clock):
    usage = Usage(Group())
    for seconds in (8.0, 2.0):
        make_step(usage, clock, seconds)
    assert usage.to_json()["seconds_per_step"] == 2.0


def test_an_attempt_without_steps_has_none():
    assert Usage(Group()).to_json()["seconds_per_step"] is None


def test_a_long_attempt_keeps_its_newest_steps(clock, monkeypatch):
    monkeypatch.setattr(log, "_NEWEST", 20)
    usage = Usage(Group())
    for number in range(100):
        make_step(usage, clock, 1.0 if number < 80 else 3.0)
    assert usage.to_json()["seconds_per_step"] == 3.0


def test_memory_is_the_largest_over_the_ranks_in_bytes():
    class Ranks(Group):
        def gather(self, value):
            return [value, value + 5, value + 3]

    alone = Usage(Group()).to_json()["peak_memory_bytes"]
    assert 50e6 < alone < 1e12  # a process that has torch in it
    assert Usage(Ranks()).to_json()["peak_memory_bytes"] >= alone + 5
