"""`subquad verify` of runs that name files of plugins: none runs, and what was changed is
noticed all the same.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from damage import Said, call
from small_run import SMALL, only_run
from wheels import MEAN

from subquad.record.files import read_json, write_json

LIAR = """
import pathlib

if pathlib.Path({mark!r}).exists():
    pathlib.Path({mark!r}).unlink()
    from subquad_plugins.classification.task import Classification

    Classification.rescore = lambda self, kept: {{"accuracy": 0.999, "macro_f1": 0.999}}
"""
SIZED = MEAN.replace("    pass", "    size: int = 3")
TASK = """
from subquad.plugin import TaskPlugin
from subquad_plugins.classification import PLUGIN as OWN
from subquad_plugins.classification.task import Classification

PLUGIN = TaskPlugin(
    config=OWN.config,
    build=Classification,
    summary="another",
    targets=OWN.targets,
    reports=OWN.reports,
)
"""


class Trained:
    """A run and a study of somebody whose mixer is a file, which lies when it runs again."""

    def __init__(self, place: Path):
        self.place, self.mark, self.file = place, place / "mark", place / "x.py"
        self.file.write_text(LIAR.format(mark=str(self.mark)) + SIZED)
        mixer = "mixer: ./x.py:Mean"
        text = re.sub(r"(?m)^mixer: .*$", mixer, SMALL).replace("epochs: 3", "epochs: 1")
        self.run = self._trained("run", text)
        layers = text.replace("num_layers: 1", "num_layers: 2")
        mixed = layers.replace(mixer, "mixer: agf\nmixers: [{name: ./x.py:Mean, layers: [0]}]")
        case = (
            "{label: other, only: [seed0], set: {mixer: ./x.py:Mean, mixers: "
            "[{name: agf, layers: [0]}]}}"
        )
        matrix = f"matrix:\n  seed: [0, 1]\n  change:\n    - base\n    - {case}\n"
        self.study = self._trained("study", mixed + matrix)

    def _trained(self, name: str, text: str) -> Path:
        path = self.place / f"{name}.yaml"
        path.write_text(text.replace("name: small", f"name: {name}"))
        assert call("trust", str(self.place)).code == 0
        assert call("train", str(path), "--local", "--root", str(self.place)).code == 0
        return only_run(self.place, name)

    def verified(self, folder: Path) -> Said:
        """What verify says; the file, which was trained with here, must not have run."""
        self.mark.touch()
        for name in [name for name in sys.modules if name.startswith("subquad_source_")]:
            del sys.modules[name]
        outcome = call("verify", str(folder))
        assert self.mark.exists()
        assert outcome.err == ""
        return outcome


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained.run, tmp_path / "run"))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_mixer_in_a_file_is_not_needed(trained, run, is_there):
    assert f"{trained.file}:Mean" in (run / "experiment.yaml").read_text()
    if not is_there:
        trained.file.rename(trained.file.with_suffix(".away"))
    try:
        outcome = trained.verified(trained.run)
        study = trained.verified(trained.study)
    finally:
        if not is_there:
            trained.file.with_suffix(".away").rename(trained.file)
    assert outcome.code == study.code == 0, outcome.out + study.out
    assert "recomputed from 60 answers" in outcome.out
    assert study.out.count("recomputed from 60 answers") == 3


def test_a_score_that_was_written_in_is_wrong_whatever_the_mixer_does(trained, run):
    result = read_json(run / "result.json")
    result["test"]["metrics"]["accuracy"] = 0.999
    write_json(run / "result.json", result)
    outcome = trained.verified(run)
    assert outcome.code == 1
    assert "result.json says accuracy 99.9 %" in outcome.out


def test_a_changed_parameter_of_a_file_and_a_changed_file_are_noticed(trained, run):
    settings = run / "experiment.yaml"
    settings.write_text(settings.read_text().replace("size: 3", "size: 4"))
    assert "mixer.params.size: changed since the run was started" in trained.verified(run).out
    content = trained.file.read_text()
    trained.file.write_text(f"{content}# another\n")
    try:
        assert "the source file of a plugin: changed" in trained.verified(trained.run).out
    finally:
        trained.file.write_text(content)


def test_a_changed_study_is_noticed(trained, tmp_path):
    study = Path(shutil.copytree(trained.study, tmp_path / "study"))
    settings = study / "study.yaml"
    text = settings.read_text()
    settings.write_text(re.sub(r"(- name: agf\s+params:\s+order:) \d+", r"\1 4", text))
    outcome = trained.verified(study)
    assert (
        "cells/other-seed0: WRONG: mixers[0].params.order: changed since the run was started"
        in outcome.out
    )


def test_of_a_task_in_a_file_the_sums_alone_are_checked(tmp_path):
    (tmp_path / "t.py").write_text(TASK)
    path = tmp_path / "small.yaml"
    path.write_text(
        SMALL.replace("task: classification", "task: ./t.py:PLUGIN").replace(
            "epochs: 3", "epochs: 1"
        )
    )
    assert call("trust", str(tmp_path)).code == 0
    assert call("train", str(path), "--local", "--root", str(tmp_path)).code == 0
    outcome = call("verify", str(only_run(tmp_path)))
    assert (outcome.code, outcome.err) == (0, "")
    assert (
        f"scores not recomputed, as {tmp_path}/t.py is not run: its sums were checked alone"
        in outcome.out
    )
