"""What a killed driver costs a search: `pytest -m extended tests/integration/test_tune_kills.py`
prints the figures.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient
from result_file import read_result
from searches import last_step, only_search, start, trained, trial_folders
from waiting import until

from subquad.engine import checkpoint
from subquad.record.layout import runs_below
from subquad.record.metrics import read_attempts, read_records
from subquad.record.names import ATTEMPTS, CHECKPOINTS, RESULT
from subquad.tracking.address import DATABASE, sqlite_uri

EVERY = 20
"""Steps between checkpoints."""

STEPS = 320

LONG = f"""
name: long
protocol: honest
dataset:
  name: recall
  params: {{num_pairs: 32, num_keys: 32, num_values: 8,
    train_size: 4096, validation_size: 256, test_size: 256}}
task: classification
backbone:
  name: encoder
  params: {{num_layers: 2, dim: 64, num_heads: 4, ffn_dim: 128, dropout: 0.1, head: last}}
mixer: {{name: agf, params: {{order: 3}}}}
train:
  {{steps: {STEPS}, epochs: null, batch_size: 64, lr: 1e-3, clip_norm: 1.0, log_every: 1,
  eval_every_epochs: null, eval_every_steps: 80, checkpoint_every_steps: {EVERY}}}
"""
SPACE = (
    "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, backbone.params.dropout: {uniform: [0.0, 0.3]}}"
)
SEARCH = ["--sampler", "tpe", "--budget", "8-trials", "final.seeds=1", "--local", "--jobs", "1"]

KILLS = ((0, 150), (1, 302), (3, 1), (5, 95), (5, 239), (7, 270))
"""Trial and step from which on the driver is killed: early, late, twice in one trial, around
evaluations.
"""


@dataclass(frozen=True)
class Used:
    """Seconds of an invocation."""

    wall: float
    processor: float

    def __add__(self, other: Used) -> Used:
        return Used(self.wall + other.wall, self.processor + other.processor)


class Invocation:
    """The command line in a process of its own, and what it used."""

    def __init__(self, arguments: list[str], cwd: Path):
        self.begun, self._before = time.time(), _children()
        self.process = start(arguments, cwd)

    def end(self, *, kill: bool) -> Used:
        if kill:
            self.process.kill()
        out, errors = self.process.communicate()
        assert kill or self.process.returncode == 0, out + errors
        return Used(time.time() - self.begun, _children() - self._before)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Kill:
    """One kill, as the folder had it right after.

    Attributes:
        trial: that ran.
        attempt: which start of it was killed.
        reached: newest step on disk.
        saved: step of the newest good checkpoint, 0 before there is one.
        ended: what was there of trials that had ended.
    """

    trial: Path
    attempt: int
    reached: int
    saved: int
    ended: dict[Path, tuple[bytes, bytes]]

    @property
    def repeated(self) -> int:
        return self.reached - self.saved


def seen(search: Path, trial: Path) -> Kill:
    newest = checkpoint.newest_good(trial / CHECKPOINTS, lambda text: None)
    saved = newest.state["progress"]["step"] if newest else 0
    return Kill(trial, len(read_attempts(trial)), last_step(trial), saved, ended_trials(search))


def ended_trials(search: Path) -> dict[Path, tuple[bytes, bytes]]:
    done = [folder for folder in trial_folders(search) if read_result(folder) is not None]
    return {
        trial: ((trial / RESULT).read_bytes(), (trial / ATTEMPTS).read_bytes()) for trial in done
    }


def finals(search: Path) -> list[dict]:
    return [(read_result(run) or {})["test"] for run in runs_below(search / "final")]


def first_step_after(kill: Kill) -> float:
    """Time of the day when the start after a kill had trained a step."""
    return next(
        record.time
        for record in read_records(kill.trial)
        if record.attempt == kill.attempt + 1 and record.kind == "train"
    )


def tracked(root: Path) -> list[str]:
    """States of the runs below the search's in MLflow, the final study's aside."""
    client: MlflowClient = MlflowClient(sqlite_uri(root / DATABASE))
    runs = client.search_runs(
        [experiment.experiment_id for experiment in client.search_experiments()]
    )
    (parent,) = (run for run in runs if (run.info.run_name or "").startswith("long-search/"))
    below = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    return sorted(path.info.status for path in below if path.info.run_name != "final")


@pytest.mark.extended
def test_six_kills_lose_no_trial_and_repeat_no_more_than_was_not_saved(
    tmp_path, nothing_left, capsys
):
    (tmp_path / "long.yaml").write_text(LONG)
    (tmp_path / "space.yaml").write_text(SPACE)
    begin = ["tune", "long.yaml", "--space", "./space.yaml", *SEARCH]
    whole = Invocation([*begin, "--root", str(tmp_path / "whole")], tmp_path).end(kill=False)
    expected = only_search(tmp_path / "whole")
    seconds = [(read_result(folder) or {})["seconds"] for folder in trial_folders(expected)]

    used, kills, delays = Used(0.0, 0.0), [], []
    run = Invocation([*begin, "--root", str(tmp_path / "killed")], tmp_path)
    for number, step in KILLS:
        until(lambda: list(tmp_path.glob("killed/runs/*-search/*/search.yaml")), run.process)
        search = only_search(tmp_path / "killed")
        trial = search / "trials" / "long" / f"{number:05d}"
        until(lambda trial=trial, step=step: last_step(trial) >= step, run.process)
        if kills:
            delays.append(first_step_after(kills[-1]) - run.begun)
        used += run.end(kill=True)
        kills.append(seen(search, trial))
        run = Invocation(["resume", str(search), "--local", "--jobs", "1"], tmp_path)
    used += run.end(kill=False)
    delays.append(first_step_after(kills[-1]) - run.begun)

    search = only_search(tmp_path / "killed")
    assert trained(search) == trained(expected)
    assert [folder.name for folder in trial_folders(search)] == [
        f"{number:05d}" for number in range(8)
    ]
    assert finals(search) == finals(expected)
    for kill in kills:
        assert read_attempts(kill.trial)[kill.attempt].from_step == kill.saved
        assert 0 <= kill.repeated <= EVERY
        assert kill.ended.items() <= ended_trials(search).items()
    assert tracked(tmp_path / "killed") == tracked(tmp_path / "whole") == ["FINISHED"] * 8

    with capsys.disabled():
        tell(whole, used, kills, delays, seconds)


def tell(
    whole: Used, used: Used, kills: list[Kill], delays: list[float], seconds: list[float]
) -> None:
    """Print what the kills cost. Wall time is only comparable where nothing else runs, processor
    time is everywhere.
    """
    repeated = sum(kill.repeated for kill in kills)
    share = repeated * sum(seconds) / (len(seconds) * STEPS)
    print(
        f"\nload averages {os.getloadavg()}; trials took {min(seconds):.1f} to "
        f"{max(seconds):.1f} s of training"
    )
    print(f"unkilled: {whole.wall:.1f} s wall, {whole.processor:.1f} s of processor time")
    print(
        f"killed {len(kills)} times: {used.wall:.1f} s wall, {used.processor:.1f} "
        "s of processor time"
    )
    print(
        "steps on disk that were trained again: "
        f"{[kill.repeated for kill in kills]}, about {share:.1f} s"
    )
    print(
        f"a kill, repeated steps aside: {(used.wall - whole.wall - share) / len(kills):.1f} s wall"
    )
    print(
        "a kill, repeated steps included: "
        f"{(used.processor - whole.processor) / len(kills):.1f} s of processor time"
    )
    print(
        "from `--resume` to its first trained step: "
        f"{', '.join(f'{delay:.1f}' for delay in delays)} s wall"
    )
