"""Markdown, CSV, terminal and JSON: content, escaping, determinism."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from subquad.cli.main import main
from subquad.output.markup import _neutral, in_latex, in_markdown, one_line
from subquad.output.terminal import duration
from subquad.plugin.metric import Metric
from subquad.reports import (
    Table,
    document_of,
    print_cells,
    print_document,
    read_report,
    text,
    write_document,
)


def terminal(report, width: int = 160, *, stats: bool = True) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    print_document(document_of(report), console, stats=stats)
    return stream.getvalue()


@pytest.fixture
def study(factory, answers):
    folder = factory.study()
    for seed in range(2):
        factory.cell(
            folder, seed=seed, correct=answers(370, 9 + seed), notes=["1 test series clipped"]
        )
        factory.cell(folder, mixer="identity", seed=seed, correct=answers(370, 12, seed))
    factory.cell(folder, mixer="softmax", seed=0, status="failed", reason="not finite at step 40")
    return folder


def test_markdown(study, as_text):
    page = as_text(read_report([study], baseline="identity"), "md")
    lines = page.splitlines()
    assert lines[0] == "# Token mixers on JapaneseVowels"
    (headline,) = [
        line
        for line in lines
        if line.startswith("- JapaneseVowels (honest): agf: not distinguishable from ")
    ]
    assert lines[2] == "## Test accuracy (%), protocol honest"
    assert "| agf | **97.43 ± 0.19** |" in lines[:12]
    assert "| *identity* | *96.76 ± 0.00* ≈ |" in lines[:12]
    assert lines.index(headline) > lines.index("## Scores and costs") > 12
    assert (
        "| JapaneseVowels | agf | honest | 2 | 97.43 ± 0.19 | 97.43 ± 0.19 | 99.5 "
        "(not comparable) | 2 finished | "
        "6,970,899 | 1.0 min | 1.23 G | 2 |"
    ) in lines
    assert any("1 failed (not finite at step 40)" in line for line in lines)
    assert "- honest: checkpoint chosen on validation; test opened once" in lines
    assert "- JapaneseVowels: 1 test series clipped (agf)" in lines
    widths = {
        line.count(" | ")
        for line in lines
        if line.startswith("| JapaneseVowels | agf | honest | 2 ")
    }
    assert widths == {11}


def test_the_paper_protocol_is_labelled_on_the_number(factory, as_text):
    page = as_text(
        read_report([factory.run("one", protocol="paper", accuracy=0.98, last=0.96)]), "md"
    )
    assert "| 98.00 best on test | 96.00 |" in page
    assert "## Test accuracy (%), protocol paper, best on test" in page
    # macro-F1 has the same value here, and the first table says it in its title
    assert page.count("98.00") == page.count("98.00 best on test") + 2
    assert "- paper: best test accuracy over epochs" in page


def test_columns_nobody_fills_are_left_out(factory, as_text):
    page = as_text(read_report([factory.run("one", flops=None)]), "md")
    assert "FLOPs" not in page
    assert "last epoch" not in page


@pytest.mark.parametrize(
    "name", ["a|b", "[x](http://e)", "<b>", "*a*", "_a_", "`a`", "a\\|b", "~~a~~", "![i](u)"]
)
def test_markdown_names_are_inert(factory, name: str, as_text):
    page = as_text(read_report([factory.run("one", label=name)]), "md")
    (line,) = [
        line
        for line in page.splitlines()
        if line.startswith("| JapaneseVowels") and "finished" in line
    ]
    unescaped = line.replace("\\\\", "").replace("\\|", "")
    assert unescaped.count("|") == 13
    shown = in_markdown(name)
    assert f"| {shown} |" in line
    assert "<" not in shown


@pytest.mark.parametrize("width", [80, 160])
def test_terminal_says_why_in_a_line_below_the_table(factory, width: int):
    folder = factory.study()
    reason = (
        "the loss was not finite in three steps in a row, from step 40 on; a smaller "
        "train.lr may help"
    )
    factory.cell(folder, seed=0)
    factory.cell(folder, seed=1, status="failed", reason=reason)
    lines = [line.rstrip() for line in terminal(read_report([folder]), width).splitlines()]
    assert f"JapaneseVowels, agf (honest): 1 finished, 1 failed ({reason})" in lines
    first = terminal(read_report([folder]), width, stats=False)
    assert "Beware: agf on JapaneseVowels: 1 finished, 1 failed;" in first
    assert "finite" not in first


def test_terminal_says_nothing_more_where_all_is_well(factory):
    assert "finished" not in terminal(read_report([factory.run("one")]), 80, stats=False)


def test_csv_is_rfc_4180_with_plain_numbers(study, as_text):
    raw = as_text(read_report([study], baseline="identity"), "csv")
    assert raw.count("\r\n") == raw.count("\n") == 4
    agf, _, softmax = csv.DictReader(io.StringIO(raw, newline=""))
    assert (agf["dataset"], agf["mixer"], agf["protocol"], agf["score_count"]) == (
        "JapaneseVowels",
        "agf",
        "honest",
        "2",
    )
    assert float(agf["score_mean"]) == pytest.approx(1 - 9.5 / 370)
    assert [agf[f"published_{key}"] for key in ("unit", "value", "model", "source", "table")] == [
        "%", "99.5", "AGF", "wi2025agf", "Table 1"
    ]  # fmt: skip
    assert agf["published_reasons"].startswith(
        "checkpoint chosen on validation, published: best test"
    )
    assert (softmax["score_mean"], softmax["status"]) == ("", "1 failed (not finite at step 40)")


@given(st.text(max_size=20))
def test_no_csv_text_is_a_formula(value: str):
    found = _neutral(value)
    assert isinstance(found, str)
    assert not found.lstrip().startswith(("=", "+", "-", "@"))
    assert found in (one_line(value), f"'{one_line(value)}")


@pytest.mark.parametrize(
    "value",
    [
        "＝1+1",
        "﹦1",
        "＋1",
        "﹣1",
        "−1",
        "＠x",
        "\t=1",
        "\r@x",
        "\u200b=1",
        "\ufeff＝1",
        "\u3000+1",
        "\ufe0f=1",
    ],
)
def test_a_formula_in_other_clothes_is_text(value: str):
    assert _neutral(value).startswith("'")


def test_latex_keeps_brackets_from_the_line_end_above_them():
    assert in_latex("[4cm]") == "{}[4cm]"
    assert in_latex(" *x") == "{} *x"
    assert in_latex("a [b]\n\\input") == "a [b]\\textbackslash{}n\\textbackslash{}input"


def test_what_steers_a_terminal_is_in_no_format(factory, as_text):
    hostile = "acc\x1b]52;c;eA==\x07\x9b2J\u202e\u2028\u200b"
    run = factory.run("one", metric=hostile, dataset=hostile, notes=[hostile])
    for form in ("md", "csv", "html", "tex"):
        text = as_text(read_report([run]), form)
        assert not any(char in text for char in hostile[3:] if not char.isprintable())


@pytest.mark.parametrize("name", ["=cmd()", "+1", "-1", "@x", " =1+1", 'a"b', "a,b"])
def test_csv_names_come_back_whole(factory, name: str, as_text):
    raw = as_text(read_report([factory.run("one", label=name)]), "csv")
    (record,) = csv.DictReader(io.StringIO(raw, newline=""))
    assert record["mixer"] == (f"'{name}" if name.strip()[0] in "=+-@" else name)


def test_numbers_below_zero_stay_numbers():
    assert _neutral(-1.5) == -1.5


def test_terminal_shows_table_published_rows_and_headlines(study):
    shown = terminal(read_report([study], baseline="identity"))
    assert "97.43 ± 0.19" in shown
    assert (
        "JapaneseVowels agf honest 97.43 ± 0.19 99.5 AGF, wi2025agf Table 1 not comparable: "
        in " ".join(terminal(read_report([study], baseline="identity"), 10_000).split())
    )
    assert (
        "\nJapaneseVowels (honest): agf: not distinguishable from the baseline identity, " in shown
    )


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_puts_columns_below_the_others(study, width):
    shown = terminal(read_report([study], baseline="identity"), width=width)
    words = shown.partition("Scores and costs\n")[2].partition("±: ")[0].split()
    assert words.count("JapaneseVowels") > 3, "each block begins with the names"
    assert words.count("parameters") == words.count("FLOPs/step") == 1
    assert words.count("6,970,899") == 2


def test_escapes_and_markup_in_names_do_nothing_on_a_terminal(factory):
    name = "\x1b[31mred\x1b[0m [bold]x[/] \r\n\u202egnp"
    shown = terminal(
        read_report([factory.run("one", label=name, reason="\x07", notes=["\x1b]0;t\x07"])]),
        width=400,
    )
    assert "\\x1b[31mred\\x1b[0m [bold]x[/] \\r\\n\\u202egnp" in shown
    assert not {"\x1b", "\r", "\x07", "\u202e"} & set(shown)


def test_lone_surrogates_can_be_written(factory, tmp_path):
    run = factory.run("one", label="a\ud800b")
    paths = write_document(document_of(read_report([run])), tmp_path, ("md", "csv", "html"))
    assert all(
        "a\\ud800b" in path.read_text(encoding="utf-8").replace("\\\\", "\\") for path in paths
    )


@pytest.mark.parametrize("width", [30, 50, 80, 120])
def test_no_terminal_is_too_narrow_for_a_number(width):
    long = "a-long-label (order=3, basis=jacobi)"
    row = {"mixer": long, "score": "90.83 ± 3.54", "parameters": "1,234,567,890"}
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    print_cells(Table.of([row, row], ("score", "parameters")), console)
    lines = stream.getvalue().splitlines()
    for number in ("90.83 ± 3.54", "1,234,567,890"):
        assert sum(number in line for line in lines) == 2
    assert len(lines) < 14, "and no column has a letter in each line"


def test_a_pipe_is_as_wide_as_its_lines(study, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    assert main(["report", str(study), "--format", "md", "--stats"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith("JapaneseVowels  agf "))
    assert "97.43 ± 0.19" in line
    assert "2 finished" in line


def test_json_has_fractions_reasons_and_runs(study):
    found = json.loads(
        json.dumps(document_of(read_report([study], baseline="identity")).values, allow_nan=False)
    )
    agf, identity, softmax = found["rows"]
    assert agf["score"] == {
        "mean": pytest.approx(1 - 9.5 / 370),
        "std": pytest.approx(0.0019111, rel=1e-3),
        "count": 2,
    }
    assert agf["published"][0]["comparable"] is False
    assert identity["published"] == []
    assert softmax["runs"] == [
        {
            "name": "study/cells/JapaneseVowels-softmax-honest-0-x",
            "seed": 0,
            "status": "failed",
            "reason": "not finite at step 40",
            "faults": [],
        }
    ]
    (pair,) = found["comparisons"]
    assert (pair["first"], pair["second"], pair["verdict"]) == (
        "agf",
        "identity",
        "not distinguishable",
    )


def test_the_same_runs_give_the_same_bytes(study, tmp_path):
    document, formats = (
        document_of(read_report([study], baseline="identity")),
        ("md", "csv", "html", "tex"),
    )
    first, second = (write_document(document, tmp_path / name, formats) for name in "ab")
    assert [path.name for path in first] == ["report.md", "report.csv", "report.html", "report.tex"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_no_absolute_path_is_written(study, tmp_path):
    written = write_document(
        document_of(read_report([study], baseline="identity")),
        tmp_path / "out",
        ("md", "csv", "html", "tex"),
    )
    assert all(str(tmp_path) not in path.read_text() for path in written)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.26, "0.3 s"), (60.0, "1.0 min"), (5400.0, "1.5 h"), (None, "–"), (float("nan"), "–")],
)
def test_durations(value, shown: str):
    assert duration(value) == shown


def test_metrics_that_are_no_fractions_are_shown_as_they_are():
    assert Metric(digits=2).number(12.3456) == "12.35"
    assert text.score_text(Metric(unit="%"), text.Spread(0.5, None, 1)) == "50.00"
    assert Metric(unit="%").number(float("inf")) == "inf"
