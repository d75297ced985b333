"""Means over data sets in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from subquad.reports import document_of, print_document, read_report

SCORES = {
    ("A", "agf"): [0.9, 0.8],
    ("B", "agf"): [0.5, 0.4],
    ("C", "agf"): [0.1, 0.3],
    ("A", "softmax"): [0.7, 0.7],
    ("B", "softmax"): [0.6, 0.6],
    ("C", "softmax"): [0.2, 0.2],
}
ONE_NN = {"A": 0.75, "B": 0.25}


@pytest.fixture
def study(factory):
    def make(scores=SCORES, **facts):
        folder = factory.study()
        for (dataset, mixer), values in scores.items():
            guesses = {"one_nn": ONE_NN[dataset]} if dataset in ONE_NN else {}
            for seed, value in enumerate(values):
                more = {"reference_scores": {**guesses, "majority": 0.1}, "samples": 100, **facts}
                factory.cell(
                    folder, dataset=dataset, mixer=mixer, seed=seed, accuracy=value, **more
                )
        return folder

    return make


def means(folder):
    return [
        (
            mean.name,
            mean.datasets,
            round(mean.score.mean, 6),
            mean.score.std and round(mean.score.std, 6),
        )
        for mean in read_report([folder]).means
    ]


def test_each_data_set_weighs_the_same_and_the_spread_is_over_seeds(study):
    everything, some = ("A", "B", "C"), ("A", "B")
    assert means(study()) == [
        ("agf", everything, 0.5, 0.0),
        ("softmax", everything, 0.5, 0.0),
        ("reference: majority", everything, 0.1, None),
        ("agf", some, 0.65, pytest.approx(0.070711)),
        ("softmax", some, 0.65, 0.0),
        ("reference: majority", some, 0.1, None),
        ("reference: one nn", some, 0.5, None),
    ]


def test_a_mixer_that_lacks_a_data_set_is_not_averaged_over_fewer(study):
    scores = {key: value for key, value in SCORES.items() if key != ("C", "softmax")}
    assert [row[:2] for row in means(study(scores)) if row[0] in ("agf", "softmax")] == [
        ("agf", ("A", "B", "C")),
        ("agf", ("A", "B")),
        ("softmax", ("A", "B")),
    ]


def test_without_common_seeds_there_is_no_spread(study):
    found = means(study(SCORES | {("C", "agf"): [0.2]}))
    assert found[0] == ("agf", ("A", "B", "C"), 0.5, None)


def test_protocols_are_not_mixed(factory):
    folder = factory.study()
    for dataset, protocol in (("A", "honest"), ("B", "paper")):
        factory.cell(folder, dataset=dataset, protocol=protocol, accuracy=0.5)
    assert read_report([folder]).means == ()


def test_two_variants_of_a_mixer_on_one_data_set_are_not_averaged(factory):
    folder = factory.study()
    for order in (2, 3):
        factory.cell(folder, dataset="A", params={"order": order}, variant=str(order), accuracy=0.5)
        factory.cell(folder, dataset="B", params={"order": order}, variant=str(order), accuracy=0.5)
    assert read_report([folder]).means == ()


def test_every_format_shows_them(study, as_text):
    report = read_report([study()])
    console = Console(width=120, record=True, file=io.StringIO())
    print_document(document_of(report), console, stats=True)
    shown = console.export_text()
    assert "mean test accuracy (%)" in shown
    assert any(
        line.split() == ["all", "3", "agf", "honest", "2", "50.00", "±", "0.00", "1.50"]
        for line in shown.splitlines()
    )
    text = as_text(report, "md")
    assert "| all 3 | agf | honest | 2 | 50.00 ± 0.00 | 1.50 |" in text
    assert "| *2 of 3, not C* | *reference: one nn* | *honest* | *–* | *50.00* | *–* |" in text
    assert "Means over data sets" in as_text(report, "html")
    rows = [
        row for row in csv.DictReader(io.StringIO(as_text(report, "csv"))) if "mean" in row["kind"]
    ]
    assert [rows[0][key] for key in ("datasets", "mixer", "score_count", "score_mean")] == [
        "A; B; C",
        "agf",
        "2",
        "0.5",
    ]
    assert rows[-1]["kind"] == "reference mean"
    plain = json.loads(json.dumps(dict(document_of(report).values)))["means"]
    assert plain[3]["datasets"] == ["A", "B"]
    assert plain[3]["score"]["mean"] == pytest.approx(0.65)


def test_a_single_data_set_has_no_mean(factory, as_text):
    folder = factory.study()
    factory.cell(folder, accuracy=0.5)
    report = read_report([folder])
    assert report.means == ()
    assert "Means over" not in as_text(report, "md") + as_text(report, "html")
