"""A grid search as a table of curves, and searches replayed on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.cli.main import main
from subquad.errors import RunError
from subquad.runs import read_json, write_json
from subquad.search.recorded import recorded
from subquad.search.replay import replay
from subquad.search.schedulers import SCHEDULERS, scheduler
from subquad.search.search import read_search
from subquad.search.searchers import SEARCHERS, searcher

pytestmark = pytest.mark.ci

SPACE = """
dims:
  train.lr: {choice: [1e-4, 1e-3, 1e-2]}
  mixer.params.order: {choice: [2, 4]}
"""
LABEL = "small"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every point of a small grid, trained to its end."""
    root = tmp_path_factory.mktemp("grid")
    (root / "small.yaml").write_text(SMALL)
    (root / "space.yaml").write_text(SPACE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        options = ["--searcher", "grid", "--budget", "6-trials", "--final-seeds", "1", "--local"]
        assert main(["tune", "small.yaml", "train.epochs=2", "--space", "./space.yaml", *options]) == 0
    (folder,) = (root / "runs" / "small-search").iterdir()
    return folder


@pytest.fixture
def copied(searched: Path, tmp_path: Path) -> Path:
    """The search, to be damaged."""
    return Path(shutil.copytree(searched, tmp_path / searched.name))


def trials_in(search: Path) -> list[Path]:
    return sorted((search / "trials" / LABEL).iterdir())


def stored(folder: Path, name: str) -> dict:
    data = read_json(folder / name)
    assert data is not None
    return data


def test_the_table_has_what_the_trials_have(searched):
    table = recorded(read_search(searched), searched, LABEL)
    best = [stored(folder, "result.json")["best"]["metrics"]["accuracy"] for folder in trials_in(searched)]
    assert len(table.curves) == len(best) == 6
    assert sorted(table.values) == sorted(best)
    assert table.total_steps == 26


def test_a_replay_of_the_search_itself_is_the_search(searched):
    search = read_search(searched)
    table = recorded(search, searched, LABEL)
    again = replay(table, searcher("grid", table.space, table.goal, 0), scheduler("none", table.goal), table.steps)
    assert [one.point for one in again] == [stored(folder, "trial.json")["point"] for folder in trials_in(searched)]
    assert table.regret(again) == 0


def test_a_point_that_was_refused_is_infeasible_there_too(copied):
    first = trials_in(copied)[0]
    write_json(first / "trial.json", stored(first, "trial.json") | {"state": "infeasible", "reason": "no"})
    table = recorded(read_search(copied), copied, LABEL)
    again = replay(table, searcher("grid", table.space, table.goal, 0), scheduler("none", table.goal), table.steps)
    assert [one.state for one in again] == ["infeasible"] + 5 * ["finished"]


def test_an_unfinished_grid_is_refused(copied):
    shutil.rmtree(trials_in(copied)[2])
    with pytest.raises(RunError, match="small: 5 of 6 points were trained to their end; a replay needs all"):
        recorded(read_search(copied), copied, LABEL)


def test_the_command_tells_what_each_pair_would_have_found(searched, capsys):
    assert main(["bench", "search", str(searched), "--seeds", "12", "--share", "0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["points"], told["total_steps"], told["budget"]) == (6, 26, 78)
    pairs = [(one["searcher"], one["scheduler"]) for one in told["rows"]]
    assert len(set(pairs)) == len(SEARCHERS) * len(SCHEDULERS)
    for one in told["rows"]:
        middle, low, high = one["median"]
        assert 0 <= low <= middle <= high <= told["best"] - told["least"]
    assert next(one for one in told["rows"] if pairs[0] == (one["searcher"], one["scheduler"]))["gap"] == [0, 0, 0]

    assert main(["bench", "search", str(searched), "--seeds", "12", "--share", "1"]) == 0
    shown = capsys.readouterr().out
    assert "small: 6 points of 26 steps; accuracy best" in shown
    assert "random    none       0.0000         [0.0000, 0.0000]" in shown


def test_what_is_no_recorded_grid_is_refused(searched, tmp_path, capsys):
    assert main(["bench", "search", str(tmp_path)]) == 2
    assert "not a search (no search.yaml)" in capsys.readouterr().err
    assert main(["bench", "search", str(searched), "--subject", "agf"]) == 2
    assert "no subject 'agf' with --subject: small" in capsys.readouterr().err
