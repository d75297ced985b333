"""docs/reference/experiments.md and studies.md say what is so: their files load, and their refusals
are the true ones.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from subquad.errors import UserError
from subquad.experiment import load_given, load_study
from subquad.experiment.schema import Experiment, free_settings
from subquad.registry import describe_config

DOCS_FOLDER = Path(__file__).parents[3] / "docs"
DOCS = (DOCS_FOLDER / "reference" / "experiments.md").read_text(encoding="utf-8")
STUDIES = (DOCS_FOLDER / "reference" / "studies.md").read_text(encoding="utf-8")
FILE, _, _ = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
STUDY, CHANGES, EXTENDS = re.findall(r"```yaml\n(.*?)```", STUDIES, re.DOTALL)
(FUNCTION,) = re.findall(r"```python\n(.*?)```", STUDIES, re.DOTALL)
CONSOLE = re.findall(r"\$ subquad train (.*)\nsubquad: (.*)", DOCS)
ROWS = re.findall(r"^\| `(\w+: .*?)` \| `(exp\.yaml.*)` \|$", DOCS, re.MULTILINE)
MORE_COMMANDS = [
    ("exp.yaml lr=0.1", "override 'lr=0.1': lr: unknown key; it belongs at train.lr"),
    (
        "exp.yaml resources.workers=32",
        "override 'resources.workers=32': train.batch_size: got 16, must be >= resources.workers "
        "(32), as each worker needs a sample; use train.batch_size 32",
    ),
    (
        "exp.yaml train.steps=100 train.warmup_steps=100",
        "override 'train.warmup_steps=100': train.warmup_steps: got 100, must be < train.steps "
        "(100); use at most 99",
    ),
    (
        "exp.yaml 'matrix.mixer=[agf, softmax]' mixer.params.order=3",
        "override 'mixer.params.order=3': mixer.params.order: unknown key; there is bias, qk_norm, "
        "rotary, dropout, kernel (run softmax)",
    ),
    ("exq.yaml", "exq.yaml: no such file; did you mean exp.yaml?"),
]
MORE_LINES = [
    ("lr: abs", "exp.yaml:11: train.lr: got 'abs', must be a number > 0"),
    ("epochs: 2.5", "exp.yaml:8: train.epochs: got 2.5, must be a whole number >= 1 or null"),
    (
        "optimizer: adan",
        "exp.yaml:10: train.optimizer: got 'adan', must be one of adamw, adam, radam, sgd; "
        "did you mean 'adam'?",
    ),
    ("tf32: yes", "exp.yaml:13: train.tf32: got 'yes', must be true or false"),
    ("optimiser: adam", "exp.yaml:13: train.optimiser: unknown key; did you mean 'optimizer'?"),
]
"""Refusals of the same file that the page does not show."""


def message(folder, text, *arguments):
    (folder / "exp.yaml").write_text(text, encoding="utf-8")
    target, *overrides = arguments
    with pytest.raises(UserError) as caught:
        load_study(target, overrides, cwd=folder)
    return str(caught.value)


def test_all_examples_are_found():
    assert (len(CONSOLE), len(ROWS)) == (5, 4)


def test_the_study_of_one_setting_at_a_time_is_what_the_text_says(tmp_path):
    (tmp_path / "exp.yaml").write_text(CHANGES, encoding="utf-8")
    labels = [cell.label for cell in load_study("exp.yaml", cwd=tmp_path).runs]
    assert labels[:4] == [
        "JapaneseVowels-base-seed0",
        "JapaneseVowels-base-seed1",
        "JapaneseVowels-base-seed2",
        "JapaneseVowels-order3-seed0",
    ]
    assert len(labels) == 3 * 3 + 4 * 3


@pytest.mark.parametrize(("command", "said"), CONSOLE + MORE_COMMANDS)
def test_refused_overrides(tmp_path, command, said):
    assert message(tmp_path, FILE, *shlex.split(command)) == said


@pytest.mark.parametrize(("line", "said"), ROWS + MORE_LINES)
def test_refused_lines(tmp_path, line, said):
    key = line.partition(":")[0]
    text = re.sub(rf"^  {key}:.*$", f"  {line}", FILE, flags=re.MULTILINE)
    assert message(tmp_path, text if text != FILE else f"{FILE}  {line}\n", "exp.yaml") == said


def test_the_files_load(tmp_path):
    (tmp_path / "exp.yaml").write_text(FILE)
    (tmp_path / "study.yaml").write_text(STUDY)
    commands = [
        shlex.split(command)
        for command in re.findall(r"^subquad train (exp\.yaml .*)$", DOCS, re.MULTILINE)
    ]
    assert len(commands) == 3
    for target, *overrides in commands:
        assert load_study(target, overrides, cwd=tmp_path).runs
    plan = load_study("study.yaml", cwd=tmp_path)
    assert len(plan.runs) == 15
    assert plan.runs[-1].label == "Heartbeat-softmax-seed2"
    assert plan.runs[9].experiment.train.batch_size == 32
    small = load_study(
        "study.yaml",
        ["matrix.dataset.Heartbeat.params.split_seed=3", "matrix.seed=[0]"],
        cwd=tmp_path,
    )
    assert [cell.experiment.dataset.params["split_seed"] for cell in small.runs] == [0, 0, 0, 3, 3]
    (tmp_path / "mine.yaml").write_text(EXTENDS)
    assert [cell.label for cell in load_study("mine.yaml", cwd=tmp_path).runs] == [
        f"{data}-{mixer}-seed0"
        for data in ("JapaneseVowels", "recall")
        for mixer in ("agf", "identity")
    ]


def test_the_page_of_studies_is_short():
    assert len(STUDIES.split()) <= 1000


def test_the_function_trains_what_the_page_says(tmp_path, monkeypatch):
    (tmp_path / "table.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    study = load_given("./table.py:table1")
    assert study.name == "table1"
    assert [run.label for run in study.runs] == ["agf-64", "agf-128", "softmax-64", "softmax-128"]


HOW_TO = (DOCS_FOLDER / "how-to" / "change-one-setting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", re.findall(r"^subquad train (.*?)(?:\s+#.*)?$", HOW_TO, re.MULTILINE)
)
def test_the_commands_of_the_how_to_load(tmp_path, command):
    target, *overrides = shlex.split(command)
    assert load_study(target, overrides, cwd=tmp_path).runs


def test_the_files_and_the_refusal_of_the_how_to(tmp_path):
    for number, (text, count) in enumerate(
        zip(re.findall(r"```yaml\n(.*?)```", HOW_TO, re.DOTALL), (8, 16), strict=True)
    ):
        (tmp_path / f"{number}.yaml").write_text(text)
        assert len(load_study(f"{number}.yaml", cwd=tmp_path).runs) == count
    ((command, refusal),) = re.findall(r"\$ subquad train (.*)\nsubquad: (.*)", HOW_TO)
    assert message(tmp_path, FILE, *shlex.split(command)) == refusal


def test_loading_imports_nothing_heavy(tmp_path):
    (tmp_path / "exp.yaml").write_text(FILE)
    code = (
        "import sys; from subquad.experiment import load_study as load; "
        "load('exp.yaml'); load('quickstart'); "
        "print([name for name in ('torch', 'ray', 'mlflow', 'sktime', "
        "'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_settings_that_decide_no_numbers_are_listed():
    section = DOCS.partition("## Settings that decide no numbers")[2].partition("A resumed run")[0]
    listed = {
        name if line.startswith("- `name`") else f"train.{name}"
        for line in section.splitlines()
        for name in re.findall(r"`([\w.]+)`", line)
        if line.startswith(("- `name`", "- of `train`")) and name != "train"
    }
    whole = ("resources.", "tracking.")
    assert listed == {key for key in free_settings() if not key.startswith(whole)}
    below = {row.name for row in describe_config(Experiment) if row.name.startswith(whole)}
    assert below <= set(free_settings())
