"""The numbers of the papers: all of them, as printed, and where a paper contradicts itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from statistics import mean
from typing import Any

import pytest
from scipy.stats import wilcoxon

from subquad.reports import read_report
from subquad.reports.beside import published_beside
from subquad.reports.published import published_tables

# Cells of the printed tables, counted in the papers; of figures and sections the numbers in words.
CELLS = {
    "wi2025agf": {
        "Table 1": 11 * 11, "Table 2": 10 * 6, "Table 3": 5 * 6, "Table 4": 4 * 5,
        "Table 5": 6 * 6 * 2, "Table 6": 3 * 6, "Table 7": 2 * 2, "Table 13": 10,
        "Table 14": 10 * 8, "Table 15": 5 * 5, "Table 16": 3 * 5, "Table 17": 4 * 5,
        "Table 18": 4 * 5, "Table 19": 2 * 11, "Table 20": 3 * 11, "Table 21": 4 * 10 * 2,
        "Figure 3b": 2,
    },
    "francois2025cur": {
        "Table 1": 14 * 6, "Table 2": 14 * 2, "Table 3": 2 * 3, "Table 4": 6 * 5, "Table 5": 4 * 2,
        "Section 7.1": 5, "Section 9": 1,
    },
    "kiruluta2025mdfwa": {"Table 1": 4 * 3, "Table 2": 4 * 3},
}  # fmt: skip


@pytest.fixture(scope="module")
def papers():
    return next(table for table in published_tables() if "wi2025agf" in table.sources)


def row_of(papers, table, model, benchmark, source="wi2025agf"):
    (row,) = (
        row
        for row in papers.rows
        if (row.source, row.table, row.model, row.benchmark) == (source, table, model, benchmark)
    )
    return row


def decimals(printed: str) -> int:
    """How many digits stand behind the point."""
    return len(printed.partition(".")[2])


def test_every_printed_number_is_there_once(papers):
    counts = Counter((row.source, row.table) for row in papers.rows)
    assert counts == {
        (source, table): cells
        for source, tables in CELLS.items()
        for table, cells in tables.items()
    }
    places = {(row.source, row.table, row.model, row.benchmark, row.metric) for row in papers.rows}
    assert len(places) == len(papers.rows) == 818


def test_every_name_has_a_mixer_or_a_reason(papers):
    names = {row.model for row in papers.rows}
    matched = {name for entry in papers.models.values() for name in entry}
    reasoned = {name for entry in papers.no_mixer.values() for name in entry}
    rules = [rule for keys in papers.varied.values() for rules in keys.values() for rule in rules]
    beginnings = tuple(rule.model for rule in rules)
    varied = {name for name in names if name.startswith(beginnings)}
    assert matched | reasoned | varied == names
    assert not matched & reasoned
    assert not varied & (matched | reasoned)


@pytest.mark.parametrize(
    ("mixer", "name"),
    [
        ("softmax", "Trans."),
        ("flowformer", "Flow."),
        ("primal", "Primal."),
        ("primal", "PrimalFormer"),
        ("linear", "Linear Transformer"),
        ("megacur-finetuned", "MegaCUR (Laplace, fine-tuned from Mega)"),
    ],
)
def test_short_names_are_those_of_mixers(papers, mixer, name):
    assert name in papers.models[mixer]


def test_numbers_have_the_printed_digits(papers):
    assert all(row.value == float(row.printed) for row in papers.rows)
    assert row_of(papers, "Table 2", "AGF", "listops").printed == "38.0"
    assert row_of(papers, "Table 1", "MegaCUR", "image", "francois2025cur").printed == "79"
    random = row_of(papers, "Table 4", "CURformer select=random", "listops", "francois2025cur")
    assert (random.printed, random.std) == ("39.8", "0.80")


def test_a_report_shows_printed_digits_and_cautions(factory, as_text):
    run = factory.run("one", dataset="SpokenArabicDigits")
    (row,) = read_report([run]).rows
    (beside,) = published_beside(row)
    assert beside.in_short == "100.0 (not comparable)"
    text = as_text(read_report([run]), "md")
    assert "| 100.0 | AGF, wi2025agf Table 1 |" in text
    assert all(caution in text for caution in beside.published.cautions)


def test_a_report_says_where_a_paper_contradicts_itself(factory, as_text):
    text = as_text(read_report([factory.run("one", dataset="SelfRegulationSCP1")]), "md")
    assert "| 93.5 | AGF, wi2025agf Table 1 |" in text
    assert "Tables 19 and 20 of the paper print 93.2" in text


def test_averages_that_do_not_follow_from_their_rows_are_no_targets(papers):
    """Within half a unit of the last printed digit; those that follow can be aimed at."""
    printed = defaultdict(list)
    for row in papers.rows:
        printed[row.source, row.table, row.model, row.metric].append(row)
    for rows in printed.values():
        for average in (row for row in rows if row.benchmark == "average"):
            numbers = [Fraction(row.printed) for row in rows if row is not average]
            half_a_unit = Fraction(1, 2 * 10 ** decimals(average.printed))
            follows = abs(mean(numbers) - Fraction(average.printed)) <= half_a_unit
            flagged = any("does not follow from its rows" in text for text in average.cautions)
            assert (average.target, flagged) == (follows, not follows), average


def test_the_means_in_cautions_are_those_of_the_rows(papers):
    """`whose mean is 60.75`: rounded to the digits given."""
    found = 0
    for average in (row for row in papers.rows if row.benchmark == "average"):
        for caution in average.cautions:
            if "whose mean is " not in caution:
                continue
            given = caution.split("whose mean is ")[1].split(";")[0]
            same = (average.source, average.table, average.model, average.metric)
            numbers = [
                Decimal(row.printed)
                for row in papers.rows
                if (row.source, row.table, row.model, row.metric) == same and row is not average
            ]
            assert abs(mean(numbers) - Decimal(given)) <= Decimal("0.005"), average
            found += 1
    assert found == 9


def test_one_result_that_is_printed_twice_with_two_values_names_the_other(papers):
    """One model under all its names; a name that begins an entry is that entry's own."""
    own = {names[0]: label for label, names in papers.models.items()}
    listed = {name: label for label, names in papers.models.items() for name in names}
    groups = defaultdict(list)
    for row in papers.rows:
        model = own.get(row.model) or listed.get(row.model, row.model)
        if row.benchmark != "average":
            groups[row.source, model, row.benchmark, row.metric].append(row)
    unlike = {}
    for key, rows in groups.items():
        values = {row.value for row in rows}
        if len(values) > 1:
            unlike[key] = rows
    assert {key[1:3] for key in unlike} == {
        ("agf", "SelfRegulationSCP1"),
        ("cur", "retrieval"),
        ("mega", "listops"),
        ("mega", "text"),
        ("mega", "retrieval"),
    }
    for rows in unlike.values():
        printed = {row.printed for row in rows}
        for row in rows:
            cautions = " ".join(row.cautions)
            assert all(
                f"print {other}" in cautions or f"prints {other}" in cautions
                for other in printed - {row.printed}
            ), row


def test_p_values_are_the_exact_ones_or_say_otherwise(papers):
    tests = [row for row in papers.rows if row.table == "Table 13"]
    accuracy = {
        (row.model, row.benchmark): Decimal(row.printed)
        for row in papers.rows
        if (row.source, row.table) == ("wi2025agf", "Table 1") and row.benchmark != "average"
    }
    sets = sorted({benchmark for _, benchmark in accuracy})
    unlike = []
    for row in tests:
        other = row.model.removeprefix("AGF vs ")
        differences = [float(accuracy["AGF", name] - accuracy[other, name]) for name in sets]
        test: Any = wilcoxon(differences, method="exact")
        if round(test.pvalue, decimals(row.printed)) != row.value:
            unlike.append(row.model)
            assert f"gives {test.pvalue:.4f}" in row.cautions[0]
    assert unlike == ["AGF vs Primalformer"]


def test_the_perfect_score_is_no_target_in_any_table(papers):
    found = [row for row in papers.rows if row.benchmark == "SpokenArabicDigits"]
    assert {row.target for row in found if row.value == 100.0} == {False}
    assert {row.target for row in found if row.value != 100.0} == {True}


def test_the_length_of_the_text_benchmark_is_flagged(papers):
    found = [row for row in papers.rows if (row.source, row.benchmark) == ("wi2025agf", "text")]
    scores = [row for row in found if row.unit == "%"]
    assert scores
    assert all("1,024 bytes (1K), not 4K" in row.cautions[0] for row in scores)
    assert all("rows of different lengths" in row.cautions[0] for row in found if row not in scores)


def test_every_caution_fits_a_row(papers):
    shown = {text for row in papers.rows for text in row.cautions}
    assert {caution.text for caution in papers.cautions} == shown
