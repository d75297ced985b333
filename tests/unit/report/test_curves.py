"""Settings that take several values: curves, published rows, sentences, pictures."""

from __future__ import annotations

import csv
import io
import json
import xml.dom.minidom

import numpy as np
import pytest
from rich.console import Console

from subquad.experiment import dump, load_study
from subquad.record.files import write_json
from subquad.record.integrity import write_result
from subquad.record.names import EXPERIMENT, IDENTITY
from subquad.reports import document_of, print_document, read_report, write_document
from subquad.reports.beside import printed_values, published_beside
from subquad.reports.curves import Curve, _expected_range
from subquad.reports.drawing import curve_chart

ORDER = "mixer.params.order"
AGF = {"order": 5, "ortho_weight": 0.1, "jacobi_a": 1.5, "jacobi_b": 1.0}


def vary(factory, folder, values, *, seeds=3, key="order", **facts):
    """Runs of one varied parameter, {value: accuracy}."""
    for value, accuracy in values.items():
        for seed in range(seeds):
            known = {"params": {**AGF, key: value}, "variant": f"{key}{value}", **facts}
            factory.cell(folder, seed=seed, accuracy=accuracy + 0.01 * (seed - 1), **known)


@pytest.fixture
def listops(factory):
    """Orders 3, 5 and 7 on ListOps, whose published accuracies are 37.0, 38.0 and 37.3."""
    folder = factory.study()
    vary(
        factory,
        folder,
        {5: 0.38, 3: 0.30, 7: 0.37},
        dataset="lra-listops",
        published="listops",
        samples=2000,
    )
    return folder


@pytest.fixture
def star(listops, factory):
    """The same, and jacobi_a 2.0 around order 5."""
    vary(
        factory,
        listops,
        {2.0: 0.36},
        key="jacobi_a",
        dataset="lra-listops",
        published="listops",
        samples=2000,
    )
    return listops


def only(report) -> Curve:
    (curve,) = report.curves
    return curve


def reasons_of(curve: Curve) -> set[str]:
    return {
        reason
        for row in curve.rows
        for beside in published_beside(row, curve.key)
        for reason in beside.reasons
    }


def test_values_in_order(listops):
    curve = only(read_report([listops]))
    assert (curve.key, curve.title) == (ORDER, "lra-listops, agf (honest): order")
    assert [(curve.value(row), row.name, len(row.counted)) for row in curve.rows] == [
        ("3", "agf (order=3)", 3),
        ("5", "agf (order=5)", 3),
        ("7", "agf (order=7)", 3),
    ]


def test_settings_around_one_base(star):
    report = read_report([star])
    assert [row.name for row in report.rows] == [
        "agf (base)",
        "agf (jacobi_a=2.0)",
        "agf (order=3)",
        "agf (order=7)",
    ]
    assert [(curve.title, [row.name for row in curve.rows]) for curve in report.curves] == [
        ("lra-listops, agf (honest): jacobi_a", ["agf (base)", "agf (jacobi_a=2.0)"]),
        ("lra-listops, agf (honest): order", ["agf (order=3)", "agf (base)", "agf (order=7)"]),
    ]
    assert report.comparisons == ()
    assert {
        row.name: [beside.published.reference for beside in report.beside[row]]
        for row in report.rows
    } == {
        "agf (base)": ["wi2025agf Table 2"],
        "agf (jacobi_a=2.0)": ["wi2025agf Table 16"],
        "agf (order=3)": ["wi2025agf Table 15"],
        "agf (order=7)": ["wi2025agf Table 15"],
    }


def test_a_grid_has_a_curve_along_each_axis(factory):
    folder = factory.study()
    for lr in (0.1, 0.01):
        vary(factory, folder, {5: 0.38, 3: 0.36}, train={"lr": lr}, variant=f"lr{lr}")
        vary(factory, folder, {3: 0.36}, train={"lr": lr}, variant=f"order3-lr{lr}")
        vary(factory, folder, {5: 0.38}, train={"lr": lr}, variant=f"order5-lr{lr}")
    assert [curve.title.partition(": ")[2] for curve in read_report([folder]).curves] == [
        *("order at lr=0.01", "order at lr=0.1", "lr at order=3", "lr at order=5"),
    ]


def test_settings_that_change_together_are_no_curve(factory):
    folder = factory.study()
    factory.cell(folder, params={**AGF, "order": 3}, train={"lr": 0.1}, variant="a")
    factory.cell(folder, params={**AGF, "order": 5}, train={"lr": 0.2}, variant="b")
    assert read_report([folder]).curves == ()


def test_each_value_stands_beside_the_printed_one(listops):
    curve = only(read_report([listops]))
    found = [beside.published for row in curve.rows for beside in published_beside(row, curve.key)]
    assert [(row.model, row.value) for row in found] == [
        ("AGF K=3", 37.0),
        ("AGF K=5", 38.0),
        ("AGF K=7", 37.3),
    ]
    assert [value for value, *_ in printed_values(curve.rows[0], curve.key)] == [3, 4, 5, 6, 7]


def test_a_published_value_is_held_to_the_conditions_of_the_main_table_with_its_own_value(listops):
    reasons = reasons_of(only(read_report([listops])))
    assert "epochs 4, published 100" not in reasons  # UEA's
    assert any(reason.startswith("width 128, published 64") for reason in reasons)
    assert not any(reason.startswith(("order", "jacobi", "ortho_weight")) for reason in reasons)


def test_another_base_than_the_published_one_is_named(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.30}, dataset="lra-listops", published="listops")
    for run in folder.glob("cells/*/experiment.yaml"):
        run.write_text(run.read_text().replace("jacobi_a: 1.5", "jacobi_a: 2.0"))
    assert "jacobi_a 2, published 1.5" in reasons_of(only(read_report([folder])))


@pytest.mark.parametrize(
    ("key", "value", "benchmark", "expected"),
    [
        ("order", 10, "UWaveGestureLibrary", [("Table 14", 89.4)]),
        ("order", 3, "pathfinder", [("Table 15", 74.0)]),
        ("order", 2, "pathfinder", []),
        ("ortho_weight", 0.0001, "image", [("Table 4", 41.0)]),
        ("jacobi_a", 2.0, "image", [("Table 16", 42.4)]),
        ("jacobi_b", -2, "text", [("Table 17", 64.1)]),
        ("jacobi_b", -2.0, "Handwriting", []),
    ],
)
def test_printed_figures_are_joined_by_value(factory, key, value, benchmark, expected):
    folder = factory.study()
    vary(
        factory,
        folder,
        {AGF[key]: 0.5, value: 0.4},
        key=key,
        dataset=benchmark,
        published=benchmark,
    )
    curve = only(read_report([folder]))
    row = next(row for row in curve.rows if row.runs[0].leaves[curve.key] == value)
    found = [beside.published for beside in published_beside(row, curve.key)]
    assert [(printed.table, printed.value) for printed in found] == expected


def test_a_number_that_is_no_target_stays_none(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.9, 3: 0.8}, dataset="SpokenArabicDigits")
    curve = only(read_report([folder]))
    (beside,) = published_beside(curve.rows[0], curve.key)
    assert "never a target: training on the test file is very probable" in beside.reasons


def test_pairs_of_values_are_compared_among_themselves_alone(listops, factory):
    for seed in range(3):
        factory.cell(
            listops, mixer="identity", seed=seed, dataset="lra-listops", accuracy=0.2 + 0.01 * seed
        )
    report = read_report([listops])
    pairs = [{comparison.first.name, comparison.second.name} for comparison in report.comparisons]
    assert len(pairs) == 3
    assert all("identity" in pair for pair in pairs)
    assert len(only(report).comparisons) == 3
    assert [comparison.verdict for comparison in only(report).comparisons].count(
        "distinguishable"
    ) == 2


def test_the_sentence(listops):
    words = only(read_report([listops])).sentence
    assert words.startswith(
        "means from 30.00 (3) to 38.00 (5), 8.0 points apart; seeds alone would "
        "put 3 such means 1.0 "
    )
    assert "; distinguishable: 2 of 3 pairs, the largest 3 − 5: -8.0 [" in words
    assert words.endswith("; validation would choose 5, test 38.00")


def test_the_sentence_where_nothing_differs(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.379})
    words = only(read_report([folder])).sentence
    assert "no two values are distinguishable (least p after Holm's correction: 0." in words
    one_seed = factory.study("other")
    vary(factory, one_seed, {5: 0.38, 3: 0.36}, seeds=1)
    assert only(read_report([one_seed])).sentence == (
        "means from 35.00 (3) to 37.00 (5), 2.0 points apart; not enough seeds to "
        "tell values apart; "
        "validation would choose 5, test 37.00"
    )


def test_equal_means(factory):
    folder = factory.study()
    vary(factory, folder, {3: 0.3, 5: 0.3, 4: 0.3})
    words = only(read_report([folder])).sentence
    assert words.startswith("means from 30.00 (3) to 30.00 (3), 0.0 points apart; ")
    assert words.endswith("validation would choose 3, test 30.00 or 4, test 30.00 or 5, test 30.00")


@pytest.mark.parametrize(("count", "expected"), [(2, 1.1284), (5, 2.3259), (10, 3.0775)])
def test_expected_range_of_normal_values(count, expected):
    # tables of control charts, d2
    assert _expected_range(count) == pytest.approx(expected, abs=1e-3)


def test_expected_range_against_simulation():
    draws = np.random.default_rng(0).normal(size=(40_000, 7))
    assert _expected_range(7) == pytest.approx(float(np.ptp(draws, axis=1).mean()), rel=0.01)


def test_without_a_validation_split_the_column_is_left_out(factory, as_text):
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.36}, protocol="paper")
    for path in folder.glob("cells/*/result.json"):
        data = json.loads(path.read_text())
        data["best"]["split"] = "test"
        write_result(path.parent, data)
    report = read_report([folder])
    assert [row.validation for row in only(report).rows] == [None, None]
    assert "validation would choose" not in only(report).sentence
    assert "best on test" in as_text(report, "md")
    assert "| validation accuracy" not in as_text(report, "md")


def test_every_format(star, tmp_path, as_text):
    report = read_report([star])
    text = as_text(report, "md")
    assert "## Varied: lra-listops, agf (honest): order" in text
    line = "| 5 (base) | 38.00 ± 1.00 | 38.00 ± 1.00 | 3 | 38.0 (not comparable)"
    assert f"{line} | wi2025agf Table 15 |" in text
    assert r"agf (base) & " in as_text(report, "tex")
    records = [
        record
        for record in csv.DictReader(io.StringIO(as_text(report, "csv")))
        if record["kind"] == "value"
    ]
    assert [
        (record["key"], record["value"], record["base"], record["published_value"])
        for record in records[2:]
    ] == [
        (ORDER, "3", "False", "37.0"),
        (ORDER, "5", "True", "38.0"),
        (ORDER, "7", "False", "37.3"),
    ]
    assert float(records[2]["validation_mean"]) == pytest.approx(0.30)
    document = document_of(report)
    plain = document.values["curves"][1]
    assert [value["value"] for value in plain["values"]] == [3, 5, 7]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    stream = io.StringIO()
    print_document(document, Console(file=stream, width=160, color_system=None), stats=True)
    shown = [" ".join(line.split()) for line in stream.getvalue().splitlines()]
    row = "5 (base) 38.00 ± 1.00 38.00 ± 1.00 3 38.0 (not comparable) wi2025agf Table 15"
    assert row in shown
    written = write_document(document, tmp_path / "out", ("md", "html"), charts=True)
    names = [chart.file_name for chart in document.charts]
    assert {"lra-listops-agf-honest-order", "lra-listops-accuracy-by-epoch"} <= set(names)
    charts = [f"{name}.{kind}" for name in names for kind in ("svg", "pdf")]
    assert [path.name for path in written] == ["report.md", "report.html", *charts]
    again = write_document(document, tmp_path / "again", ("md", "html"), charts=True)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]
    assert [path.name for path in write_document(document, tmp_path / "other", ["md"])] == [
        "report.md"
    ]


def test_the_picture(star):
    (_, order) = read_report([star]).curves
    chart = curve_chart(order)
    assert chart.names == ("3", "4", "5", "6", "7")
    assert {line.name: len(line.points) for line in chart.lines} == {
        "test ± sd": 3, "validation": 3, "base": 1, "published, not comparable": 5
    }  # fmt: skip
    assert chart.lines[0].errors == pytest.approx((1.0, 1.0, 1.0))
    assert chart.description == f"test accuracy (%) by {ORDER}: 3 30, 5 38, 7 37."
    root = xml.dom.minidom.parseString(chart.drawn()).documentElement
    texts = [node.firstChild.nodeValue for node in root.getElementsByTagName("text")]
    assert [name for name in texts if name in chart.names] == ["3", "4", "5", "6", "7"]


def test_names_are_inert(factory, tmp_path):
    folder = factory.study()
    for lr in (0.1, 0.2):
        for order in (5, 3):
            known = {"params": {"order": order}, "train": {"lr": lr}, "variant": f"{order}-{lr}"}
            factory.cell(folder, dataset="<b>&x", label="a/b", **known)
    report = read_report([folder])
    xml.dom.minidom.parseString(curve_chart(report.curves[0]).drawn())
    written = write_document(document_of(report), tmp_path, ["html"], charts=True)
    assert "<b>&x" not in written[0].read_text()
    assert len(written) > 4
    for path in written[1:]:
        assert path.parent.name == "charts"
        assert set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.=~T")


def test_a_setting_outside_the_mixer_and_its_alternative(factory):
    folder = factory.study()
    for train in ({"epochs": 4}, {"epochs": None, "steps": 9}):
        for seed in range(3):
            factory.cell(folder, seed=seed, accuracy=0.1 * seed, train=train, variant=str(train))
    curve = only(read_report([folder]))
    assert (curve.key, [curve.value(row) for row in curve.rows]) == ("train.epochs", ["4", "null"])
    assert all(
        not pair.notes or "settings differ" not in pair.notes[0] for pair in curve.comparisons
    )


def test_unfinished_runs_keep_their_place(listops):
    (run,) = listops.glob("cells/*-0-order7")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").unlink()
    write_json(run / IDENTITY, {**result, "experiment": {}})
    curve = only(read_report([listops]))
    row = curve.rows[2]
    assert (curve.value(row), row.seeds, len(row.runs)) == ("7", (1, 2), 3)


def test_a_setting_of_which_no_run_has_finished_has_no_chart(factory, as_text):
    study = factory.study()
    for order in (3, 4):
        factory.cell(study, params={"order": order}, status=None, variant=str(order))
    assert "fewer than two values have a score" in as_text(read_report([study]), "html")


def test_reports_without_varied_settings_have_no_such_part(factory, as_text):
    report = read_report([factory.run("one")])
    assert report.curves == ()
    assert "Varied" not in as_text(report, "md")
    assert "validation_mean" not in as_text(report, "csv")


@pytest.mark.parametrize(
    ("recipe", "task", "samples", "settings"),
    [
        (
            "lra-agf-sensitivity",
            "listops",
            2_000,
            {"order7": "AGF K=7", "jacobi_b-2.0": "AGF b=-2.0"},
        ),
        (
            "lra-agf-sensitivity",
            "image",
            10_000,
            {"ortho_weight0.001": "AGF gamma=1e-3", "jacobi_a1.0": "AGF a=1.0"},
        ),
        ("uea-agf-sensitivity", "Heartbeat", 205, {"order9": "AGF K=9"}),
    ],
)
def test_the_recipes_at_full_scale_are_comparable(factory, recipe, task, samples, settings):
    protocol = "paper" if recipe.startswith("uea") else "honest"
    cells = {
        cell.label: cell
        for cell in load_study(recipe, [f"protocol={protocol}", "matrix.seed=[0]"]).runs
    }
    folder = factory.study()
    for name in ("base", *settings):
        cell = cells[f"{task}-agf-paper-{name}-seed0"]
        known = {
            "dataset": task,
            "protocol": protocol,
            "axes": cell.axes,
            "variant": name,
            "samples": samples,
        }
        run = factory.cell(folder, label="agf", **known)
        (run / EXPERIMENT).write_text(dump(cell.experiment), encoding="utf-8")
    report = read_report([folder])
    found = {
        beside.published.model: beside.reasons
        for row in report.rows
        if not row.is_base
        for beside in report.beside[row]
        if beside.published.model in settings.values()
    }
    assert found == dict.fromkeys(settings.values(), ())
