"""Reports of searches, at whatever point they stand: candidates, winners, pictures, the final
study.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import result_file

from subquad.cli.main import main
from subquad.experiment import load_study
from subquad.output.markup import in_markdown
from subquad.record.files import write_json, write_text
from subquad.record.integrity import write_result
from subquad.record.metrics import Record
from subquad.record.names import FINAL, METRICS, SUMMARY, WINNERS
from subquad.reports import ReportDocument, search_document, write_document
from subquad.reports.reported_run import Tuning, unequal
from subquad.search.folder import came_to, trial_folder
from subquad.search.sampler import Sampler
from subquad.search.search import plan_search, read_search, write_search
from subquad.search.settings import Settings
from subquad.search.summary import read_summary
from subquad.search.trial import Trial

STUDY = """
name: small
dataset: {name: recall}
task: classification
backbone: {name: encoder, params: {dim: 16, num_heads: 2}}
mixer: agf
matrix: {mixer: [agf, softmax], seed: [0]}
"""
FINAL_TITLE = "Final study: Test accuracy (%), protocol honest"
SPACE = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}}"
PNG = b"\x89PNG\r\n\x1a\n"


FORMATS = ("md", "csv", "html")


def document_in(folder: Path) -> ReportDocument:
    return search_document(folder, read_summary(folder))


class Folder:
    """A search's folder, as its driver leaves it."""

    flops_per_step: int | None = 1000

    def __init__(self, path: Path):
        self.path = path

    def trial(
        self, candidate: str, number: int, status: str = "", value: float = 0.5, reason: str = ""
    ) -> None:
        """A trial of 20 steps; without a status it runs."""
        point = {"train.lr": 0.001 * (number + 1)}
        search = read_search(self.path)
        trials = search.trials(self.path)[candidate]
        (searched,) = [each for each in search.candidates if each.label == candidate]
        trials.ask(Sampler("random", searched.space, 0, first=[*[{}] * number, point]))
        trial = Trial(
            candidate=candidate,
            number=number,
            point=point,
            state="infeasible" if status == "infeasible" else "running",
            total_steps=20,
            flops_per_step=self.flops_per_step,
            reason=reason,
        )
        trials.record(trial)
        folder = trial_folder(self.path, candidate, number)
        if status == "infeasible":
            return
        metrics = {"accuracy": value, "loss": 1.0}
        record = Record(
            kind="eval", step=20, epoch=1, seconds=2, time=0, split="validation", metrics=metrics
        )
        write_text(folder / METRICS, record.line())
        write_text(folder / "attempts.jsonl", "")
        if status:
            write_result(folder, result_file.ended(status, steps=20, seconds=2.0, reason=reason))
            trials.record(came_to(self.path, trial, searched.goal))

    def over(self, *candidates: str) -> None:
        """What search.json says: these have no further trial."""
        summary = read_summary(self.path)
        for candidate in summary["candidates"]:
            candidate["over"] = "budget used" if candidate["label"] in candidates else ""
        write_json(self.path / SUMMARY, summary)

    def picture(self, *names: str) -> None:
        (self.path / "plots").mkdir(exist_ok=True)
        for name in names:
            (self.path / "plots" / name).write_bytes(PNG)


@pytest.fixture
def search(tmp_path: Path) -> Folder:
    """A search that was written down and has no trial yet."""
    (tmp_path / "small.yaml").write_text(STUDY)
    (tmp_path / "space.yaml").write_text(SPACE)
    plan = load_study(str(tmp_path / "small.yaml"))
    settings = Settings(
        str(tmp_path / "space.yaml"), sampler="tpe", pruner="asha", budget="3-trials", final_seeds=2
    )
    return Folder(write_search(plan_search(plan, settings), tmp_path))


@pytest.fixture
def ended(search: Folder, factory) -> Folder:
    """All trials and the final study are done."""
    for number, (status, value) in enumerate(
        (("finished", 0.5), ("finished", 0.75), ("pruned", 0.9))
    ):
        search.trial("agf", number, status, value)
    search.trial("softmax", 0, "finished", 0.25)
    search.trial("softmax", 1, "failed", reason="loss <b>is</b> | infinite")
    search.trial("softmax", 2, "infeasible", reason="heads\x1b[31m do not divide")
    search.over("agf", "softmax")
    search.picture("agf-slice.png", "best-so-far.png")
    write_text(search.path / FINAL / "study.yaml", "name: small\n")
    for mixer in ("agf", "softmax"):
        factory.run(search.path / FINAL / "cells" / f"{mixer}-seed0", mixer=mixer)
    return search


def test_a_search_that_ended_has_its_candidates_and_its_final_study(
    ended: Folder, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", str(ended.path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert (
        "sampler tpe, pruner asha, at most 3 trials for each of 2 candidates, seed "
        "0; selected on the validation split"
    ) in " ".join(map(str.strip, shown))
    assert [line.split() for line in shown if line.startswith(("agf  ", "softmax  "))] == [
        ["agf", "1", "2", "1", "0", "0", "60", "6e+04", "6.0", "accuracy", "75.00", "%"],
        ["softmax", "1", "1", "0", "1", "1", "40", "4e+04", "4.0", "accuracy", "25.00", "%"],
        ["agf", "90.00", "*"],
        ["softmax", "90.00", "*"],
    ]
    assert "agf: best trial 1, validation accuracy 75.00 % at step 20: train.lr=0.002" in shown
    assert "softmax: trial 1 failed: loss <b>is</b> | infinite" in shown
    assert "softmax: trial 2 infeasible: heads\\x1b[31m do not divide" in shown
    assert "90.00" in "\n".join(shown[shown.index(FINAL_TITLE) :])
    assert shown[-1] == f"Files in {ended.path}: report.md, report.csv, report.html"
    assert not any(line.startswith("unfinished") for line in shown)


def test_what_was_not_tuned_stands_beside_the_final_table(ended: Folder):
    summary = read_summary(ended.path)
    assert not any("not tuned" in line for line in search_document(ended.path, summary).summary)
    summary["candidates"][1]["dimensions"] = 0
    line = search_document(ended.path, summary).summary[0]
    assert line.startswith("not tuned, as nothing of space ")
    assert (
        " varies there: softmax (one trial each, as it stands); a space that all share, such as"
        in line
    )


def test_markdown_names_searcher_consumption_and_winners(ended: Folder):
    write_document(document_in(ended.path), ended.path, ["md"])
    text = (ended.path / "report.md").read_text()
    assert text.startswith(f"# Search small-search/{ended.path.name}\n")
    assert ("| agf | 1 | 2 | 1 | 0 | 0 | 60 | 6e+04 | 6.0 | accuracy 75.00 % |") in text
    assert "- agf: best trial 1, validation accuracy 75.00 % at step 20: train.lr=0.002" in text
    assert "loss &lt;b&gt;is&lt;/b&gt; \\| infinite" in text
    assert text.index("## Candidates") < text.index(f"## {in_markdown(FINAL_TITLE)}")


def test_a_record_for_each_candidate_and_then_the_final_study(ended: Folder):
    write_document(document_in(ended.path), ended.path, ["csv"])
    records = list(csv.DictReader(io.StringIO((ended.path / "report.csv").read_text())))
    assert [(record["kind"], record["candidate"] or record["mixer"]) for record in records] == [
        ("search", "agf"), ("search", "softmax"), ("mixer", "agf"), ("mixer", "softmax")
    ]  # fmt: skip
    first = records[0]
    assert (first["trials_finished"], first["trials_pruned"], first["best_value"]) == (
        "2",
        "1",
        "0.75",
    )
    assert (first["flops"], first["best_number"], first["best_point"]) == (
        "60000.0",
        "1",
        "train.lr=0.002",
    )
    assert records[2]["score_mean"] == "0.9"


def test_the_page_holds_the_pictures_and_loads_nothing(ended: Folder):
    (ended.path / "plots" / "a-folder.png").mkdir()
    write_document(document_in(ended.path), ended.path, ["html"])
    text = (ended.path / "report.html").read_text()
    data = base64.b64encode(PNG).decode()
    first, second = (
        f'<img src="data:image/png;base64,{data}" alt="{name}">'
        for name in ("best-so-far", "agf-slice")
    )
    assert text.index(first) < text.index(second)
    assert "default-src 'none'; img-src data:; style-src 'sha256-".replace("'", "&#39;") in text
    assert "loss &lt;b&gt;is&lt;/b&gt; | infinite" in text
    assert "http" not in text.replace('http-equiv="Content-Security-Policy"', "")
    assert f"<h2>{FINAL_TITLE}</h2>" in text


def test_json_has_the_summary_and_the_final_report(
    ended: Folder, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", str(ended.path), "--json", "--format", "md"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finished"] is True
    assert found["search"]["candidates"][0]["best"]["value"] == 0.75
    assert [row["score"]["mean"] for row in found["final"]["rows"]] == [0.9, 0.9]
    assert [Path(path).name for path in found["pictures"]] == ["best-so-far.png", "agf-slice.png"]
    assert found["files"] == [str(ended.path / "report.md")]


def test_the_same_search_gives_the_same_bytes(ended: Folder, tmp_path: Path):
    report = document_in(ended.path)
    first = write_document(report, tmp_path / "one", FORMATS)
    pairs = zip(
        first, write_document(document_in(ended.path), tmp_path / "two", FORMATS), strict=True
    )
    for pair, two in pairs:
        assert pair.read_bytes() == two.read_bytes()


def test_the_front_of_two_objectives_is_listed(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(STUDY)
    (tmp_path / "space.yaml").write_text(SPACE)
    settings = Settings(str(tmp_path / "space.yaml"), sampler="tpe", cost="flops")
    search = Folder(
        write_search(plan_search(load_study(str(tmp_path / "small.yaml")), settings), tmp_path)
    )
    search.trial("agf", 0, "finished", 0.5)
    search.trial("agf", 1, "finished", 0.75)
    report = document_in(search.path)
    agf, softmax = report.values["search"]["candidates"]
    assert agf["front"] == [
        {"number": 1, "point": {"train.lr": 0.002}, "value": 0.75, "cost": 20_000.0}
    ]
    assert softmax["front"] == []
    write_document(report, search.path, ["md"])
    text = (search.path / "report.md").read_text()
    assert "- agf: front: trial 1, accuracy 75.00 % for 2e+04 FLOPs: train.lr=0.002\n" in text
    assert "- softmax: front: no finished trial has both a value and a cost\n" in text
    assert "--cost flops" in text


def state_of(search: Folder) -> tuple[bool, Any]:
    report = document_in(search.path)
    return report.values["finished"], report.lead[1:]


def test_a_search_without_a_trial_is_unfinished(search: Folder, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(search.path)]) == 0
    assert (
        "unfinished, still running or interrupted: trials of agf, softmax"
        in capsys.readouterr().out.splitlines()
    )
    found = document_in(search.path).values
    assert (found["finished"], found["final"], found["pictures"]) == (False, None, [])


def test_trials_that_run_have_a_column(search: Folder):
    search.trial("agf", 0, "finished")
    search.trial("agf", 1)
    search.trial("softmax", 0, "finished")
    search.over("agf", "softmax")
    assert state_of(search) == (False, ("unfinished, still running or interrupted: trials of agf",))
    write_document(document_in(search.path), search.path, FORMATS)
    text = (search.path / "report.md").read_text()
    assert "| infeasible | unfinished | steps |" in text
    assert "| agf | 1 | 1 | 0 | 0 | 0 | 1 | 20 |" in text


def test_a_final_study_that_is_not_done_is_told(search: Folder, factory):
    search.trial("agf", 0, "finished")
    search.trial("softmax", 0, "finished")
    search.over("agf", "softmax")
    assert state_of(search) == (
        False,
        ("unfinished: all trials ended, the final study has not begun",),
    )
    write_text(search.path / FINAL / "study.yaml", "name: small\n")
    assert not document_in(search.path).values["finished"]
    factory.run(search.path / FINAL / "cells" / "agf-seed0")
    factory.run(
        search.path / FINAL / "cells" / "softmax-seed0",
        mixer="softmax",
        status="failed",
        reason="broke",
    )
    assert state_of(search) == (False, ("unfinished: 1 of 2 runs of the final study finished",))


def test_where_no_trial_finished_nothing_is_waited_for(search: Folder):
    search.trial("agf", 0, "failed", reason="broke")
    search.trial("softmax", 0, "pruned")
    search.over("agf", "softmax")
    assert state_of(search) == (True, ())
    assert not (search.path / WINNERS).exists()


def test_a_search_beside_other_runs_is_refused(
    ended: Folder, factory, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", str(factory.run("one")), str(ended.path)]) == 2
    assert capsys.readouterr().err == (
        f"subquad: {ended.path}: is a search, which is reported alone; beside "
        "other runs give its final study, "
        f"{ended.path / 'final'}\n"
    )


def answers_of(right: int) -> list[bool]:
    return [number < right for number in range(400)]


@pytest.fixture
def uneven(search: Folder, factory) -> Folder:
    """A search that ended with two finished trials of agf, and one of softmax with FLOPs that
    cannot be counted.
    """
    search.trial("agf", 0, "finished", 0.5)
    search.trial("agf", 1, "finished", 0.75)
    search.flops_per_step = None
    search.trial("softmax", 0, "finished", 0.25)
    write_text(search.path / FINAL / "study.yaml", "name: small\nbaseline: softmax\n")
    for seed in (0, 1):
        for mixer, right in (("agf", 380), ("softmax", 200)):
            folder = search.path / FINAL / "cells" / f"{mixer}-seed{seed}"
            factory.run(folder, mixer=mixer, seed=seed, correct=answers_of(right - seed))
    search.over("agf", "softmax")
    return search


SPENT = ("2 trials, 1 dim, 4e+04 FLOPs", "1 trial, 1 dim, FLOPs unknown")
UNEQUAL = "unequal tuning: 2 / 1 trials, 4e+04 FLOPs / FLOPs unknown"


def test_every_final_row_and_verdict_says_what_was_spent_on_its_settings(
    uneven: Folder, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", str(uneven.path), "--format", "md,csv,html,tex"]) == 0
    texts = {"text": " ".join(capsys.readouterr().out.split())}
    texts |= {
        form: (uneven.path / f"report.{form}").read_text() for form in ("md", "csv", "html", "tex")
    }
    for form, text in texts.items():
        for spent in SPENT if form in ("md", "csv", "html") else ():
            assert spent in text, form
        assert form == "csv" or UNEQUAL in text.replace("\\", ""), form
        assert form == "csv" or "unknown" in text
    assert "unequal budgets, trials that finished: agf 2, softmax 1" in texts["text"]
    records = list(csv.DictReader(io.StringIO(texts["csv"])))
    rows = [record for record in records if record["kind"] == "mixer"]
    assert [
        (row["tuning_trials"], row["tuning_dimensions"], row["tuning_flops"]) for row in rows
    ] == [
        ("2", "1", "40000.0"),
        ("1", "1", ""),
    ]
    assert [record["flops"] for record in records if record["kind"] == "search"] == [
        "40000.0",
        "unknown",
    ]


def test_json_says_what_was_spent_too(uneven: Folder, capsys):
    assert main(["report", str(uneven.path), "--json"]) == 0
    final = json.loads(capsys.readouterr().out)["final"]
    assert [row["tuning"] for row in final["rows"]] == [
        {"trials": 2, "dimensions": 1, "flops": 40_000.0, "words": SPENT[0]},
        {"trials": 1, "dimensions": 1, "flops": None, "words": SPENT[1]},
    ]
    (pair,) = final["comparisons"]
    assert UNEQUAL in pair["notes"]
    assert any(UNEQUAL in line for line in final["headlines"])


def test_the_final_study_alone_says_it_by_the_file_of_its_search(uneven: Folder, capsys):
    write_json(uneven.path / SUMMARY, read_summary(uneven.path))
    assert main(["report", str(uneven.path / FINAL), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["tuning"]["words"] for row in document["rows"]] == list(SPENT)
    (uneven.path / SUMMARY).unlink()
    assert main(["report", str(uneven.path / FINAL), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["tuning"]["words"] for row in document["rows"]] == ["unknown", "unknown"]


def test_equal_budgets_are_not_marked(ended: Folder, capsys):
    first, second = Tuning(12, 3, 1e9), Tuning(12, 5, 1.05e9)
    assert unequal(first, second) == unequal(None, None) == ""
    assert unequal(first, Tuning(12, 3, 1.2e9)) == "unequal tuning: 1e+09 FLOPs / 1.2e+09 FLOPs"
    assert unequal(first, None) == "unequal tuning: 12 trials, 3 dims, 1e+09 FLOPs / no search"
    assert (
        unequal(Tuning(), Tuning())
        == "unequal tuning: unknown / unknown trials, FLOPs unknown / FLOPs unknown"
    )
