"""Which runs share a row, and what a row says of them."""

# pyright: reportOptionalMemberAccess=false
from __future__ import annotations

import json

import pytest

from subquad.record.integrity import write_result
from subquad.reports import document_of, read_report


def rows_of(study):
    return read_report([study]).rows


def test_seeds_share_a_row_with_mean_and_sample_deviation(factory):
    study = factory.study()
    for seed, accuracy in enumerate((0.90, 0.92, 0.97)):
        factory.cell(study, seed=seed, accuracy=accuracy, macro_f1=0.5, seconds=60.0 + seed)
    (row,) = rows_of(study)
    assert (row.dataset, row.label, row.protocol, row.seeds) == (
        "JapaneseVowels",
        "agf",
        "honest",
        (0, 1, 2),
    )
    assert (row.score.mean, row.score.std, row.score.count) == (
        pytest.approx(0.93),
        pytest.approx(0.036056, abs=1e-6),
        3,
    )
    assert row.besides["macro_f1"].mean == 0.5
    assert row.measured("seconds").mean == 61.0
    assert (row.counted[0].parameters, row.counted[0].flops_per_step, row.best_epochs) == (
        6_970_899,
        1_234_000_000,
        (2.0, 2.0, 2.0),
    )


def test_one_seed_has_no_deviation(factory):
    (row,) = read_report([factory.run("one")]).rows
    assert (row.score.std, row.score.count) == (None, 1)


@pytest.mark.parametrize(("gpus", "shown"), [(1.0, "123"), (0.0, None)])
def test_memory_is_told_of_gpus_and_not_of_a_process_with_its_libraries(factory, gpus, shown):
    run = factory.run("one", gpus=gpus, memory=123_000_000)
    table = document_of(read_report([run])).sections[0].table
    assert dict(zip(table.columns, table.lines[0], strict=True)).get("peak MB") == shown


def test_protocols_are_never_averaged(factory):
    study = factory.study()
    factory.cell(study, seed=0, accuracy=0.9)
    factory.cell(study, seed=1, accuracy=0.99, protocol="paper", last=0.95)
    honest, paper = rows_of(study)
    assert (honest.score.mean, honest.last_score) == (0.9, None)
    assert (paper.score.mean, paper.last_score.mean) == (0.99, 0.95)


def test_another_varied_setting_makes_another_row_in_order_of_its_values(factory):
    study = factory.study()
    for lr in (1e-2, 1e-3, 3e-3):
        factory.cell(study, train={"lr": lr}, variant=str(lr))
    assert [row.name for row in rows_of(study)] == [
        "agf (lr=0.001)",
        "agf (lr=0.003)",
        "agf (lr=0.01)",
    ]


def test_runs_of_other_settings_are_not_taken_for_seeds(factory):
    """Two single runs, reported together, that differ in seed and width."""
    runs = [factory.run("a", seed=0), factory.run("b", seed=1, backbone={"dim": 256})]
    assert [row.name for row in read_report(runs).rows] == ["agf (dim=128)", "agf (dim=256)"]


def test_workers_do_not_split_a_row_unless_the_study_varies_them(factory):
    study = factory.study()
    for workers in (1, 2):
        path = factory.cell(study, seed=workers, variant=str(workers))
        text = (path / "experiment.yaml").read_text().replace("workers: 1", f"workers: {workers}")
        (path / "experiment.yaml").write_text(text)
    assert len(rows_of(study)) == 1


def test_varied_workers_are_an_axis(factory):
    study = factory.study()
    for workers in (1, 2):
        path = factory.cell(
            study, seed=0, variant=str(workers), axes={"resources.workers": workers}
        )
        text = (path / "experiment.yaml").read_text().replace("workers: 1", f"workers: {workers}")
        (path / "experiment.yaml").write_text(text)
    assert [row.name for row in rows_of(study)] == ["agf (workers=1)", "agf (workers=2)"]


def test_a_study_names_variants_of_one_mixer(factory):
    study = factory.study()
    for order in (3, 5):
        factory.cell(study, label=f"agf-K{order}", params={"order": order}, variant=str(order))
    assert [(row.name, row.mixer) for row in rows_of(study)] == [
        ("agf-K3", "agf"),
        ("agf-K5", "agf"),
    ]


def test_another_text_of_a_mixer_file_is_another_mixer(factory):
    study = factory.study()
    for seed, sha in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb")):
        path = factory.cell(study, seed=seed)
        (path / "source").mkdir()
        (path / "source" / f"{sha}-mine.py").write_text("")
    assert [row.name for row in rows_of(study)] == [
        "agf (source=aaaaaaaaaaaa)",
        "agf (source=bbbbbbbbbbbb)",
    ]


def test_the_newest_of_two_runs_of_one_seed_counts(factory):
    old = factory.run("q/20260101-000000-aa", accuracy=0.5)
    new = factory.run("q/20260102-000000-aa", accuracy=0.9)
    (row,) = read_report([new, old]).rows
    assert (row.score.mean, row.score.count) == (0.9, 1)
    assert row.status() == "1 finished, 1 finished again (a newer run of the seed counts)"


def test_failed_and_unfinished_runs_stay_in_the_table(factory):
    study = factory.study()
    factory.cell(study, seed=0)
    factory.cell(study, seed=1, status="failed", reason="three steps in a row were not finite")
    factory.cell(study, seed=3, status=None)
    factory.cell(study, seed=4, test=False)
    (row,) = rows_of(study)
    assert row.seeds == (0,)
    assert row.status() == (
        "1 finished, 1 failed (three steps in a row were not finite), 1 finished "
        "without a test score, 1 unfinished"
    )


def test_a_row_of_unfinished_runs_only(factory):
    (row,) = read_report([factory.run("one", status=None)]).rows
    assert (row.dataset, row.mixer, row.score, row.counted) == ("JapaneseVowels", "agf", None, ())
    assert row.measured("parameters") is None
    assert row.status() == "1 unfinished"
    assert row.protocol_label == "checkpoint chosen on validation; test opened once"


def test_an_unfinished_run_has_its_siblings_names(factory):
    study = factory.study()
    factory.cell(study, seed=0, label="agf-K4", axes={"dataset": "vowels"})
    factory.cell(study, seed=1, label="agf-K4", axes={"dataset": "vowels"}, status=None)
    (row,) = rows_of(study)
    assert (row.dataset, row.label, row.benchmark, len(row.runs)) == (
        "vowels",
        "agf-K4",
        "JapaneseVowels",
        2,
    )


def test_a_run_without_any_names_has_its_plugins(factory):
    path = factory.run("one", status=None)
    (path / "identity.json").unlink()
    (row,) = read_report([path]).rows
    assert (row.dataset, row.mixer) == ("uea", "agf")


def test_a_score_that_is_no_number_does_not_count(factory):
    (row,) = read_report(
        [factory.run("one", accuracy=None, correct=None, metric="perplexity", mode="min")]
    ).rows
    assert row.score.mean == 0.9
    path = factory.run("two")
    text = (path / "result.json").read_text().replace('"accuracy": 0.9', '"accuracy": null')
    write_result(path, json.loads(text))
    (row,) = read_report([path]).rows
    assert (row.score, row.status()) == (None, "1 finished without a test score")


def test_a_run_given_twice_counts_once(factory):
    study = factory.study()
    run = factory.cell(study)
    assert len(read_report([study, run]).runs) == 1
