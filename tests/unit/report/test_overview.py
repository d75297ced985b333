"""`subquad`, `list`, `show` and `runs`: what a newcomer looks at first."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from subquad.cli.main import main
from subquad.record.files import write_json, write_text
from subquad.record.names import LOCK, SEARCH, STUDY, SUMMARY
from subquad.registry import find_plugins, resolve
from subquad.registry.declared import declared_constants

CANDIDATE = {
    "label": "agf",
    "metric": "accuracy",
    "metrics": {"accuracy": {"unit": "%"}},
    "dimensions": 1,
    "trials": {"finished": 1},
    "steps": 10,
    "flops": None,
    "seconds": 1.0,
    "best": {"number": 0, "step": 1, "value": 0.875, "point": {}},
    "final": [],
    "over": "",
}
LIGHT = ("list", "show agf", "runs", "report --help", "")


def test_alone_it_prints_the_help(capsys):
    assert main([]) == 0
    assert "subquad train quickstart" in capsys.readouterr().out


@pytest.mark.parametrize("words", LIGHT)
def test_looking_imports_no_torch(words, tmp_path):
    code = (
        "import sys; from subquad.cli.main import main; assert main(sys.argv[1:]) == 0; "
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, *words.split()]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_every_built_in_plugin_says_in_its_text_what_it_says_when_it_is_loaded():
    for found in find_plugins():
        if found.is_built_in and found.kind in ("mixer", "backbone", "task", "dataset"):
            assert (
                declared_constants(found)["summary"]
                == resolve(found.kind, found.full_name).plugin.summary
            )


def test_each_plugin_has_one_line_that_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "mixers", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert rows["agf"]["summary"].startswith("attentive graph filter")
    assert (rows["agf"]["grows"], rows["hyena"]["grows"]) == ("L", "L log L")


@pytest.mark.parametrize("kind", [[], ["recipes"], ["datasets"], ["commands"]])
def test_a_list_in_a_pipe_fits_100_columns_and_loses_no_word(capsys, kind):
    assert main(["list", *kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["plugins"]
    assert main(["list", *kind]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert {word for row in rows for word in row["summary"].split()} <= set(out.split())


def test_a_command_says_what_it_does(capsys):
    assert main(["list", "commands", "--json"]) == 0
    rows = {row["name"]: row["summary"] for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert rows["swap"].startswith("Put MIXER into every layer")


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["agf"], "mixer agf: attentive graph filter"),
        (["encoder"], "backbone encoder: "),
        (["quickstart"], "# recipe quickstart, "),
        (["subquad:agf"], "mixer agf: "),
    ],
)
def test_show_needs_no_kind(capsys, words, begins):
    assert main(["show", *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith(begins)
    also = "there is also a space of this name: subquad show space agf\n"
    assert out.endswith(also) == (words == ["agf"])


def test_a_name_that_nothing_has_is_told_with_the_nearest(capsys):
    assert main(["show", "agff"]) == 2
    message = (
        "nothing is called 'agff'; did you mean 'agf'? (`subquad list` shows what is installed)"
    )
    assert capsys.readouterr().err == f"subquad: {message}\n"
    assert main(["show", "mixers"]) == 2
    assert "which mixer?" in capsys.readouterr().err


def listed(capsys, folder: Path) -> dict[str, dict]:
    assert main(["runs", str(folder), "--json"]) == 0
    return {Path(line["folder"]).name: line for line in json.loads(capsys.readouterr().out)}


def test_runs_studies_and_searches_have_a_line_each(capsys, factory, tmp_path):
    root = tmp_path / "runs" / "mine"
    for seed, accuracy in ((0, 0.5), (1, 0.7)):
        factory.run(root / "study" / "cells" / f"agf-{seed}", seed=seed, accuracy=accuracy)
    factory.run(root / "study" / "cells" / "other-0", mixer="softmax", seed=0, accuracy=0.4)
    write_text(root / "study" / STUDY, "name: mine\n")
    factory.run(root / "single", accuracy=0.25)
    factory.run(root / "half", status=None)
    factory.run(root / "search" / "trials" / "agf" / "00000")
    write_text(root / "search" / SEARCH, "name: mine\n")
    write_json(root / "search" / SUMMARY, {"candidates": [CANDIDATE]})
    lines = listed(capsys, tmp_path)
    assert set(lines) == {"study", "single", "half", "search"}
    shown = {name: (line["kind"], line["state"], line["done"]) for name, line in lines.items()}
    assert shown["study"] == ("study", "finished", 3)
    assert lines["study"]["score"] == "accuracy 60.00 % (agf)"
    assert lines["single"]["score"] == "accuracy 25.00 %"
    assert shown["half"] == ("run", "stopped", 0)
    assert shown["search"] == ("search", "finished", 1)
    assert lines["search"]["score"] == "validation accuracy 87.50 %"
    assert all(line["bytes"] > 0 and 0 <= line["age"] < 600 for line in lines.values())
    with FileLock(root / "half" / LOCK):
        assert listed(capsys, tmp_path)["half"]["state"] == "running"
    assert main(["runs", str(tmp_path)]) == 0
    assert "accuracy 60.00 % (agf)" in capsys.readouterr().out


def test_the_best_row_of_several_data_sets_has_all_of_them(capsys, factory, tmp_path):
    study = tmp_path / "runs" / "mine" / "study"
    for mixer, dataset, accuracy in (
        *(("agf", "one", 0.9), ("agf", "two", 0.5)),
        *(("softmax", "one", 0.5), ("softmax", "two", 0.7)),
        ("cur", "one", 1.0),
    ):
        folder = study / "cells" / f"{dataset}-{mixer}"
        factory.run(folder, mixer=mixer, dataset=dataset, accuracy=accuracy)
    write_text(study / STUDY, "name: mine\n")
    score = "accuracy 70.00 % (agf), mean of 2 data sets"
    assert listed(capsys, tmp_path)["study"]["score"] == score


def test_no_folder_and_no_runs_are_told(capsys, tmp_path):
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: no runs below it\n"
    assert main(["runs", str(tmp_path / "missing")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_folder_behind_a_link_is_not_entered(capsys, factory, tmp_path):
    factory.run(tmp_path / "elsewhere" / "run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert listed(capsys, tmp_path) == {}


@pytest.mark.extended
def test_three_thousand_runs_take_three_seconds(capsys, factory, tmp_path):
    for number in range(3000):
        factory.run(tmp_path / "runs" / "mine" / f"{number}")
    begun = time.process_time()
    assert len(listed(capsys, tmp_path)) == 3000
    assert time.process_time() - begun < 3.0
