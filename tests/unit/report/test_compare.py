"""Pairs of mixers: what is compared, over what, and the verdicts; and the sentences made of
them.
"""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
from __future__ import annotations

import numpy as np
import pytest
from result_file import read_result
from safetensors.numpy import save_file

from subquad.record.integrity import write_result
from subquad.record.names import STUDY
from subquad.reports import read_report
from subquad.reports.reported_run import setting_text


def fill(factory, study, wrong: dict[str, list[int]], samples: int = 400, **facts):
    """One run per mixer and seed with so many wrong answers, each run's errors at another place."""
    for place, (mixer, errors) in enumerate(wrong.items()):
        for seed, count in enumerate(errors):
            correct = np.ones(samples, dtype=bool)
            correct[(np.arange(count) * 3 + 40 * place + 7 * seed) % samples] = False
            factory.cell(study, mixer=mixer, seed=seed, correct=correct, **facts)


def only(report):
    (pair,) = report.comparisons
    return pair


def test_a_mixer_that_beats_the_control(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22, 21], "identity": [130, 133, 128]})
    report = read_report([study], baseline="identity")
    pair = only(report)
    assert (pair.first.label, pair.second.label, pair.verdict) == (
        "agf",
        "identity",
        "distinguishable",
    )
    assert (pair.seeds, pair.basis) == (3, "test samples and seeds")
    assert pair.estimate.difference == pytest.approx((391 - 63) / 1200, abs=1e-9)
    assert pair.adjusted == pair.estimate.p_value < 0.001
    low, high = 100 * pair.estimate.low, 100 * pair.estimate.high
    assert report.headlines == (
        "JapaneseVowels (honest): agf beats the baseline identity by 27.3 points "
        f"[{low:.1f}, {high:.1f}]",
    )


def test_a_mixer_that_falls_behind_the_control(factory):
    study = factory.study()
    fill(factory, study, {"agf": [130, 133, 128], "identity": [20, 22, 21]})
    (line,) = read_report([study], baseline="identity").headlines
    assert line.startswith(
        "JapaneseVowels (honest): agf falls behind the baseline identity by 27.3 points ["
    )


def test_equal_predictions_are_not_distinguishable(factory, answers):
    study = factory.study()
    for mixer in ("agf", "softmax", "identity"):
        for seed in range(3):
            factory.cell(study, mixer=mixer, seed=seed, correct=answers(370, 9, seed))
    report = read_report([study], baseline="identity")
    assert [comparison.verdict for comparison in report.comparisons] == ["not distinguishable"] * 3
    assert all(
        comparison.estimate.difference == 0
        and comparison.estimate.low < 0 < comparison.estimate.high
        for comparison in report.comparisons
    )
    assert report.headlines == (
        "JapaneseVowels (honest): agf, softmax: not distinguishable from the baseline identity, "
        "differences of -0.6 to 0.6 points not excluded: this data set cannot tell "
        "mixers apart in this setting",
    )


def test_seeds_that_spread_are_too_few_rather_than_the_data_set_being_blind(factory):
    study = factory.study()
    fill(factory, study, {"agf": [10, 70], "identity": [90, 150]})
    (line,) = read_report([study], baseline="identity").headlines
    assert line.endswith(" points not excluded: too few seeds to tell")


def test_mixers_that_differ_from_each_other_take_the_last_words_away(factory):
    study = factory.study()
    fill(factory, study, {"agf": [60, 62, 61], "sfpc": [10, 12, 11], "identity": [58, 60, 62]})
    (line,) = read_report([study], baseline="identity").headlines
    assert "sfpc beats the baseline identity by 12.3 points" in line
    assert "; agf: not distinguishable from the baseline identity, differences of " in line
    assert line.endswith(" points not excluded")


def test_holm_over_the_pairs_of_a_data_set(factory):
    """A difference that passes alone fails among ten pairs of mixers."""
    alone, among = factory.study("alone"), factory.study("among")
    wrong = {"agf": [20, 21, 22], "identity": [23, 25, 24]}
    fill(factory, alone, wrong)
    fill(factory, among, {**wrong, "a": [20, 21, 22], "b": [21, 22, 20], "c": [22, 20, 21]})
    first = only(read_report([alone], baseline="identity"))
    same = next(
        comparison
        for comparison in read_report([among], baseline="identity").comparisons
        if (comparison.first.label, comparison.second.label) == ("agf", "identity")
    )
    assert first.adjusted == first.estimate.p_value
    assert same.adjusted > same.estimate.p_value
    # the other mixers' seeds tell how much seeds vary
    assert same.estimate.freedom > first.estimate.freedom
    assert (first.verdict, same.verdict) == ("distinguishable", "not distinguishable")


def test_one_seed_gets_an_interval_but_no_verdict(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20], "identity": [130]})
    report = read_report([study], baseline="identity")
    pair = only(report)
    assert (pair.verdict, pair.basis, pair.adjusted) == ("not enough seeds", "test samples", None)
    assert pair.estimate.low > 0.2
    assert report.headlines[0].endswith(
        "agf: not enough seeds to compare with the baseline identity; run more "
        "than one seed of each"
    )


def test_without_predictions_seeds_are_compared(factory):
    study = factory.study()
    for mixer, scores in {"agf": (0.95, 0.96, 0.97), "identity": (0.30, 0.33, 0.36)}.items():
        for seed, score in enumerate(scores):
            factory.cell(study, mixer=mixer, seed=seed, accuracy=score)
    pair = only(read_report([study], baseline="identity"))
    assert (pair.basis, pair.verdict, pair.notes) == (
        "seeds",
        "distinguishable",
        ("no predictions were kept",),
    )


def test_without_predictions_one_seed_is_not_enough(factory):
    study = factory.study()
    for mixer in ("agf", "identity"):
        factory.cell(study, mixer=mixer, accuracy=0.5)
    pair = only(read_report([study], baseline="identity"))
    assert (pair.estimate, pair.verdict, pair.basis) == (None, "not enough seeds", "none")


def test_a_metric_without_predictions_to_pair_is_compared_over_seeds_the_right_way_round(factory):
    study = factory.study()
    for mixer, scores in {"agf": (3.0, 3.1, 3.2), "identity": (9.0, 9.3, 9.6)}.items():
        for seed, score in enumerate(scores):
            facts = {"metric": "perplexity", "mode": "min", "kept": {"loss": np.ones(7)}}
            factory.cell(study, mixer=mixer, seed=seed, accuracy=score, **facts)
    report = read_report([study], baseline="identity")
    assert only(report).notes == ("perplexity is compared over seeds",)
    assert "agf beats the baseline identity by 6.2 perplexity [" in report.headlines[0]


def test_each_side_counts_with_all_its_seeds(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22, 27], "identity": [130, 133]})
    pair = only(read_report([study], baseline="identity"))
    assert (pair.seeds, pair.notes) == (2, ())
    assert pair.estimate.difference == pytest.approx((131.5 - 23) / 400)


def test_other_test_samples_are_not_paired(factory, answers):
    study = factory.study()
    for seed in range(2):
        factory.cell(study, mixer="agf", seed=seed, correct=answers(400, 9))
        factory.cell(study, mixer="identity", seed=seed, correct=answers(399, 9))
    assert only(read_report([study], baseline="identity")).notes == (
        "the test samples differ between the runs",
    )


@pytest.mark.parametrize("content", [b"", b"\xff" * 64])
def test_predictions_that_cannot_be_read(factory, answers, content: bytes):
    study = factory.study()
    for mixer in ("agf", "identity"):
        path = factory.cell(study, mixer=mixer, correct=answers(400, 9))
        (path / "predictions.safetensors").write_bytes(content)
        if mixer == "agf":
            write_result(path, read_result(path) or {})
    (note,) = only(read_report([study], baseline="identity")).notes
    assert note.startswith(
        "predictions.safetensors of study/cells/JapaneseVowels-agf-honest-0-x cannot be read"
    )


def test_other_predictions_than_those_of_the_result_are_not_used(factory, answers):
    study = factory.study()
    for mixer in ("agf", "identity"):
        path = factory.cell(study, mixer=mixer, correct=answers(400, 9))
    label = np.arange(400) % 9
    save_file(
        {"predicted": label[::-1].copy(), "label": label[::-1].copy()},
        path / "predictions.safetensors",
    )
    report = read_report([study], baseline="identity")
    (note,) = only(report).notes
    assert note == (
        "predictions.safetensors of study/cells/JapaneseVowels-identity-honest-0-x "
        "is not what the result was made of"
    )
    assert [row.status() for row in report.rows] == [
        "1 finished",
        "1 not verified (predictions.safetensors has changed: its sha256 differs "
        "from its manifest)",
    ]


def test_predictions_of_another_evaluation_are_not_used(factory, answers):
    study = factory.study()
    for mixer in ("agf", "identity"):
        factory.cell(study, mixer=mixer, correct=answers(400, 9), accuracy=0.5)
    (note,) = only(read_report([study], baseline="identity")).notes
    assert note.endswith("does not give the accuracy in result.json")


def test_settings_that_differ_beside_the_mixer_are_named(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22]}, train={"lr": 1e-3}, params={"order": 4})
    fill(factory, study, {"identity": [20, 22]}, train={"lr": 3e-4})
    assert only(read_report([study], baseline="identity")).notes == (
        "settings differ too: train.lr 0.001 / 0.0003",
    )


def test_mixers_of_some_layers_are_said_in_words():
    entries = [
        {"name": "cur", "params": {"num_indices": 16}, "layers": ["0..2", -1], "role": None},
        {"name": "identity", "layers": None, "role": "cross"},
    ]
    assert setting_text(entries) == "cur in layers 0..2, -1 (num_indices 16); identity for cross"
    assert (
        setting_text([1, 2]),
        setting_text("text"),
        setting_text(None),
        setting_text([]),
    ) == (
        "[1, 2]",
        "text",
        "null",
        "[]",
    )


def test_swept_settings_are_compared_at_the_same_value(factory):
    study = factory.study()
    for lr in (1e-3, 3e-4):
        fill(
            factory,
            study,
            {"agf": [20, 22], "identity": [30, 31]},
            train={"lr": lr},
            variant=str(lr),
        )
    pairs = {
        (comparison.first.name, comparison.second.name)
        for comparison in read_report([study], baseline="identity").comparisons
    }
    assert ("agf (lr=0.001)", "identity (lr=0.001)") in pairs
    assert ("agf (lr=0.001)", "identity (lr=0.0003)") not in pairs


def test_protocols_are_not_compared_with_each_other(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22]})
    fill(factory, study, {"identity": [30, 31]}, protocol="paper")
    report = read_report([study], baseline="identity")
    assert report.comparisons == ()
    assert report.headlines == (
        "JapaneseVowels (honest): no two test scores to compare, of the baseline identity and of "
        "another mixer",
        "JapaneseVowels (paper): no two test scores to compare, of the baseline identity and of "
        "another mixer",
    )


def test_scores_chosen_on_the_test_split_are_compared_with_a_warning(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22], "identity": [30, 31]}, protocol="paper")
    assert only(read_report([study], baseline="identity")).notes == (
        "both scores were chosen on the test split, which the interval does not account for",
    )


def test_the_baseline_is_the_one_that_the_study_names(factory):
    study = factory.study()
    (study / STUDY).write_text("name: study\nbaseline: softmax\n")
    fill(factory, study, {"agf": [20, 22, 21], "softmax": [130, 133, 128]})
    report = read_report([study])
    assert report.baseline == "softmax"
    assert report.headlines[0].startswith(
        "JapaneseVowels (honest): agf beats the baseline softmax by 27.3 points"
    )
    assert read_report([study], baseline="").headlines == ()


def test_another_control(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20, 22, 21], "softmax": [130, 133, 128]})
    (line,) = read_report([study], baseline="softmax").headlines
    assert line.startswith("JapaneseVowels (honest): agf beats the baseline softmax by 27.3 points")


def test_a_control_without_scores(factory):
    study = factory.study()
    fill(factory, study, {"agf": [20]})
    factory.cell(study, mixer="identity", status="failed", reason="diverged")
    assert read_report([study], baseline="identity").headlines == (
        "JapaneseVowels (honest): no two test scores to compare, of the baseline identity and of "
        "another mixer",
    )
