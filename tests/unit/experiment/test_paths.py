"""Paths: relative to the file that says them, or to the working directory for an override."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from subquad.experiment import checked_run, load_study
from subquad.experiment.settings import absolute

TEXT = """\
dataset: {name: files, params: {folder: FOLDER, word: data}}
task: classification
backbone: encoder
mixer: agf
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("data", "/exp/data"),
        ("./data/../x", "/exp/x"),
        ("../data", "/data"),
        ("/abs/data", "/abs/data"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("", ""),
        ("$HOME/x", "/exp/$HOME/x"),
        ("${oc.env:SECRET}", "/exp/${oc.env:SECRET}"),
    ],
)
def test_absolute(value, expected):
    assert absolute(value, Path("/exp")) == expected


def test_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert absolute("~/data", Path("/exp")) == "/home/someone/data"


def folder(plan):
    (cell,) = plan.runs
    params = cell.experiment.dataset.params
    assert params["word"] == "data"
    return params["folder"]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "exp.yaml").write_text(TEXT.replace("FOLDER", "data"))
    return "sub/exp.yaml"


def test_a_path_in_a_file_starts_from_the_file(tmp_path, file, fakes):
    assert folder(load_study(file, cwd=tmp_path, resolve=fakes)) == str(tmp_path / "sub" / "data")


@pytest.mark.parametrize(
    "override",
    [
        "dataset.params.folder=here",
        "dataset={name: files, params: {folder: here}}",
        "dataset.params={folder: here, word: data}",
    ],
)
def test_a_path_in_an_override_starts_from_the_working_directory(tmp_path, file, fakes, override):
    assert folder(load_study(file, [override], cwd=tmp_path, resolve=fakes)) == str(
        tmp_path / "here"
    )


def test_a_path_in_python_starts_from_the_base(tmp_path, file, fakes):
    made = load_study(file, cwd=tmp_path, resolve=fakes).runs[0].experiment
    plain = made.model_copy(
        update={"dataset": made.dataset.model_copy(update={"params": {"folder": "x"}})}
    )
    assert checked_run(plain, base=tmp_path, resolve=fakes).experiment.dataset.params[
        "folder"
    ] == str(tmp_path / "x")


def test_a_path_on_an_axis_keeps_its_label_in_the_canonical_text(tmp_path, file, fakes):
    plan = load_study(file, ["matrix.dataset.params.folder=[a, b/c]"], cwd=tmp_path, resolve=fakes)
    assert [cell.label for cell in plan.runs] == ["a", "b_c"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "study.yaml").write_text(plan.text)
    again = load_study("study.yaml", cwd=tmp_path / "elsewhere", resolve=fakes)
    assert [replace(run, axes={}) for run in again.runs] == [
        replace(run, axes={}) for run in plan.runs
    ]
    assert [cell.label for cell in again.runs] == ["a", "b_c"]


def test_a_mixers_file_that_is_not_there(tmp_path, file, refused):
    message = refused(TEXT.replace("FOLDER", "x").replace("agf", "./gone.py:Mix"))
    assert message.startswith(
        f"exp.yaml:4: mixer.name: mixer '{tmp_path}/gone.py:Mix': {tmp_path}/gone.py does not exist"
    )


def test_the_storage_of_a_study_is_the_same_place_from_another_folder(tmp_path, loaded, fakes):
    text = TEXT.replace("FOLDER", "x") + "resources: {storage: kept}\nmatrix: {seed: [0, 1]}\n"
    study = loaded(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "study.yaml").write_text(study.text)
    again = load_study("./study.yaml", cwd=elsewhere, resolve=fakes)
    assert again.runs == study.runs
    assert again.runs[0].experiment.resources.storage == str(tmp_path / "kept")
