"""Tasks that select by one metric and are compared by others of the test split, where less may
be better.
"""

# pyright: reportOptionalMemberAccess=false
from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.plugin.metric import Metric
from subquad.record.files import parse_object
from subquad.record.integrity import write_result
from subquad.reports import Report, document_of, read_report
from subquad.reports.drawing import curve_chart, training_charts

SUMMARIES: dict[str, Any] = {
    "metric": "loss",
    "mode": "min",
    "tested": {"rougeL": "max", "rouge1": "max", "rouge2": "max"},
    "dataset": "pubmed",
}
GUESS = {"rougeL": {"lead-3": 0.2}, "rouge1": {"lead-3": 0.31}}
DOCUMENTS = np.random.default_rng(0).uniform(0.1, 0.3, 400)


def summaries(study: Path, factory, **facts: Any) -> None:
    """`mixer=ROUGE-L` of one seed each, and the guess lead-3."""
    scores = {
        "rougeL": facts["rouge"],
        "rouge1": 0.4,
        "rouge2": 0.15,
        "rougeL_low": 0.2,
        "rougeL_high": 0.26,
    }
    factory.cell(
        study,
        **{**SUMMARIES, "accuracy": 2.5, "scores": scores, "reference_scores": GUESS, **facts},
    )


@pytest.fixture
def report(factory) -> Report:
    study = factory.study()
    for mixer, rouge in {"identity": 0.231, "mdfwa": 0.24}.items():
        summaries(study, factory, mixer=mixer, rouge=rouge)
    return read_report([study])


def test_rows_compare_the_first_tested_metric_and_show_the_others(report):
    first = report.rows[0]
    assert (first.metric, first.compared.mode, first.score.mean, list(first.besides)) == (
        "rougeL", "max", 0.231, ["rouge1", "rouge2"],
    )  # fmt: skip
    table = document_of(report).sections[0].table
    line = dict(zip(table.columns, table.lines[0], strict=True))
    assert line["test ROUGE-L"] == "23.10 [20.0, 26.0]"
    assert (line["ROUGE-1"], line["ROUGE-2"]) == ("40.00", "15.00")
    assert not {"rougeL_low", "macro-F1 (%)", "loss"} & set(table.columns)
    note = "ROUGE-L of a mixer [95 % interval over the test samples, mean over the seeds]"
    assert note in document_of(report).sections[0].notes


def test_references_of_the_compared_metric_stand_in_the_table_without_an_interval(report, as_text):
    table = document_of(report).sections[0].table
    line = dict(zip(table.columns, table.lines[-1], strict=True))
    assert (line["mixer"], line["test ROUGE-L"], line["ROUGE-1"], line["ROUGE-2"]) == (
        "reference: lead-3", "20.00", "31.00", "–",
    )  # fmt: skip
    assert "Wilson" not in as_text(report, "md")
    records = list(csv.DictReader(io.StringIO(as_text(report, "csv"), newline="")))
    assert [(record["kind"], record["score_mean"]) for record in records] == [
        ("mixer", "0.231"), ("mixer", "0.24"), ("reference", "0.2"),
    ]  # fmt: skip
    assert "score_low" not in records[-1]
    assert records[0]["besides_rouge2_mean"] == "0.15"
    assert report.headlines == ()


def test_references_with_an_interval_are_what_mixers_are_held_against(factory, as_text):
    guess = {**GUESS, "rougeL_low": {"lead-3": 0.19}, "rougeL_high": {"lead-3": 0.21}}
    study = factory.study()
    for mixer, rouge in {"identity": 0.2, "mdfwa": 0.24, "led": 0.22}.items():
        for seed in range(2):
            ends = {"rougeL_low": rouge - 0.015, "rougeL_high": rouge + 0.015}
            scores = {"rougeL": rouge + 1e-4 * seed, **ends}
            summaries(
                study,
                factory,
                mixer=mixer,
                seed=seed,
                rouge=rouge,
                scores=scores,
                reference_scores=guess,
            )
    report = read_report([study])
    assert report.headlines[-1] == (
        "pubmed (honest): above the best reference score (lead-3 20.0 [19.0, "
        "21.0]): mdfwa; not shown to be above it: "
        "identity, led (scores up to it need no trained model)"
    )
    assert r"20.00 \[19.0, 21.0\]" in as_text(report, "md")


def test_charts_while_training_show_what_selects(report):
    assert [chart.y_label for chart in training_charts(report)] == ["loss", "loss"]


def test_curves_choose_by_the_metric_and_mode_that_select(factory):
    """Validation loss is least where the loss of the best checkpoint is, whatever ROUGE says."""
    study = factory.study()
    for lr, loss, rouge in ((1e-3, 2.5, 0.3), (1e-2, 2.1, 0.2)):
        summaries(study, factory, accuracy=loss, rouge=rouge, train={"lr": lr}, variant=str(lr))
    (curve,) = read_report([study]).curves
    assert curve.sentence.endswith("validation would choose 0.01, test 20.00")
    table = next(
        section.table
        for section in document_of(read_report([study])).sections
        if section.title.startswith("Varied")
    )
    assert table.columns[1:3] == ("validation loss", "test ROUGE-L")
    assert table.lines[0][1:3] == ("2.5", "30.00 [20.0, 26.0]")
    assert "validation" not in [line.name for line in curve_chart(curve).lines]


def pair(factory, kept: Any, **facts: Any):
    """The only comparison of two mixers with two seeds each, whose documents differ by 0.01
    throughout.
    """
    study = factory.study()
    for mixer, gain in {"identity": 0.0, "mdfwa": 0.01}.items():
        for seed in range(2):
            scores = (
                DOCUMENTS + gain + 1e-4 * seed + np.random.default_rng(seed).normal(0, 1e-3, 400)
            )
            own = {"rouge": float(scores.mean()), "kept": kept(scores)}
            summaries(study, factory, mixer=mixer, seed=seed, **own, **facts.get(mixer, {}))
    (found,) = read_report([study], baseline="identity").comparisons
    return found


def test_documents_are_paired_by_what_each_scored(factory):
    found = pair(factory, lambda scores: {"rougeL": scores.astype(np.float32)})
    assert (found.basis, found.notes) == ("test samples and seeds", ())
    assert found.verdict == "distinguishable"
    assert found.estimate.difference == pytest.approx(0.01, abs=2e-4)
    # unpaired, the documents' spread alone makes it 0.016
    assert found.estimate.high - found.estimate.low < 0.003
    assert found.estimate_texts[0] == "1.0"


@pytest.mark.parametrize(
    ("kept", "facts", "note"),
    [
        (lambda scores: {"rougeL": scores + 1}, {}, "does not give the rougeL in result.json"),
        (lambda scores: {"rouge1": scores}, {}, "rougeL is compared over seeds"),
        (
            lambda scores: {"rougeL": scores},
            {"mdfwa": {"data": {"split_seed": 7}}},
            "the test samples differ",
        ),
    ],
)
def test_documents_that_cannot_be_paired(factory, kept, facts, note: str):
    found = pair(factory, kept, **facts)
    assert found.basis == "seeds"
    assert any(note in sentence for sentence in found.notes)


def test_the_worst_reference_comes_first_where_less_is_better(factory):
    guesses = {"perplexity": {"unigram": 900.0, "bigram": 200.0}}
    facts = {
        "metric": "perplexity",
        "mode": "min",
        "tested": {"perplexity": "min", "bits_per_byte": "min"},
    }
    run = factory.run(
        "one", accuracy=20.123, scores={"bits_per_byte": 1.23456}, reference_scores=guesses, **facts
    )
    table = document_of(read_report([run])).sections[0].table
    assert [line[1] for line in table.lines] == ["agf", "reference: unigram", "reference: bigram"]
    line = dict(zip(table.columns, table.lines[0], strict=True))
    assert (line["test perplexity"], line["bits per byte"]) == ("20.12", "1.235")


def test_results_of_before_compare_what_selects(factory):
    run = factory.run("one")
    text = (run / "result.json").read_text()
    known = parse_object(text)
    write_result(
        run, {key: value for key, value in known.items() if key not in ("tested", "files")}
    )
    (row,) = read_report([run]).rows
    assert (row.metric, row.compared.mode, row.besides) == ("accuracy", "max", {})


def test_words_and_units():
    assert Metric(unit="points").points(0.0123) == "1.2"
    rouge, f1 = Metric(label="ROUGE-2", unit="points"), Metric(label="macro-F1", unit="%")
    assert (rouge.with_unit, rouge.points_word) == ("ROUGE-2", "points")
    assert (f1.with_unit, Metric(label="bits per byte").with_unit) == (
        "macro-F1 (%)",
        "bits per byte",
    )
