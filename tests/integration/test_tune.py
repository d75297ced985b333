"""`subquad tune` from end to end: trials, winners, the final study; killed at any moment; the
same compute for all.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from command import Command, cli
from result_file import read_result
from small_run import SMALL
from waiting import until

from subquad.cli.main import main
from subquad.experiment import load_study
from subquad.record.files import read_json
from subquad.record.layout import runs_below
from subquad.record.metrics import read_records
from subquad.tracking.publisher import Publisher, open_publisher

MIXERS = "matrix: {mixer: [agf, softmax], seed: [3, 4]}\n"
SPACE = """
dims:
  train.lr: {loguniform: [1e-4, 1e-2]}
  train.batch_size: {choice: [8, 16]}
"""


@pytest.fixture
def study(pictured: Path, without_pictures: None) -> Path:
    return pictured


@pytest.fixture
def pictured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two mixers on the recall control, and a space for both."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(SMALL + MIXERS)
    (tmp_path / "space.yaml").write_text(SPACE)
    return path


def tune(*more: str) -> list[str]:
    seeds = [] if any(word.startswith("final.seeds") for word in more) else ["final.seeds=2"]
    return [
        "tune",
        "small.yaml",
        "--space",
        "./space.yaml",
        "--local",
        "--jobs",
        "1",
        *seeds,
        *more,
    ]


def only_search(root: Path) -> Path:
    (folder,) = (root / "runs" / "small-search").iterdir()
    return folder


def trials(search: Path) -> dict[str, dict]:
    """What each trial is and came to, by candidate and number: everything that a clock has no
    part in.
    """
    found = {}
    for path in sorted(search.glob("trials/*/*/trial.json")):
        result = read_result(path.parent) or {}
        evals = [
            (record.step, dict(record.metrics))
            for record in read_records(path.parent)
            if record.kind == "eval"
        ]
        found[f"{path.parent.parent.name}/{path.parent.name}"] = {
            "trial": read_json(path),
            "status": result.get("status"),
            "best": result.get("best"),
            "evaluations": evals,
            "weights": (path.parent / "checkpoints").exists(),
        }
    return found


def finals(search: Path) -> dict[str, dict]:
    return {run.name: (read_result(run) or {})["test"] for run in runs_below(search / "final")}


def test_a_search_ends_with_the_winners_on_the_test_split(study, tmp_path, capsys):
    assert main(tune("--budget", "2-trials", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    search = only_search(tmp_path)
    assert document["folder"] == str(search)
    assert [candidate["label"] for candidate in document["candidates"]] == ["agf", "softmax"]
    for candidate in document["candidates"]:
        assert candidate["trials"] == {
            "running": 0, "finished": 2, "pruned": 0, "failed": 0, "infeasible": 0
        }  # fmt: skip
        assert candidate["dimensions"] == 2
        assert candidate["steps"] > 0 < candidate["flops"]
        values = [max(value for _, value in curve) for curve in curves(search, candidate["label"])]
        assert candidate["best"]["value"] == max(values)
        best = load_study(str(search / "best" / f"{candidate['label']}.yaml"))
        assert [cell.experiment.train.seed for cell in best.runs] == [0, 1]
        assert best.runs[0].experiment.train.lr == candidate["best"]["point"]["train.lr"]
    assert set(finals(search)) == {"agf-seed0", "agf-seed1", "softmax-seed0", "softmax-seed1"}
    ledger = [
        json.loads(line)
        for line in (tmp_path / "runs" / "test-openings.jsonl").read_text().splitlines()
    ]
    assert len(ledger) == 4
    assert all(Path(trial["run"]).parent == search / "final" / "cells" for trial in ledger)


@pytest.mark.parametrize("rows", ["agf, {name: agf, label: long}", "{name: agf, label: long}, agf"])
def test_verify_names_a_final_run_that_is_not_its_candidates_winner(study, tmp_path, capsys, rows):
    assert main(tune(f"matrix.mixer=[{rows}]", "--budget", "2-trials", "final.seeds=1")) == 0
    search = only_search(tmp_path)
    assert main(["verify", str(search)]) == 0
    best = search / "best" / "agf.yaml"
    best.write_text(best.read_text().replace("lr: ", "lr: 1"))
    capsys.readouterr()
    for folder in (search, search / "final"):
        assert main(["verify", str(folder)]) == 1
        (wrong,) = [line for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
        assert wrong.endswith(
            "agf-seed0: WRONG: trained with other settings than the winner of agf, best/agf.yaml"
        )
    best.unlink()
    assert main(["verify", str(search)]) == 1
    assert (
        "WRONG: best/agf.yaml is missing: which trial won is not known" in capsys.readouterr().out
    )


def curves(search: Path, candidate: str) -> list[list[tuple[int, float]]]:
    return [
        [
            (record.step, record.metrics["accuracy"])
            for record in read_records(run)
            if record.kind == "eval"
        ]
        for run in sorted((search / "trials" / candidate).iterdir())
    ]


def test_candidates_take_turns_and_get_the_same_points_of_what_they_share(study, tmp_path, capsys):
    assert main(tune("--budget", "2-trials", "final.seeds=1")) == 0
    lines = [
        line.split(":")[0]
        for line in capsys.readouterr().out.splitlines()
        if "validation accuracy" in line
    ]
    assert lines[:4] == ["agf 0", "softmax 0", "agf 1", "softmax 1"]
    found = trials(only_search(tmp_path))
    assert found["agf/00001"]["trial"]["point"] == found["softmax/00001"]["trial"]["point"]


def test_the_end_says_where_everything_is(pictured, tmp_path, capsys):
    assert main(tune("--budget", "2-trials", "final.seeds=1", "--pruner", "median")) == 0
    lines = capsys.readouterr().out.splitlines()
    search = only_search(tmp_path).relative_to(tmp_path)
    assert lines[0] == (
        "searching ./space.yaml with random and median, at most 2 trials for each "
        f"of 2 candidates, in {search}"
    )
    assert lines[1] == "trials have the study's first seed, 3: agf, softmax"
    assert f"search  {search} (tables and pictures: subquad report {search})" in lines
    for label in ("agf", "softmax"):
        path = search / "best" / f"{label}.yaml"
        assert f"best    {path} (runs as it is: subquad train {path})" in lines
    assert any(
        line.startswith("plots   ") and line.endswith(f" pictures in {search / 'plots'}")
        for line in lines
    )
    assert main(["report", str(search)]) == 0
    assert not any(line.startswith("unfinished") for line in capsys.readouterr().out.splitlines())


def test_matched_flops_are_consumed_alike(study, capsys):
    assert main(tune("--budget", "3-trials", "trial.match=flops", "final.seeds=1", "--json")) == 0
    agf, softmax = json.loads(capsys.readouterr().out)["candidates"]
    assert agf["steps"] != softmax["steps"]
    assert agf["flops"] == pytest.approx(softmax["flops"], rel=0.05)


def test_a_budget_of_flops_is_used_and_not_exceeded(study, capsys):
    assert main(tune("--budget", "1.5e8flops", "final.seeds=1", "--json")) == 0
    for candidate in json.loads(capsys.readouterr().out)["candidates"]:
        assert 0.5e8 < candidate["flops"] <= 1.5e8
        assert candidate["over"] == "budget used"


def test_matched_parameters(study, tmp_path):
    (tmp_path / "space.yaml").write_text(
        "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, mixer.params.order: {int: [2, 9]}}"
    )
    settings = [
        "matrix.mixer=[agf, {name: agf, params: {order: 9}, label: long}]",
        "backbone.params.dim=8",
    ]
    assert main(tune(*settings, "--budget", "1-trial", "match=parameters", "final.seeds=1")) == 0
    counts = [
        read_result(run)["parameters"]
        for run in sorted(only_search(tmp_path).glob("trials/*/00000"))
    ]
    assert counts[0] == pytest.approx(counts[1], rel=0.02)


def test_a_failed_trial_is_marked_and_the_search_goes_on(study, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {choice: [1e30, 1e-3]}}")
    code = main(
        tune(
            "--sampler",
            "grid",
            "--budget",
            "2-trials",
            "matrix.mixer=[softmax]",
            "train.clip_norm=null",
        )
    )
    assert code == 0, capsys.readouterr()
    states = {
        trial["trial"]["point"]["train.lr"]: trial["status"]
        for trial in trials(only_search(tmp_path)).values()
    }
    assert states == {1e30: "failed", 1e-3: "finished"}
    assert "non-finite steps in a row" in capsys.readouterr().out


def test_where_all_fail_the_reasons_are_told(study, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {choice: [1e30, 1e31]}}")
    assert main(tune("--budget", "2-trials", "matrix.mixer=[softmax]", "train.clip_norm=null")) == 1
    found = capsys.readouterr().err
    assert found.startswith(
        "subquad: no trial finished: softmax: trial 0 failed: 3 non-finite steps in a row"
    )
    assert not (only_search(tmp_path) / "final").exists()


def test_an_infeasible_point_costs_nothing(study, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(
        "dims: {train.lr: {choice: [1e-3, 1e-2]}, backbone.params.num_heads: {choice: [2, 3]}}"
    )
    more = [
        "--sampler",
        "grid",
        "--budget",
        "3-trials",
        "matrix.mixer=[softmax]",
        "final.seeds=1",
        "--json",
    ]
    assert main(tune(*more)) == 0
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    assert (candidate["trials"]["finished"], candidate["trials"]["infeasible"]) == (2, 2)
    assert "dim 16 is not divisible by num_heads 3" in candidate["reasons"][0]
    assert candidate["over"] == "no point left to try"


def test_the_scheduler_ends_trials_by_the_others_curves(study, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {choice: [3e-3, 1e-9]}}")
    settings = [
        "matrix.mixer=[softmax]",
        "train.eval_every_epochs=null",
        "train.eval_every_steps=4",
    ]
    more = [
        "--sampler",
        "grid",
        "--pruner",
        "asha",
        "pruner.reduction_factor=2",
        "final.seeds=1",
        "sampler.seed=1",
    ]
    assert main(tune(*settings, *more)) == 0, capsys.readouterr()
    found = trials(only_search(tmp_path))
    assert [trial["status"] for trial in found.values()] == ["finished", "pruned"]
    result = read_result(only_search(tmp_path) / "trials" / "softmax" / "00001")
    assert "asha: accuracy" in result["reason"]
    assert result["test"] is None


def run_killed(number: int, arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return cli([str(number), *arguments], cwd, check=None, seconds=1800, function="killed:main")


def kill_and_resume(tmp_path: Path, numbers: list[int], whole: Path, *settings: str) -> None:
    """Kill a search before some of its file writes, resume it once more, and compare it with one
    that was not.
    """
    place = tmp_path / f"killed-{'-'.join(map(str, numbers))}"
    done = run_killed(numbers[0], tune(*settings, "--root", str(place)), tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    search = only_search(place)
    resume = ["resume", str(search), "--local", "--jobs", "1"]
    for number in numbers[1:]:
        assert run_killed(number, resume, tmp_path).returncode == -signal.SIGKILL
    cli(resume, tmp_path, seconds=1800)
    assert trials(search) == trials(whole)
    assert finals(search) == finals(whole)
    for name in ("best/agf.yaml", "best/softmax.yaml", "final/study.yaml"):
        assert (search / name).read_text() == (whole / name).read_text()
    assert summary(search) == summary(whole)


def summary(search: Path) -> dict:
    found = read_json(search / "search.json") or {}
    same = [{**candidate, "seconds": 0} for candidate in found["candidates"]]
    return {**found, "folder": "", "check": "", "files": sorted(found["files"]), "candidates": same}


SETTINGS = ("--budget", "3-trials", "--pruner", "median", "final.seeds=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A search that nobody killed."""
    place = tmp_path_factory.mktemp("whole")
    (place / "small.yaml").write_text(SMALL + MIXERS)
    (place / "space.yaml").write_text(SPACE)
    cli(tune(*SETTINGS), place, seconds=1800)
    return only_search(place)


def test_a_search_that_was_killed_goes_on_as_if_it_had_not_been(study, whole, tmp_path):
    kill_and_resume(tmp_path, [30, 20], whole, *SETTINGS)


@pytest.mark.extended
@pytest.mark.parametrize(
    "numbers", [[number] for number in range(2, 130, 4)] + [[10, 10, 10, 10, 10, 10]]
)
def test_it_may_be_killed_before_any_write(study, whole, tmp_path, numbers):
    kill_and_resume(tmp_path, numbers, whole, *SETTINGS)


def test_a_trial_that_takes_its_driver_with_it_each_time_has_failed(study, tmp_path):
    arguments = tune("--budget", "2-trials", "matrix.mixer=[softmax]", "final.seeds=1")
    assert run_killed(12, arguments, tmp_path).returncode == -signal.SIGKILL
    search = only_search(tmp_path)
    path = search / "trials" / "softmax" / "00000" / "attempts.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[-1] * 10)
    output = cli(["resume", str(search), "--local", "--jobs", "1"], tmp_path).stdout
    assert "10 drivers in a row ended while it trained from step 0" in output
    assert [trial["status"] for trial in trials(search).values()] == ["failed", "finished"]


def test_a_signal_saves_and_says_how_to_go_on(study, tmp_path):
    with Command(tune("train.epochs=5000", "--root", str(tmp_path)), tmp_path) as process:
        begun = "runs/small-search/*/trials/agf/00000/metrics.jsonl"
        until(lambda: list(tmp_path.glob(begun)), process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 143
    assert "stopped by SIGTERM; go on with: subquad resume runs/small-search/" in errors
    assert not (only_search(tmp_path) / "final").exists()


def test_dry_run_writes_nothing(study, tmp_path, capsys):
    before = sorted(tmp_path.iterdir())
    assert main(tune("--dry-run", "--json", "--budget", "7-trials")) == 0
    document = json.loads(capsys.readouterr().out)
    assert sorted(tmp_path.iterdir()) == before
    assert document["trials"] == 14
    assert document["final_runs"] == 4
    assert document["gpu_hours"] == 0
    for candidate in document["candidates"]:
        assert (candidate["dimensions"], candidate["grid"], len(candidate["points"])) == (
            2,
            None,
            5,
        )
        assert candidate["parameters"] > 0 < candidate["flops"]
        assert candidate["seconds"] == pytest.approx(9 * candidate["trial_seconds"])
        assert candidate["trial_seconds"] > 0 < candidate["timing"]["evaluation"]
        assert (candidate["infeasible"], candidate["drawn"]) == (0, 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampler", "bayes"], "--sampler: got 'bayes', must be one of random, grid, tpe, gp"),
        (
            ["--pruner", "ahsa"],
            "--pruner: got 'ahsa', must be one of none, median, asha; did you mean 'asha'?",
        ),
        (
            ["--pruner", "asha", "pruner.reduction_factor=1"],
            "pruner.reduction_factor: got 1, must be a whole number",
        ),
        (["--pruner", "asha", "pruner.eta=4"], "pruner.eta: unknown key"),
        (["--space", "optimiser"], "unknown space 'optimiser'; did you mean 'optimizer'?"),
        (
            ["protocol=paper"],
            "protocol: got 'paper', which selects on the test split; a search needs "
            "protocol: honest",
        ),
        (["protocol=fixed"], "protocol: got 'fixed', which has no validation split to select on"),
        (["--budget", "0-trials"], "--budget: got '0-trials', which is too small for one trial"),
        (
            ["--budget", "1e5flops"],
            "--budget 1e5flops: too small for one trial of agf, which takes about 7e+07",
        ),
        (
            ["--budget", "0.001s"],
            "--budget 0.001s: too small for one trial of agf, which takes about",
        ),
        (
            ["--budget", "20"],
            "--budget: got '20', must be such as 20-trials, 2h, 30m, 90s or 1e15flops",
        ),
        (["--sampler", "grid"], "./space.yaml:3: train.lr: loguniform has no grid"),
        (["final.seeds=two"], "final.seeds: got 'two', must be a whole number"),
        (["sampler.sed=1"], "sampler.sed: unknown setting of a search; there is sampler.seed"),
        (["final.seeds=0"], "final.seeds: got 0, must be >= 1"),
        (
            ["trial.match=flop"],
            "trial.match: got 'flop', must be one of none, flops; did you mean 'flops'?",
        ),
        (
            ["match=parameters", "--space", "wide.yaml"],
            "ffn_dim: cannot be searched with match: parameters",
        ),
        (
            ["trial.match=flops", "--space", "long.yaml"],
            "train.epochs: cannot be searched with trial.match=flops",
        ),
        (
            ["matrix.train.lr=[0.1, 0.2]"],
            "train.lr: cannot be searched, as train.lr is an axis of the study",
        ),
        (["--space", "agf", "matrix.mixer=[softmax]"], "space agf:4: is for mixer 'agf'"),
        (
            ["--space", "agf", "matrix.mixer=[softmax, identity]"],
            "nothing of it can be searched in any run",
        ),
        (["--pruner", "asha", "train.eval_every_epochs=null"], "never sees an evaluation before"),
        (
            ["--pruner", "asha", "train.eval_every_epochs=3"],
            "as agf is evaluated every 39 steps and has 39; lower",
        ),
        (
            ["--space", "heads.yaml"],
            "space heads.yaml: all 2 points of agf are infeasible, such as: ",
        ),
        (["--pruner", "asha", "--cost", "flops"], "asha looks at accuracy alone"),
        (["dataset.params.num_pairs=-1"], "dataset.params.num_pairs"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    study, tmp_path, capsys, arguments, message
):
    (tmp_path / "wide.yaml").write_text("dims: {backbone.params.ffn_dim: {int: [8, 64]}}")
    (tmp_path / "heads.yaml").write_text("dims: {backbone.params.num_heads: {choice: [3, 5]}}")
    (tmp_path / "long.yaml").write_text("dims: {train.epochs: {int: [1, 5]}}")
    assert main(tune(*arguments)) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_rule_about_seeds_is_refused(study, capsys):
    study.write_text(SMALL + MIXERS.replace("4]", "{value: 4, set: {train.lr: 0.1}}]"))
    assert main(tune()) == 2
    assert "differs from that of another seed in more than the seed" in capsys.readouterr().err


def test_resume_refuses_other_settings(study, tmp_path, capsys):
    assert main(tune("--budget", "1-trial", "final.seeds=1")) == 0
    search = str(only_search(tmp_path))
    capsys.readouterr()
    assert main(["resume", search, "--budget", "2h"]) == 2
    assert (
        "--budget: the search has 1-trial, got 2h; it can only be given more of it"
        in capsys.readouterr().err
    )
    assert main(["resume", str(tmp_path), "--budget", "2-trials"]) == 2
    assert f"--budget: {tmp_path} is no search" in capsys.readouterr().err
    assert main(["resume", search, "--budget", "1-trial", "--local", "--jobs", "1"]) == 0


def test_a_trial_on_two_workers_is_judged_too(study, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {choice: [3e-3, 1e-9]}}")
    settings = [
        "matrix.mixer=[softmax]",
        "train.eval_every_epochs=null",
        "train.eval_every_steps=4",
        "resources.workers=2",
    ]
    judge = ["--pruner", "asha", "pruner.reduction_factor=2"]
    more = ["--sampler", "grid", "sampler.seed=1", *judge, "final.seeds=1"]
    assert main(tune(*settings, *more)) == 0, capsys.readouterr()
    assert [trial["status"] for trial in trials(only_search(tmp_path)).values()] == [
        "finished",
        "pruned",
    ]


def test_a_trial_is_not_resumed_as_a_run(study, tmp_path, capsys):
    assert main(tune("--budget", "1-trial", "matrix.mixer=[softmax]", "final.seeds=1")) == 0
    search = only_search(tmp_path)
    assert main(["resume", str(search / "trials" / "softmax" / "00000")]) == 2
    message = f"is a trial of a search: go on with subquad resume {search}\n"
    assert message in capsys.readouterr().err


def test_the_same_command_again_is_a_new_search(study, tmp_path):
    for _ in range(2):
        assert main(tune("--budget", "1-trial", "final.seeds=1", "matrix.mixer=[softmax]")) == 0
    first, second = sorted((tmp_path / "runs" / "small-search").iterdir())
    assert trials(first) == trials(second)


def test_a_single_experiment(study, tmp_path, capsys, monkeypatch):
    study.write_text(SMALL)
    sent = []

    def spied(tracking, folder, *, name):
        found = open_publisher(tracking, folder, name=name)
        monkeypatch.setattr(
            found,
            "close",
            lambda: sent.append((folder / "final/report.md").exists()) or Publisher.close(found),
        )
        return found

    monkeypatch.setattr("subquad.search.run.open_publisher", spied)
    assert main(tune("--budget", "2-trials", "final.seeds=1", "--json")) == 0
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    assert candidate["label"] == "small"
    assert (only_search(tmp_path) / "best" / "small.yaml").exists()
    assert list(finals(only_search(tmp_path))) == ["seed0"]
    assert sent == [True], "the final study's report is written before tracking ends"
