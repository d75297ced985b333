"""Rows of guesses without a model in every format, and the sentence that holds mixers against
them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import binomtest

from subquad.reports import document_of, print_document, read_report
from subquad.reports.headlines import _lower_end
from subquad.reports.stats import wilson

GUESSES = {"majority": 0.17, "root_operator": 0.364}


def ends(share: float, samples: int) -> str:
    low, high = wilson(share, samples)
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


BEST = f"the best reference score (root operator 36.4 % {ends(0.364, 2000)})"


@pytest.fixture
def listops(factory):
    """`listops(mixer=[scores])`: a study of runs on 2,000 test samples that recorded both
    guesses.
    """

    def _listops(**scores: list[float]) -> Path:
        study = factory.study()
        for mixer, values in scores.items():
            for seed, accuracy in enumerate(values):
                facts: dict[str, Any] = {
                    "dataset": "lra-listops",
                    "samples": 2000,
                    "reference_scores": GUESSES,
                }
                factory.cell(study, mixer=mixer, seed=seed, accuracy=accuracy, **facts)
        return study

    return _listops


def sentence(study: Path) -> str:
    return read_report([study]).headlines[-1]


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_wilsons(drawn: tuple[int, int]):
    right, samples = drawn
    known = binomtest(right, samples).proportion_ci(0.95, method="wilson")
    assert wilson(right / samples, samples) == pytest.approx((known.low, known.high), abs=1e-12)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_the_share_lies_in_its_interval(right: float):
    for samples in range(1, 3000):
        low, high = wilson(right, samples)
        assert 0 <= low <= right <= high <= 1


def test_markdown_has_the_rows_after_the_mixers_in_italics(listops, as_text):
    text = as_text(read_report([listops(agf=[0.37], softmax=[0.6])]), "md")
    rows = [
        line for line in text.splitlines() if line.startswith(("| lra-listops", "| *lra-listops"))
    ]
    assert [row.split(" | ")[1] for row in rows[:4]] == [
        "agf",
        "softmax",
        "*reference: majority*",
        "*reference: root operator*",
    ]
    assert rows[3].startswith(
        r"| *lra-listops* | *reference: root operator* | *honest* | *–* | *36.40 "
        rf"\[{ends(0.364, 2000)[1:-1]}\]* |"
    )
    assert "| *n = 2,000* |" in rows[2]
    assert {row.count(" | ") for row in rows[:4]} == {rows[0].count(" | ")}
    assert (
        "- reference: a guess without a trained model, learned on TRAIN or not at all: accuracy"
        in text
    )


def test_html_marks_the_rows(listops, as_text):
    html = as_text(read_report([listops(agf=[0.37])]), "html")
    assert html.count('<tr role="row" class="apart">') == 4  # first, and with its interval
    assert 'data-label="mixer">reference: root operator</td>' in html
    assert "<li>reference: a guess without a trained model" in html


@pytest.mark.parametrize("width", [80, 160])
def test_terminals_show_them(listops, width: int):
    stream = io.StringIO()
    report = read_report([listops(agf=[0.37, 0.38])])
    console = Console(file=stream, width=width, color_system=None)
    print_document(document_of(report), console, stats=True)
    shown = stream.getvalue()
    for word in (
        "reference: majority",
        "reference: root operator",
        "36.40",
        ends(0.364, 2000),
        BEST,
    ):
        assert word in shown
    assert f"36.40 {ends(0.364, 2000)}" in shown
    for less_important in ("parameters", "n = 2,000", "2 finished"):
        assert less_important in shown


def test_csv_separates_them_by_kind(listops, as_text):
    records = list(
        csv.DictReader(io.StringIO(as_text(read_report([listops(agf=[0.37])]), "csv"), newline=""))
    )
    assert [record["kind"] for record in records] == ["mixer", "reference", "reference"]
    root = records[2]
    assert (root["mixer"], root["samples"], root["seeds"], root["parameters"]) == (
        "reference: root operator",
        "2000",
        "",
        "",
    )
    low, high = wilson(0.364, 2000)
    found = [float(root[name]) for name in ("score_low", "score_mean", "score_high")]
    assert found == pytest.approx([low, 0.364, high])
    assert (records[0]["samples"], records[0]["score_low"]) == ("2000", "")


def test_json_has_them_in_a_list_of_their_own(listops):
    found = json.loads(
        json.dumps(document_of(read_report([listops(agf=[0.37, 0.38])])).values, allow_nan=False)
    )
    assert [row["kind"] for row in found["rows"]] == ["mixer"]
    root = found["references"][1]
    low, high = wilson(0.364, 2000)
    expected = {
        "kind": "reference",
        "reference": "root_operator",
        "mixer": "reference: root operator",
        "metric": "accuracy",
        "score": {"mean": 0.364, "low": low, "high": high},
        "samples": 2000,
    }
    assert {key: root[key] for key in expected} == expected
    assert len(root["runs"]) == 2


def test_rows_stand_after_those_of_their_own_data_set(listops, factory):
    study = listops(agf=[0.37])
    factory.cell(study, seed=0)  # JapaneseVowels, which recorded none
    factory.cell(
        study,
        seed=0,
        dataset="lra-listops",
        protocol="fixed",
        samples=2000,
        reference_scores={"majority": 0.2},
    )
    table = document_of(read_report([study])).sections[0].table
    assert table is not None
    names = [(line[0], line[2], line[1]) for line in table.lines]
    assert names == [
        ("JapaneseVowels", "honest", "agf"),
        ("lra-listops", "fixed", "agf"),
        ("lra-listops", "fixed", "reference: majority"),
        ("lra-listops", "honest", "agf"),
        ("lra-listops", "honest", "reference: majority"),
        ("lra-listops", "honest", "reference: root operator"),
    ]


def test_runs_without_reference_scores(listops, factory, as_text):
    study = factory.study()
    factory.cell(study, dataset="lra-listops")
    report = read_report([study])
    assert report.references == ()
    assert "reference:" not in as_text(report, "md") + as_text(report, "html").split("</style>")[1]
    assert document_of(report).values["references"] == []
    assert report.headlines == ()


def test_the_sentence_says_who_is_above_and_who_is_not(listops):
    study = listops(
        agf=[0.37, 0.38, 0.375], identity=[0.36, 0.361, 0.362], softmax=[0.60, 0.61, 0.62]
    )
    assert sentence(study) == (
        f"lra-listops (honest): above {BEST}: softmax; not shown to be above it: agf, identity "
        "(scores up to it need no trained model)"
    )


def test_the_sentence_with_one_seed(listops):
    assert sentence(listops(agf=[0.37], softmax=[0.6])) == (
        f"lra-listops (honest): not shown to be above {BEST}: agf (scores up to it "
        "need no trained model); "
        "not enough seeds to place above it: softmax; run more than one seed of each"
    )


def test_seeds_that_differ_widely_show_nothing(listops):
    assert "not shown to be above the best reference score" in sentence(listops(agf=[0.3, 0.6]))
    assert "above the best reference score" in sentence(listops(agf=[0.59, 0.6]))


def test_scores_chosen_on_the_test_split_say_so(factory):
    study = factory.study()
    for seed in range(2):
        factory.cell(
            study, protocol="paper", seed=seed, accuracy=0.9, reference_scores={"majority": 0.1}
        )
    assert sentence(study).endswith("]): agf; these scores were chosen on the test split")


def test_guesses_of_other_data_sets_are_named_plainly(factory, as_text):
    run = factory.run("one", accuracy=0.5, reference_scores={"nearest_\x1bmean|x": 0.7})
    report = read_report([run])
    assert report.references[0].name == "reference: nearest \\x1bmean|x"
    assert report.headlines[-1].endswith(": agf (scores up to it need no trained model)")
    assert r"*reference: nearest \\x1bmean\|x*" in as_text(report, "md")


def test_runs_on_other_data_have_rows_of_their_own(factory):
    study = factory.study()
    for seed, (split, score) in enumerate([(0, 0.2), (0, 0.2), (7, 0.25)]):
        facts = {
            "accuracy": 0.9,
            "reference_scores": {"majority": score},
            "data": {"split_seed": split},
        }
        factory.cell(study, seed=seed, variant=str(split), **facts)
    report = read_report([study])
    assert [
        (reference.name, reference.value, len(reference.runs)) for reference in report.references
    ] == [
        ("reference: majority (split_seed=0)", 0.2, 2),
        ("reference: majority (split_seed=7)", 0.25, 1),
    ]
    assert "(majority (split_seed=0) 20.0 %" in report.headlines[-1]
    assert "(majority (split_seed=7) 25.0 %" in report.headlines[-1]


def test_runs_that_disagree_without_a_reason_are_counted(factory):
    study = factory.study()
    for seed, score in enumerate([0.2, 0.2, 0.25]):
        factory.cell(study, seed=seed, accuracy=0.9, reference_scores={"majority": score})
    report = read_report([study])
    assert [reference.label for reference in report.references] == [
        "majority (2 of 3 runs)",
        "majority (1 of 3 runs)",
    ]
    assert "(majority (1 of 3 runs) 25.0 %" in report.headlines[-1]


def test_a_mixer_without_recorded_guesses_is_named(listops, factory):
    study = listops(agf=[0.5, 0.51])
    factory.cell(study, dataset="lra-listops", mixer="softmax", samples=2000, accuracy=0.9)
    assert sentence(study).endswith("]): agf; no reference score recorded beside softmax")


def test_another_metric_is_not_held_against_accuracies(factory, as_text):
    study = factory.study()
    factory.cell(study, metric="macro_f1", accuracy=0.9, reference_scores=GUESSES)
    report = read_report([study])
    assert report.headlines == ()
    assert report.references == ()
    assert "reference:" not in as_text(report, "md")


def test_the_lower_end_adds_seeds_and_samples_in_squares(listops):
    (row,) = read_report([listops(agf=[0.5, 0.52, 0.54])]).rows
    of_seeds = 4.302652729911275 * 0.02 / math.sqrt(3)
    of_samples = 0.52 - wilson(0.52, 2000)[0]
    assert row.score
    assert _lower_end(row.score, wilson(0.52, 2000)[0]) == pytest.approx(
        0.52 - math.hypot(of_seeds, of_samples)
    )
