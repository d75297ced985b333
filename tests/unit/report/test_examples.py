"""Sample texts of models beside their targets: untrusted text, in every format."""

# pyright: reportOptionalMemberAccess=false
from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from subquad.reports import Report, document_of, print_document, read_report

HOSTILE = (
    "<script>alert(1)</script> \\input{/etc/passwd} $x^2$ 50% [a](http://b) \x1b[31mred \u202e|&_#"
)


def written(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"examples": [{"target": target, "answer": answer} for target, answer in pairs]}


@pytest.fixture
def report(factory) -> Report:
    study = factory.study()
    for mixer, answer in {"agf": "a good summary", "cur": HOSTILE}.items():
        for seed in range(2):
            files = written(("the target\none", f"{answer} {seed}"), ("the second", ""))
            factory.cell(study, mixer=mixer, seed=seed, **files)
    return read_report([study])


def terminal(report: Report, width: int = 100) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=True)
    print_document(document_of(report), console, stats=True)
    return stream.getvalue()


def table_of(report: Report):
    return next(
        section.table for section in document_of(report).sections if section.title == "Sample texts"
    )


def test_each_target_stands_before_what_the_first_seed_of_each_row_wrote(report):
    lines = [line[1:] for line in table_of(report).lines]
    assert [line[:2] for line in lines] == [
        ("1", "target"), ("1", "agf"), ("1", "cur"), ("2", "target"), ("2", "agf"), ("2", "cur"),
    ]  # fmt: skip
    assert [line[2] for line in lines[:2]] == ["the target one", "a good summary 0"]
    assert lines[-1][2] == "(nothing)"
    assert list(table_of(report).apart) == [0, 3]


def test_no_text_runs_or_steers_anything(report, as_text):
    page = as_text(report, "html")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    markdown = as_text(report, "md")
    assert r"\[a\](http://b)" in markdown
    assert r"\|&amp;\_#" in markdown
    for text in (page, markdown, as_text(report, "csv"), terminal(report)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_spreadsheet_runs_no_text(factory, as_text):
    run = factory.run("one", **written(("=1+1", "@sum")))
    records = list(csv.DictReader(io.StringIO(as_text(read_report([run]), "csv"), newline="")))
    (example,) = [record for record in records if record["kind"] == "example"]
    assert (example["target"], example["answer"], example["sample"]) == ("'=1+1", "'@sum", "1")


def test_json_has_whole_texts_and_tables_their_beginning(factory):
    long = "word " * 200
    run = factory.run("one", **written((long, "first"), ("other", "second")))
    assert long not in terminal(read_report([run]))
    values = document_of(read_report([run])).values["examples"]
    assert [(example["target"], example["answer"]) for example in values] == [
        (long.strip(), "first"),
        ("other", "second"),
    ]
    assert len(table_of(read_report([run])).lines[0][-1]) == 400


def test_runs_without_texts_have_no_such_section(factory, as_text):
    assert "Sample texts" not in as_text(read_report([factory.run("one")]), "md")


def test_rows_below_several_references_are_told_of_each(factory):
    study = factory.study()
    guess = {"rougeL": {"lead-3": 0.12, "constant text": 0.22}}
    for end, shift in (("low", -0.01), ("high", 0.01)):
        guess[f"rougeL_{end}"] = {name: value + shift for name, value in guess["rougeL"].items()}
    for mixer, rouge in {"agf": 0.08, "cur": 0.18, "mega": 0.3}.items():
        summaries(study, factory, mixer, rouge, guess)
    assert read_report([study]).headlines[-1] == (
        "pubmed (honest): above the best reference score (constant text 22.0 "
        "[21.0, 23.0]): mega; not shown to be "
        "above it: agf, cur (scores up to it need no trained model)"
    )


def summaries(study: Path, factory, mixer: str, rouge: float, guess: dict[str, Any]) -> None:
    """Two seeds with the same ROUGE-L."""
    for seed in range(2):
        factory.cell(
            study,
            mixer=mixer,
            seed=seed,
            dataset="pubmed",
            metric="loss",
            mode="min",
            tested={"rougeL": "max"},
            scores={"rougeL": rouge, "rougeL_low": rouge - 0.01, "rougeL_high": rouge + 0.01},
            reference_scores=guess,
        )


def test_what_the_runs_say_stands_below_the_table_in_every_text(factory, as_text):
    run = factory.run("one", notes=["texts are degenerate: all the same"])
    report = read_report([run])
    for form in ("md", "html", "tex", "csv"):
        assert "texts are degenerate: all the same" in as_text(report, form)
    assert "texts are degenerate: all the same" in terminal(report)
