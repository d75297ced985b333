"""Mixers over data sets: tests against SciPy's, what few data sets allow, the diagram, and
scores with intervals.
"""

from __future__ import annotations

import io
import itertools
import xml.dom.minidom

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import friedmanchisquare, rankdata, wilcoxon

from subquad.reports import document_of, print_document, read_report, stats
from subquad.reports.drawing import RankChart
from subquad.reports.text import SPREAD_NOTE

NAMES = [f"set{letter}" for letter in "ABCDEFGHIJ"]


def test_signed_rank_is_the_exact_test():
    random = np.random.default_rng(1)
    for count in (5, 9, 13, 30):
        differences = random.normal(0.4, 1.0, count)
        found = stats.signed_rank(differences)
        assert found.counted
        assert found.p_value == pytest.approx(_p_value(wilcoxon(differences, method="exact")))
    assert stats.signed_rank(np.zeros(6)).p_value == 1.0
    least = stats.signed_rank(np.array([0.1, 0.3, 0.2, 0.1 + 1e-12, 0.4]))
    assert least == stats.Chance(2 / 32, 32, True), "the least that five allow"
    assert stats.signed_rank(np.array([0.0, 0.0, 1.0, 2.0])).p_value == 4 * 2 / 16, (
        "zeros have a rank and no sign"
    )


@pytest.mark.parametrize("seed", range(6))
def test_signed_rank_with_ties_and_zeros_counts_every_sign(seed: int):
    random = np.random.default_rng(seed)
    gaps = random.integers(-3, 4, random.integers(2, 10)) / 100
    ranks = rankdata(abs(gaps)) * (gaps != 0)
    found = abs(ranks @ np.sign(gaps))
    signs = itertools.product((-1, 1), repeat=len(gaps))
    expected = np.mean([abs(ranks @ np.array(own)) >= found for own in signs])
    assert stats.signed_rank(gaps).p_value == pytest.approx(expected, abs=1e-12)


@pytest.mark.ci
def test_signed_rank_draws_only_where_there_are_too_many_signs_to_count():
    gaps = np.repeat([0.1, 0.2, -0.1, 0.3], 5)
    found = stats.signed_rank(gaps)
    assert (found.counted, found.words) == (False, "from 50,000 drawn arrangements")
    assert found == stats.signed_rank(gaps), "the seed is fixed"
    assert found.p_value == pytest.approx(_p_value(wilcoxon(gaps)), abs=0.005)


def test_friedman_counts_where_it_can():
    alike = np.tile([1.0, 2.0, 3.0], (2, 1))
    assert stats.friedman(alike) == stats.Chance(1 / 6, 6, True)
    assert stats.friedman(np.tile([1.0, 2.0, 3.0], (3, 1))).p_value == pytest.approx(
        1 / 36, abs=1e-15
    )
    assert stats.friedman(np.full((5, 3), 2.0)).p_value == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_friedman_with_ties_is_the_share_of_all_arrangements(seed: int):
    random = np.random.default_rng(seed)
    shape = ((2, 3), (2, 5), (3, 3), (4, 3), (3, 4), (2, 4))[seed]
    ranks = rankdata(random.integers(0, 3, shape), axis=1)
    orders = [list(itertools.permutations(row)) for row in ranks]
    squares = [(np.sum(rows, axis=0) ** 2).sum() for rows in itertools.product(*orders)]
    found = stats.friedman(ranks)
    assert found.counted
    assert found.p_value == pytest.approx(
        np.mean(squares >= (ranks.sum(0) ** 2).sum() - 1e-9), abs=1e-12
    )


def test_friedman_of_many_data_sets_is_drawn_and_near_his_chi_square():
    scores = np.random.default_rng(2).normal([0.0, 0.1, 0.3, 0.6], 1.0, (40, 4))
    found = stats.friedman(rankdata(scores, axis=1))
    assert (found.counted, found.arrangements) == (False, 50_000)
    assert found.p_value == pytest.approx(friedmanchisquare(*scores.T).pvalue, abs=0.01)


def test_holm_rejects_what_his_steps_reject():
    random = np.random.default_rng(3)
    for count in (1, 2, 7, 30):
        p_values = np.round(random.random(count) ** 4, 3).tolist()
        adjusted = stats.holm(p_values)
        for level in (0.01, 0.05, 0.2):
            assert [value <= level for value in adjusted] == _steps(p_values, level)


def _steps(p_values: list[float], level: float) -> list[bool]:
    """Holm, 1979: from the least p-value on, each is held against level / (hypotheses that are
    left).
    """
    rejected = [False] * len(p_values)
    for done, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] * (len(p_values) - done) > level:
            break
        rejected[place] = True
    return rejected


def test_the_critical_difference_is_the_published_one():
    # Demsar, 2006, table 5 and section 3.2.2: q is 2.569 for four classifiers, so 1.25 over 14 data
    # sets
    assert stats.critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(20 / 84), abs=1e-3)
    table = {2: 1.960, 3: 2.343, 5: 2.728, 7: 2.949, 10: 3.164}
    for mixers, value in table.items():
        assert stats.critical_difference(mixers, 6) == pytest.approx(
            value * np.sqrt(mixers * (mixers + 1) / 36), 1e-3
        )


@pytest.fixture
def study(factory):
    def make(datasets: int, mixers: tuple[str, ...] = ("agf", "softmax", "identity"), **facts):
        folder = factory.study()
        for place, name in enumerate(NAMES[:datasets]):
            for number, mixer in enumerate(mixers):
                for seed in range(2):
                    score = 0.9 - 0.1 * number - 0.01 * place - 0.001 * seed * (place + 1)
                    factory.cell(
                        folder, dataset=name, mixer=mixer, seed=seed, accuracy=score, **facts
                    )
        return read_report([folder], baseline="identity")

    return make


def test_few_data_sets_say_what_they_allow(study):
    (ranking,) = study(4).rankings
    assert (ranking.mixers, ranking.ranks, (ranking.least_p, ranking.least_p_holm)) == (
        ("agf", "softmax", "identity"),
        (1.0, 2.0, 3.0),
        (0.125, 0.375),
    )
    assert ranking.sentence == (
        "honest, 4 data sets; mean ranks differ (Friedman p 0.005, counted over all 216 "
        "arrangements); too few data sets to tell any pair of mixers apart: no p is below 0.375 "
        "after Holm's correction; it takes 7"
    )
    assert {(pair.wins, pair.verdict) for pair in ranking.pairs} == {((4, 0), "too few data sets")}
    assert [(pair.first.name, pair.second.name) for pair in ranking.pairs][1:] == [
        ("agf", "identity"),
        ("softmax", "identity"),
    ]


def test_enough_data_sets_tell_mixers_apart(study):
    (ranking,) = study(7).rankings
    assert [pair.adjusted for pair in ranking.pairs] == pytest.approx([3 / 64] * 3)
    assert "agf and softmax differ (p 0.047)" in ranking.sentence
    first, second, third = ranking.ranks
    assert second - first < ranking.critical < third - first


def test_two_mixers_have_no_friedman_and_a_lower_metric_ranks_the_other_way(study):
    (ranking,) = study(3, ("agf", "identity"), metric="perplexity", mode="min").rankings
    assert (ranking.friedman, ranking.mixers) == (None, ("identity", "agf"))


def test_one_data_set_or_one_mixer_has_no_ranks(study):
    assert study(1).rankings == ()
    assert study(2, ("agf",)).rankings == ()


def test_every_format_has_them_and_explains_the_spread(study, as_text):
    report = study(4)
    (ranking,) = report.rankings
    chart = RankChart(ranking.title, ranking.mixers, ranking.ranks, ranking.critical)
    texts = [node.firstChild.nodeValue for node in _svg(chart).getElementsByTagName("text")]  # type: ignore[union-attr]
    assert {"agf", "softmax", "identity"} <= set(texts)
    said = f"agf 1.00, softmax 2.00, identity 3.00. Critical difference {ranking.critical:.2f}."
    assert said in chart.description
    markdown, paper = (as_text(report, form) for form in ("md", "tex"))
    assert (
        "| agf − softmax | honest | 4 | 4 : 0 | 10.0 | 0.125 | 0.375 | too few data sets |"
        in markdown
    )
    # the first table, scores and costs, means
    assert markdown.count("±: standard deviation") == 3
    assert paper.count(r"$\pm$: standard deviation over the seeds") == 1
    stream = io.StringIO()
    console = Console(file=stream, width=100, color_system=None)
    print_document(document_of(report), console, stats=True)
    assert stream.getvalue().count(SPREAD_NOTE) == 2
    assert ranking.sentence in stream.getvalue()
    plain = document_of(report).values["rankings"][0]
    assert (plain["least_p"], plain["pairs"][0]["verdict"]) == (0.125, "too few data sets")
    assert plain["friedman"] == {
        "p_value": pytest.approx(1 / 216),
        "arrangements": 216,
        "counted": True,
    }


def _p_value(result) -> float:
    return result.pvalue


def _svg(chart):
    root = xml.dom.minidom.parseString(chart.drawn()).documentElement
    assert root is not None
    return root
