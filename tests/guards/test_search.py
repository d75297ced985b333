"""Guard: searches drawn from all pairs of what `subquad tune` takes do what they are told, by
their files.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from drawn_searches import DIMENSIONS, EXPLAINED, LEFT_OUT, drawn_rows, fits, run_row
from planned_searches import TRIALS, mixers, planned, spaces_of, tried, ways_of, without_effect

from subquad.cli.tune import tune_command
from subquad.preparation.costs import StudyCosts
from subquad.search.settings import KEYS, SamplerName

SEED = 35
"""Of the part that CI runs."""
PLAIN = {
    **{name: values[0] for name, values in DIMENSIONS.items()},
    "target": "rows reversed",
    "sampler": "random",
}


pytestmark = pytest.mark.usefixtures("without_pictures")


def judged(row: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> list[str]:
    """What is wrong with a row's search; a refusal by measured times is explained."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    found = run_row(row, folder)
    printed = capsys.readouterr()
    if found == ["refused"]:
        return (
            [] if any(words in printed.err for words in EXPLAINED) else [f"refused: {printed.err}"]
        )
    return found


def judge_all(
    rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Run rows, and fail with what is wrong with each."""
    begun, wrong = time.monotonic(), list[str]()
    for number, row in enumerate(rows):
        try:
            faults = judged(row, tmp_path / str(number), monkeypatch, capsys)
        except Exception as error:
            faults = [f"{type(error).__name__}: {error}"]
        wrong += [f"{row}: {fault}" for fault in faults]
        with capsys.disabled():
            print(
                f"{number + 1} of {len(rows)} searches, {time.monotonic() - begun:.0f} s",
                *faults,
                flush=True,
            )
    assert not wrong, "\n".join(wrong)


def test_every_option_is_a_dimension_or_left_out_with_a_reason():
    options = {option.name for option in tune_command.params} | set(KEYS.values())
    assert options == DIMENSIONS.keys() - {"parameters", "resume"} | LEFT_OUT.keys()
    assert not DIMENSIONS.keys() & LEFT_OUT.keys()


def test_rows_cover_every_pair_that_may_stand_together():
    def pairs(rows: Iterable[dict[str, Any]]) -> set[tuple]:
        return {pair for row in rows for pair in itertools.combinations(sorted(row.items()), 2)}

    draw = random.Random(SEED)
    drawn = (
        {name: draw.choice(values) for name, values in DIMENSIONS.items()} for _ in range(20_000)
    )
    rows = drawn_rows(SEED)
    assert all(map(fits, rows))
    assert pairs(filter(fits, drawn)) <= pairs(rows)


def test_a_few_drawn_searches(tmp_path, monkeypatch, capsys):
    rows = [row for row in drawn_rows(SEED) if row["budget"] != "seconds"]
    killed = [row for row in rows if row["resume"] == "killed"][:1]
    others = [row for row in rows if "killed" not in row["resume"]][:4]
    judge_all([*killed, *others], tmp_path, monkeypatch, capsys)


@pytest.mark.extended
def test_drawn_searches(guard_seed, guard_rows, tmp_path, monkeypatch, capsys):
    judge_all(drawn_rows(guard_seed, guard_rows), tmp_path, monkeypatch, capsys)


def planned_faults(mixer: str, ways: Mapping[str, dict[str, Any]], folder: Path) -> Iterator[str]:
    """What is wrong with searches of a mixer, in some ways that it works, as far as planning
    tells.
    """
    costs, looked_at = StudyCosts(), set[str]()
    for (way, params), space, sampler in itertools.product(
        ways.items(), spaces_of(mixer), get_args(SamplerName)
    ):
        search = planned(mixer, params, space, sampler, folder)
        if search is None:
            continue
        where, size = f"{mixer} ({way}), {space}, {sampler}", search.candidates[0].space.size()
        points, reasons = tried(search, costs)
        if len(points) < min(TRIALS, size or TRIALS) - len(reasons) * (size is not None):
            yield f"{where}: {len(points)} points of {size} can be tried"
        if len(points) < 2:
            yield f"{where}: hopeless, {len(points)} points: {reasons[:1]}"
        if len(reasons) > 0.1 * (len(points) + len(reasons)) + 1:
            yield (
                f"{where}: {len(reasons)} of {len(points) + len(reasons)} points "
                f"cannot run: {reasons[0]}"
            )
        if f"{way} {space}" not in looked_at:
            looked_at.add(f"{way} {space}")
            for path in without_effect(search, points, costs):
                yield f"{where}: {path} has no effect"


@pytest.mark.parametrize("mixer", ["agf"])
def test_dimensions_of_a_mixer_have_an_effect(mixer, tmp_path):
    assert list(planned_faults(mixer, {"default": {}}, tmp_path)) == []


@pytest.mark.extended
@pytest.mark.parametrize("mixer", mixers())
def test_every_dimension_has_an_effect_and_no_candidate_is_hopeless(mixer, tmp_path):
    assert list(planned_faults(mixer, ways_of(mixer), tmp_path)) == []
