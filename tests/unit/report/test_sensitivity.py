"""Studies that vary settings around a base: tables, published rows, sentences, pictures."""

from __future__ import annotations

import csv
import io
import json
import xml.dom.minidom

import numpy as np
import pytest
from rich.console import Console

from subquad.experiment import dump, load
from subquad.report import build, markdown, page, sensitivity_plot, sheet, to_json, to_terminal, write
from subquad.report.sensitivity_words import expected_range, lines, sentence
from subquad.runs import EXPERIMENT, IDENTITY, STUDY

ORDER = "mixer.params.order"
AGF = {"order": 5, "ortho_weight": 0.1, "jacobi_a": 1.5, "jacobi_b": 1.0}


def vary(factory, folder, values, *, seeds=3, key="order", **facts):
    """Runs of one varied parameter, {value: accuracy}; the base has order 5."""
    for value, accuracy in values.items():
        changed = {} if AGF.get(key) == value else {f"mixer.params.{key}": value}
        for seed in range(seeds):
            known = {"params": {**AGF, key: value}, "axes": {"case": changed}, "variant": f"{key}{value}", **facts}
            factory.cell(folder, seed=seed, accuracy=accuracy + 0.01 * (seed - 1), **known)


@pytest.fixture
def listops(factory):
    """Orders 3, 5 and 7 on ListOps, whose published accuracies are 37.0, 38.0 and 37.3."""
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.30, 7: 0.37}, dataset="lra-listops", published="listops", samples=2000)
    return folder


def only(report):
    (one,) = report.sensitivities
    return one


def test_values_in_order_with_the_base_among_them(listops):
    one = only(build([listops]))
    assert (one.key, one.title) == (ORDER, "lra-listops, agf (honest): order")
    assert [(value.text, value.base, value.row.name) for value in one.values] == [
        ("3", False, "agf (order=3)"),
        ("5", True, "agf (base)"),
        ("7", False, "agf (order=7)"),
    ]
    assert [len(value.row.counted) for value in one.values] == [3, 3, 3]


def test_each_value_stands_beside_the_printed_one(listops):
    report = build([listops])
    found = [
        (beside.published.model, beside.published.value) for value in only(report).values for beside in value.published
    ]
    assert found == [("AGF K=3", 37.0), ("AGF K=5", 38.0), ("AGF K=7", 37.3)]
    assert [row for row, _ in only(report).printed] == [3, 4, 5, 6, 7]
    main = {
        row.name: [one.reference for one in beside] for row, beside in zip(report.rows, report.published, strict=True)
    }
    assert main == {
        "agf (base)": ["wi2025agf Table 2"],
        "agf (order=3)": ["wi2025agf Table 15"],
        "agf (order=7)": ["wi2025agf Table 15"],
    }


def test_a_published_value_is_held_to_the_conditions_of_the_main_table_with_its_own_value(listops):
    reasons = [reason for value in only(build([listops])).values for one in value.published for reason in one.reasons]
    assert "epochs 4, published 100" not in reasons  # UEA's
    assert any(reason.startswith("width 128, published 64") for reason in reasons)
    assert not any(reason.startswith(("order", "jacobi", "ortho_weight")) for reason in reasons)


def test_another_base_than_the_published_one_is_named(factory):
    folder = factory.study()
    known = {"dataset": "lra-listops", "published": "listops"}
    vary(factory, folder, {5: 0.38, 3: 0.30}, **known, key="order")
    for run in folder.glob("cells/*/experiment.yaml"):
        run.write_text(run.read_text().replace("jacobi_a: 1.5", "jacobi_a: 2.0"))
    reasons = {reason for value in only(build([folder])).values for one in value.published for reason in one.reasons}
    assert "jacobi_a 2, published 1.5" in reasons


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
    vary(factory, folder, {AGF[key]: 0.5, value: 0.4}, key=key, dataset=benchmark, published=benchmark)
    found = next(one for one in only(build([folder])).values if not one.base)
    assert [(one.published.table, one.published.value) for one in found.published] == expected


def test_a_number_that_is_no_target_stays_none(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.9, 3: 0.8}, dataset="SpokenArabicDigits")
    (beside,) = only(build([folder])).values[0].published
    assert "never a target: training on the test file is very probable" in beside.reasons


def test_pairs_of_values_are_compared_among_themselves_alone(listops, factory):
    for seed in range(3):
        factory.cell(listops, mixer="identity", seed=seed, dataset="lra-listops", accuracy=0.2 + 0.01 * seed)
    report = build([listops])
    pairs = [{one.first.name, one.second.name} for one in report.comparisons]
    assert len(pairs) == 3
    assert all("identity" in pair for pair in pairs)
    assert len(only(report).comparisons) == 3
    assert [one.verdict for one in only(report).comparisons].count("distinguishable") == 2


def test_the_sentence(listops):
    words = sentence(only(build([listops])))
    assert words.startswith(
        "means from 30.00 (3) to 38.00 (5), 8.0 points apart; seeds alone would put 3 such means 1.0 "
    )
    assert "; distinguishable: 2 of 3 pairs, the largest 3 − 5: -8.0 [" in words
    assert words.endswith("; validation would choose 5, test 38.00")


def test_the_sentence_where_nothing_differs(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.379})
    words = sentence(only(build([folder])))
    assert "no two values are distinguishable (smallest p of 1 pair after Holm's correction: 0." in words
    one_seed = factory.study("other")
    vary(factory, one_seed, {5: 0.38, 3: 0.36}, seeds=1)
    words = sentence(only(build([one_seed])))
    assert words == (
        "means from 35.00 (3) to 37.00 (5), 2.0 points apart; not enough seeds to tell values apart; "
        "validation would choose 5, test 37.00"
    )


def test_equal_means(factory):
    folder = factory.study()
    vary(factory, folder, {3: 0.3, 5: 0.3, 4: 0.3})
    words = sentence(only(build([folder])))
    assert words.startswith("all 3 means are 30.00; no two values")
    assert words.endswith("; validation does not choose between 3, 4, 5")


@pytest.mark.parametrize(("count", "expected"), [(2, 1.1284), (5, 2.3259), (10, 3.0775)])
def test_expected_range_of_normal_values(count, expected):
    assert expected_range(count) == pytest.approx(expected, abs=1e-3)  # tables of control charts, d2


def test_expected_range_against_simulation():
    draws = np.random.default_rng(0).normal(size=(40_000, 7))
    assert expected_range(7) == pytest.approx(float(np.ptp(draws, axis=1).mean()), rel=0.01)


def test_without_a_validation_split_the_column_is_empty(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.38, 3: 0.36}, protocol="paper")
    for path in folder.glob("cells/*/result.json"):
        data = json.loads(path.read_text())
        data["best"]["split"] = "test"
        path.write_text(json.dumps(data))
    one = only(build([folder]))
    assert [value.validation for value in one.values] == [None, None]
    assert "validation would choose" not in sentence(one)
    assert "best on test" in markdown.render(build([folder]))


def test_every_format(listops, tmp_path):
    report = build([listops])
    text = markdown.render(report)
    assert "### lra-listops, agf (honest): order" in text
    assert "| 5 (base) | 38.00 ± 1.00 | 38.00 ± 1.00 | 3 | 38 (not comparable) | wi2025agf Table 15 |" in text
    assert lines(only(report))[1].startswith("published, wi2025agf Table 15: not comparable: ")
    records = [one for one in csv.DictReader(io.StringIO(sheet.render(report))) if one["kind"] == "sensitivity"]
    assert [(one["setting"], one["base"], one["published"]) for one in records] == [
        (f"{ORDER}=3", "no", "37"),
        (f"{ORDER}=5", "yes", "38"),
        (f"{ORDER}=7", "no", "37.3"),
    ]
    assert float(records[0]["validation_mean"]) == pytest.approx(30.0)
    (plain,) = to_json(report)["sensitivities"]
    assert [value["value"] for value in plain["values"]] == [3, 5, 7]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    stream = io.StringIO()
    to_terminal(report, Console(file=stream, width=80, color_system=None))
    assert "5 (base)    38.00 ± 1.00       38.00 ± 1.00      3  38 (not comparable)" in stream.getvalue()
    written = write(report, tmp_path / "out")
    assert [path.name for path in written] == ["report.md", "report.csv", "report.html", "lra-listops-agf-order.svg"]
    assert [path.name for path in write(report, tmp_path / "other", ["md"])] == ["report.md"]


def test_the_picture(listops):
    report = build([listops])
    text = sensitivity_plot.to_file(only(report))
    root = xml.dom.minidom.parseString(text).documentElement
    assert root.getAttribute("xmlns") == "http://www.w3.org/2000/svg"
    marks = [node.getAttribute("class") for node in root.getElementsByTagName("path")]
    assert marks.count("mark s1") == 5 + 1  # printed values, and the one that the legend explains
    assert marks.count("bar s0") == 3
    assert [node.getAttribute("class") for node in root.getElementsByTagName("circle")].count("ring s0") == 1 + 1
    texts = [node.firstChild.nodeValue for node in root.getElementsByTagName("text")]
    assert [name for name in texts if name in {"3", "4", "5", "6", "7"}] == ["3", "4", "5", "6", "7"]
    html = page.render(report)
    assert 'aria-labelledby="sensitivity-0-title' in html
    assert "style=" not in html.partition("<body>")[2]


def test_names_are_inert(factory):
    folder = factory.study()
    vary(factory, folder, {5: 0.5, 3: 0.4}, dataset="<b>&x", label="a/b")
    report = build([folder])
    xml.dom.minidom.parseString(sensitivity_plot.to_file(only(report)))
    assert "<b>&x" not in page.render(report)
    assert sensitivity_plot.file_names([only(report)] * 2) == ["b_x-a_b-order.svg", "b_x-a_b-order~2.svg"]


def test_other_axes_have_tables_of_their_own(factory):
    folder = factory.study()
    for lr in (0.1, 0.01):
        vary(factory, folder, {5: 0.38, 3: 0.36}, train={"lr": lr}, variant=f"lr{lr}")
        for seed in range(3):
            known = {"params": {**AGF, "order": 3}, "axes": {"case": {ORDER: 3}}}
            factory.cell(folder, seed=seed, accuracy=0.36, train={"lr": lr}, variant=f"order3-lr{lr}", **known)
            base = {"params": AGF, "axes": {"case": {}}}
            factory.cell(folder, seed=seed, accuracy=0.38, train={"lr": lr}, variant=f"lr{lr}", **base)
    titles = [one.title for one in build([folder]).sensitivities]
    assert titles == [f"JapaneseVowels, agf (honest): order at lr={lr}" for lr in (0.01, 0.1)]


def test_a_setting_outside_the_mixer_and_its_alternative(factory):
    folder = factory.study()
    for changed, train in (({}, {"epochs": 4}), ({"train.steps": 9}, {"epochs": None, "steps": 9})):
        for seed in range(3):
            factory.cell(
                folder, seed=seed, accuracy=0.1 * seed, train=train, axes={"case": changed}, variant=str(train)
            )
    one = only(build([folder]))
    assert (one.key, [value.text for value in one.values]) == ("train.steps", ["9", "null"])
    assert all(not pair.notes or "settings differ" not in pair.notes[0] for pair in one.comparisons)


def test_unfinished_runs_keep_their_place(listops):
    (run,) = listops.glob("cells/*-0-order7")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").unlink()
    (run / IDENTITY).write_text(json.dumps({"digest": "x", "axes": result["axes"]}))
    value = only(build([listops])).values[2]
    assert (value.text, value.row.seeds, len(value.row.cells)) == ("7", (1, 2), 3)


def test_reports_without_variations_are_as_before(factory):
    report = build([factory.run("one")])
    assert report.sensitivities == ()
    assert "Sensitivity" not in markdown.render(report)
    assert "validation_mean" not in sheet.render(report)
    assert (factory.study() / STUDY).exists()


@pytest.mark.parametrize(
    ("recipe", "task", "samples", "settings"),
    [
        ("lra-agf-sensitivity", "listops", 2_000, {"order7": "AGF K=7", "jacobi_b-2.0": "AGF b=-2.0"}),
        ("lra-agf-sensitivity", "image", 10_000, {"ortho_weight0.001": "AGF gamma=1e-3", "jacobi_a1.0": "AGF a=1.0"}),
        ("uea-agf-sensitivity", "Heartbeat", 205, {"order9": "AGF K=9"}),
    ],
)
def test_the_recipes_at_full_scale_are_comparable(factory, recipe, task, samples, settings):
    protocol = "paper" if recipe.startswith("uea") else "honest"
    cells = {cell.label: cell for cell in load(recipe, [f"protocol={protocol}", "matrix.seed=[0]"]).cells}
    folder = factory.study()
    for name in ("base", *settings):
        cell = cells[f"{task}-agf-paper-{name}-seed0"]
        known = {"dataset": task, "protocol": protocol, "axes": cell.axes, "variant": name, "samples": samples}
        run = factory.cell(folder, label="agf", **known)
        (run / EXPERIMENT).write_text(dump(cell.experiment.experiment), encoding="utf-8")
    found = {
        beside.published.model: beside.reasons
        for one in build([folder]).sensitivities
        for value in one.values
        if not value.base
        for beside in value.published
    }
    assert found == dict.fromkeys(settings.values(), ())
