"""Pairs of the engine's settings, really trained: killed and resumed runs are those that were
never stopped.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from engine_guard import Guard, Refused, Wrong, empty_state, lose_state
from engine_rows import DIMENSIONS, REASONS, Space, settings_of

from subquad.experiment.schema import Resources, Train

CI_SEED, CI_ROWS = 35, 2


def test_every_setting_is_a_dimension_or_has_a_reason():
    fields = {f"train.{name}" for name in Train.model_fields}
    fields |= {f"resources.{name}" for name in Resources.model_fields}
    varied = settings_of(DIMENSIONS)
    assert varied.isdisjoint(REASONS)
    assert fields - varied == REASONS.keys()


def outcomes(guard: Guard, rows, folder: Path, seed: int) -> tuple[Counter[str], list[str]]:
    """Train rows. How many there were of each outcome, and what was wrong."""
    counts, wrong = Counter[str](), list[str]()
    for number, row in enumerate(rows):
        begun = time.monotonic()
        try:
            guard.test(row, folder / f"row-{number}", seed + number)
            outcome, reason = "equal", ""
        except Refused as error:
            outcome, reason = "refused", str(error)
        except Wrong as error:
            outcome, reason = "wrong", f"{error}"
            wrong.append(f"row {number} {row}: {error}")
        counts[outcome] += 1
        print(
            f"{number} {outcome} {time.monotonic() - begun:.0f} s {reason} {_other(guard, row)}",
            flush=True,
        )
    return counts, wrong


def _other(guard: Guard, row) -> dict[str, str]:
    """What a row does not leave at the first choice."""
    firsts = {name: next(iter(choices)) for name, choices in guard.space.dimensions.items()}
    return {name: choice for name, choice in row.items() if choice != firsts[name]}


def test_rows_of_a_committed_seed(ranks, tmp_path):
    space = Space.quick(tmp_path, CI_SEED)
    counts, wrong = outcomes(Guard(ranks, space), space.drawn(CI_SEED, CI_ROWS), tmp_path, CI_SEED)
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] == 0


@pytest.mark.extended
def test_every_pair_is_trained(ranks, tmp_path, guard_seed, guard_rows):
    space = Space.of(tmp_path, guard_seed, mixers=8)
    rows, stats = space.rows(guard_seed)
    print({name: value for name, value in stats.items() if isinstance(value, int | float)})
    assert space.uncovered(rows) == set()
    rows = rows[:guard_rows]
    counts, wrong = outcomes(Guard(ranks, space), rows, tmp_path, guard_seed)
    print(f"seed {guard_seed}: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] <= 0.1 * len(rows)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose_state, "ended with 0"),
        pytest.param(empty_state, "differ|other checkpoints", marks=pytest.mark.extended),
    ],
)
def test_a_planted_fault_is_found(ranks, tmp_path, plant, found):
    space = Space.quick(tmp_path, CI_SEED)
    row = {name: next(iter(choices)) for name, choices in space.dimensions.items()}
    row |= {"ranks": "2 fsdp2", "kill": "after a plain save", "plain saves": "4", "model": "tokens"}
    with pytest.raises(Wrong, match=found):
        Guard(ranks, space, plant).test(row, tmp_path / "planted", 1)
