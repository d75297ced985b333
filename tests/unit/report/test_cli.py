"""`subquad report` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from subquad.cli.main import main
from subquad.security import disk


def test_the_files_lie_in_the_run(factory, capsys: pytest.CaptureFixture[str]):
    run = factory.run("one")
    assert main(["report", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "90.00" in shown
    assert shown.splitlines()[-1] == f"Files in {run}: report.md, report.csv, report.html"
    assert all((run / f"report.{name}").exists() for name in ("md", "csv", "html"))


def test_several_runs_go_to_a_folder_here(factory, tmp_path, monkeypatch: pytest.MonkeyPatch):
    runs = [factory.run("one", seed=0), factory.run("two", seed=1)]
    monkeypatch.chdir(tmp_path)
    assert main(["report", *map(str, runs)]) == 0
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "report.csv",
        "report.html",
        "report.md",
    ]


def test_one_format_to_a_chosen_folder(factory, tmp_path):
    assert (
        main(["report", str(factory.run("one")), "--format", "csv", "--out", str(tmp_path / "out")])
        == 0
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.csv"]


def test_latex_by_its_name(factory, tmp_path):
    assert (
        main(["report", str(factory.run("one")), "--format", "latex", "--out", str(tmp_path)]) == 0
    )
    text = (tmp_path / "report.tex").read_text()
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert "mixer & JapaneseVowels \\\\\n\\midrule\nagf & 90.00 \\\\" in text
    assert r"\label{tab:test-accuracy-protocol-honest}" in text


def test_json_is_one_object(factory, capsys: pytest.CaptureFixture[str]):
    run = factory.run("one")
    assert main(["report", str(run), "--json", "--format", "md"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["score"]["mean"] == 0.9
    assert found["files"] == [str(run / "report.md")]


def test_another_baseline(factory, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(factory.run("one")), "--baseline", "softmax"]) == 0
    assert "1 seed each, no row of the baseline softmax; honest" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--format", "md,htlm"],
            "subquad: --format: 'htlm' is none of md, csv, html, tex; did you mean 'html'?",
        ),
        (["--format", ","], "subquad: --format: '' is none of md, csv, html, tex"),
    ],
)
def test_an_unknown_format(
    factory, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    assert main(["report", str(factory.run("one")), *arguments]) == 2
    assert capsys.readouterr().err.splitlines() == [message]


def test_a_folder_that_is_no_run(tmp_path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"subquad: {tmp_path}: neither a run (no experiment.yaml) nor a study (no study.yaml)"
    ]


def test_no_run_at_all(capsys: pytest.CaptureFixture[str]):
    assert main(["report"]) == 2
    assert capsys.readouterr().err.splitlines() == ["subquad: Missing argument 'RUNS...'."]


@pytest.mark.parametrize("is_held", [False, True])
def test_an_unwritable_folder_is_one_line(
    factory, tmp_path, is_held, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    if is_held:
        disk.hold(tmp_path)
    assert main(["report", str(factory.run("one")), "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"subquad: --out: {tmp_path / 'file' / 'report.md'}: Not a directory"
    ]


def test_what_the_system_refuses_is_one_line(factory, capsys: pytest.CaptureFixture[str]):
    study = factory.study()
    factory.cell(study)
    (study / "study.yaml").unlink()
    (study / "study.yaml").mkdir()
    assert main(["report", str(study)]) == 2
    assert (
        capsys.readouterr().err
        == f"subquad: {study / 'study.yaml'}: a directory, must be a YAML file\n"
    )


@pytest.mark.ci
def test_a_report_needs_neither_torch_nor_ray_nor_mlflow(factory):
    code = (
        "import sys; from pathlib import Path; from subquad.reports import "
        "document_of, read_report, write_document; "
        "folder = Path(sys.argv[1]); "
        "write_document(document_of(read_report([folder])), folder, ['md', "
        "'html']); "
        "print(sorted({'torch', 'ray', 'mlflow', 'sktime'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(factory.run("one"))],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    assert done.stdout.strip() == "[]"
