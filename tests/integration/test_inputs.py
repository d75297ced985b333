"""What a run reads is part of it: between seeds, cells, kills, extensions, and when it is looked at
later. tests/guards/test_inputs.py tries each reader.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command import cli
from platformdirs import user_config_path
from result_file import read_result
from safetensors.torch import load_file, save_file
from states import numbers, state, steps, unequal

from subquad.api import report
from subquad.record.files import json_text, read_json
from subquad.record.names import INPUTS, RESULT
from subquad.record.sums import manifest_of

WAVES = """
name: waves
dataset: {name: table, params: {path: waves.csv, test_fraction: 0.25}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 8, num_heads: 2}}
mixer: identity
train: {epochs: 4, batch_size: 8, lr: 1.0e-3, log_every: 1}
tracking: {uri: off}
"""
HELPED = "import helper\n\n\nclass Mine(helper.Mine):\n    pass\n"
HELPER = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.project = nn.Linear(dim, dim)

    def forward(self, x):
        return {body}
"""


def write(path: Path, seed: int = 0, kinds: str = "xyz") -> None:
    rng = random.Random(seed)
    lines = ["id,a,b,label"]
    for number in range(60):
        for _ in range(5):
            kind = number % 3
            values = f"{kind + rng.gauss(0, 1):.3f},{rng.gauss(0, 1):.3f}"
            lines.append(f"{number},{values},{kinds[kind]}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    (tmp_path / "waves.yaml").write_text(WAVES)
    write(tmp_path / "waves.csv")
    return tmp_path


def train(place: Path, *words: str, **more: object) -> Path:
    before = {*place.glob("runs/waves/*")}
    cli(["train", "waves.yaml", "--local", "--jobs", "1", *words], place, **more)
    (run,) = {*place.glob("runs/waves/*")} - before
    return run


def refused(place: Path, *words: str) -> str:
    return cli(words, place, check=2).stderr


def same_state(whole: Path, run: Path) -> None:
    """Model, optimiser and generators, tensor by tensor."""
    *_, last = steps(whole)
    assert steps(run)[-1] == last
    assert unequal(state(whole, last), state(run, last)) == []
    assert numbers(whole, last) == numbers(run, last)


def rows(*runs: Path) -> list[tuple[str, str]]:
    table = report(*runs).table()
    table = table[table["kind"] == "mixer"]
    return list(zip(table["dataset"], table["seeds"], strict=True))


def test_seeds_of_other_data_are_no_row_together_and_the_same_bytes_elsewhere_are(place: Path):
    first = train(place)
    (place / "other").mkdir()
    shutil.copy(place / "waves.csv", place / "other" / "waves.csv")
    second = train(place, "train.seed=1", "dataset.params.path=other/waves.csv")
    assert rows(first, second) == [("waves", "0; 1")]
    write(place / "waves.csv", seed=1)
    third = train(place, "train.seed=2")
    found = rows(first, second, third)
    assert sorted(seeds for _, seeds in found) == ["0; 1", "2"]
    assert len({name for name, _ in found}) == 2
    text = str(report(first, second, third))
    assert "data of other content are called waves too" in text


@pytest.mark.parametrize(
    "moment",
    [
        "kill@step:2",
        "kill@save.done:1",
        pytest.param("kill@step:12", marks=pytest.mark.extended),
    ],
)
def test_a_killed_run_goes_on_with_its_data_wherever_they_are(place: Path, moment: str):
    whole = train(place, "name=waves")
    run = train(place, fault=moment, check=-9)
    content = (place / "waves.csv").read_text()
    write(place / "waves.csv", kinds="yxz")
    said = refused(place, "resume", str(run), "--local")
    assert f"dataset.params.path {place / 'waves.csv'}: " in said
    assert "train" in said
    assert said.count("\n") == 1
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "w.csv").write_text(content)
    path = run / "experiment.yaml"
    moved = path.read_text().replace(str(place / "waves.csv"), str(place / "elsewhere/w.csv"))
    path.write_text(moved)
    cli(["resume", str(run), "--local"], place)
    same_state(whole, run)
    assert read_result(run)["test"] == read_result(whole)["test"]


def test_cells_of_a_study_have_the_same_data(place: Path):
    axes = ("matrix.seed=[0, 1]", "matrix.mixer=[identity, softmax]")
    study = train(place, *axes, fault="kill@step:30", check=-9)
    assert any(read_result(cell) for cell in study.glob("cells/*"))
    write(place / "waves.csv", seed=1)
    said = refused(place, "resume", str(study), "--local", "--jobs", "1")
    assert "what it reads has changed" in said
    for cell in study.glob("cells/*"):
        if not read_result(cell):
            shutil.rmtree(cell)  # a cell that never began has nothing of its own to say
    said = refused(place, "resume", str(study), "--local", "--jobs", "1")
    assert f"has changed since {study.name} was started" in said
    write(place / "waves.csv")
    cli(["resume", str(study), "--local", "--jobs", "1"], place)


def test_an_extended_search_has_the_same_data(place: Path):
    (place / "space.yaml").write_text("dims: {train.lr: {choice: [1e-4, 3e-4, 1e-3, 3e-3]}}")
    words = ["tune", "waves.yaml", "--space", "./space.yaml", "--local", "--jobs", "1"]
    cli([*words, "--budget", "2-trials", "final.seeds=1"], place)
    (search,) = place.glob("runs/waves-search/*")
    assert cli(["verify", str(search)], place).returncode == 0
    write(place / "waves.csv", seed=1)
    again = ["resume", str(search), "--budget", "4-trials", "--local", "--jobs", "1"]
    assert "what it reads has changed" in refused(place, *again)
    said = cli(["verify", str(search)], place, check=1).stdout
    assert "changed since the run was started" in said
    write(place / "waves.csv")
    cli(again, place)
    table = search / "trials.csv"
    table.write_text(table.read_text().replace("0", "1", 1))
    assert "trials.csv has changed" in cli(["verify", str(search)], place, check=1).stdout


def test_a_trained_model_meets_the_data_that_it_was_trained_on(place: Path):
    run = train(place)
    shutil.copy(place / "waves.csv", place / "new.csv")
    write(place / "waves.csv", seed=1)
    for command in ("eval", "predict"):
        said = refused(place, command, str(run), "new.csv")
        assert "what it reads has changed since the run was started" in said
    said = cli(["verify", str(run)], place, check=1).stdout
    assert f"dataset.params.path {place / 'waves.csv'}: test, train, validation" in said


def test_names_of_classes_are_of_the_data(place: Path):
    run = train(place)
    write(place / "waves.csv", kinds="uvw")  # the same numbers
    assert "description" in refused(place, "eval", str(run), "waves.csv")


def test_verify_compares_labels_with_those_of_test(place: Path):
    run = train(place)
    kept = load_file(run / "predictions.safetensors")
    kept["label"] = kept["predicted"].clone()
    save_file(kept, run / "predictions.safetensors")
    forge(run, accuracy=1.0, macro_f1=1.0)
    said = cli(["verify", str(run)], place, check=1).stdout
    assert "predictions.safetensors: label is not that of TEST" in said


def forge(run: Path, **metrics: float) -> None:
    """Let all sums fit, and the result say other scores."""
    result = json.loads((run / RESULT).read_text())
    result["test"]["metrics"] |= metrics
    result["files"] |= manifest_of({name: run / name for name in result["files"]})
    (run / RESULT).write_text(json_text(result))


@pytest.fixture
def weights(place: Path) -> Path:
    """Weights to start from."""
    run = train(place)
    (kept,) = sorted(run.glob("checkpoints/*/model.safetensors"))[-1:]
    return Path(shutil.copy(kept, place / "w.safetensors"))


def other_weights(weights: Path) -> None:
    torch.manual_seed(0)
    tensors = {name: torch.randn_like(tensor) for name, tensor in load_file(weights).items()}
    save_file(tensors, weights)


def test_start_weights_before_and_after_the_first_save(place: Path, weights: Path):
    start = f"init.from={weights}"
    whole = train(place, start)
    content = weights.read_bytes()
    early = train(place, start, fault="kill@step:2", check=-9)
    late = train(place, start, fault="kill@step:12", check=-9)
    other_weights(weights)
    said = refused(place, "resume", str(early), "--local")
    assert f"init.from {weights}: weights" in said
    cli(["resume", str(late), "--local"], place)
    same_state(whole, late)
    assert read_result(late)["init"] == read_result(whole)["init"]
    events = "".join(path.read_text() for path in late.glob("metrics*.jsonl"))
    assert f"init.from {weights}: weights; the run goes on from its checkpoint" in events
    assert "init.from" in cli(["verify", str(late)], place, check=1).stdout
    weights.write_bytes(content)
    cli(["resume", str(early), "--local"], place)
    same_state(whole, early)
    assert cli(["verify", str(early)], place).returncode == 0


def test_rows_of_other_start_weights_are_apart(place: Path, weights: Path):
    first = train(place, f"init.from={weights}")
    other_weights(weights)
    second = train(place, f"init.from={weights}", "train.seed=1")
    assert [seeds for _, seeds in rows(first, second)] == ["0", "1"]


def test_what_a_plugin_file_imports_is_part_of_a_run(place: Path):
    (place / "mine.py").write_text(HELPED)
    (place / "helper.py").write_text(HELPER.format(body="self.project(x)"))
    words = ("mixer=./mine.py:Mine",)
    run = train(place, *words, fault="kill@step:12", check=-9, PYTHONPATH=str(place))
    (place / "helper.py").write_text(HELPER.format(body="-self.project(x)"))
    resume = ["resume", str(run), "--local"]
    said = cli(resume, place, check=2, PYTHONPATH=str(place)).stderr
    assert "what it reads has changed since the run was started: mixer: helper" in said
    (place / "helper.py").write_text(HELPER.format(body="self.project(x)"))
    cli(resume, place, PYTHONPATH=str(place))
    assert read_json(run / INPUTS)["mixer"]["content"].keys() == {"helper"}


INSTALLED = (
    *(sys.prefix, sys.base_prefix, Path(__file__).parents[2]),
    *("/proc", "/sys", "/dev", "/etc", "/usr", "/lib"),
)
"""Packages and the system, which environment.json has, as far as they decide anything."""
WATCHED = """
import os, sys
opened = set()
sys.addaudithook(lambda event, given: event == "open" and opened.add((str(given[0]), given[1])))
import subquad
results = subquad.train("waves.yaml", WORDS)
opened = {(os.path.abspath(path), mode) for path, mode in opened}
read = sorted(path for path, mode in opened if os.path.isfile(path) and "w" not in str(mode))
open("opened.txt", "w").write("\\n".join(read))
"""


def test_a_run_opens_nothing_that_is_not_written_down(place: Path, weights: Path):
    (place / "mine.py").write_text(HELPED)
    (place / "helper.py").write_text(HELPER.format(body="self.project(x)"))
    words = ["mixer=./mine.py:Mine", f"init={{from: {weights}, strict: false}}"]
    before = {*place.glob("runs/waves/*")}
    watched = [sys.executable, "-c", WATCHED.replace("WORDS", repr(words))]
    subprocess.run(watched, cwd=place, check=True, env={**os.environ, "PYTHONPATH": str(place)})
    (run,) = {*place.glob("runs/waves/*")} - before
    inputs = read_json(run / INPUTS)
    known = {place / name for entry in inputs.values() for name in entry["settings"].values()}
    known |= {place / f"{name}.py" for entry in inputs.values() for name in entry["content"]}
    known |= {place / "waves.yaml", place / "mine.py"}  # kept in the run's folder
    places = [
        *INSTALLED,
        user_config_path("subquad"),
        place / "runs",
        place / "prepared",
        place / "__pycache__",
    ]
    outside = set(map(Path, (place / "opened.txt").read_text().splitlines()))
    for below in map(Path, places):
        outside = {path for path in outside if not path.is_relative_to(below)}
    assert outside <= known
    assert {place / "waves.csv", weights, place / "helper.py"} <= known
