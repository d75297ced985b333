"""From run folders to a report: plain data that is rendered elsewhere, and the sentences made of
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import hypot, sqrt
from pathlib import Path

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.reports import stats
from subquad.reports.compare import Comparison, compare_rows
from subquad.reports.curves import Curve, make_curves
from subquad.reports.published import Beside, published_beside
from subquad.reports.ranks import Ranking, make_rankings
from subquad.reports.reading import reported_runs
from subquad.reports.references import Mean, Reference, make_means, make_references
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, make_rows, short_setting
from subquad.reports.text import Spread, Values, printable
from subquad.runs import STUDY


@dataclass(frozen=True, kw_only=True)
class ExampleTexts:
    """What the mixers wrote for one sample of a data set.

    Attributes:
        number: of the sample in the test split, from 1.
        target: what the data set gives.
        answers: a row's name, and what its first run gave.
    """

    dataset: str
    number: int
    target: str
    answers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        rows: the table.
        comparisons: pairs of rows.
        references: rows of guesses without a model.
        means: over data sets.
        rankings: of mixers over data sets.
        curves: settings that take several values with all others the same.
        headlines: a sentence for each data set and protocol, and one against its best reference
            score.
        examples: answers in words.
        runs: every run, in the order read.
        baseline: label of the mixer that others are held against; "" where there is none.
        match: what a study among them made alike for all mixers; "" where nothing.
    """

    rows: tuple[TableRow, ...]
    comparisons: tuple[Comparison, ...]
    references: tuple[Reference, ...]
    means: tuple[Mean, ...]
    rankings: tuple[Ranking, ...]
    curves: tuple[Curve, ...]
    headlines: tuple[str, ...]
    examples: tuple[ExampleTexts, ...]
    runs: tuple[ReportedRun, ...]
    baseline: str
    match: str = ""

    def published(self, row: TableRow) -> list[Beside]:
        """Published rows beside a row: those that change the same setting to its value, else the
        main tables'.
        """
        varied: list[Beside] = []
        for curve in self.curves:
            if not row.is_base and row in curve.rows:
                varied += published_beside(row, curve.key)
        return varied or published_beside(row)


def read_report(
    folders: Sequence[Path], *, baseline: str | None = None, search: Values | None = None
) -> Report:
    """Read run or study directories.

    Args:
        folders: run and study directories.
        baseline: label of the mixer that others are held against; None: the one that a study among
            them names.
        search: the summary of the search whose final study they are, where it was made anew.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    runs = reported_runs(folders, search)
    rows = make_rows(runs)
    held = printable(_study_value(runs, "baseline") if baseline is None else baseline)
    curves = make_curves(rows)
    references = list(make_references(rows))
    varied = [row for curve in curves for row in curve.rows]
    comparisons = compare_rows(rows, held, apart=varied)
    means = tuple(make_means(rows, references))
    return Report(
        rows=tuple(rows),
        comparisons=tuple(comparisons),
        references=tuple(references),
        means=means,
        rankings=tuple(make_rankings(means, held)),
        curves=tuple(curves),
        headlines=tuple(_headlines(rows, comparisons, references, held)),
        examples=tuple(_examples(rows)),
        runs=tuple(runs),
        baseline=held,
        match=_study_value(runs, "match"),
    )


def _examples(rows: Sequence[TableRow]) -> Iterator[ExampleTexts]:
    """By data set and sample; rows whose samples have other targets stand apart."""
    answers = defaultdict[tuple[int, str], list[tuple[str, str]]](list)
    for dataset, of_dataset in groupby(rows, key=lambda row: row.dataset):
        answers.clear()
        for row in of_dataset:
            for number, example in enumerate(row.first.examples, 1):
                answers[number, example.target].append((row.name, example.answer))
        for number, target in sorted(answers, key=lambda sample: sample[0]):
            given = tuple(answers[number, target])
            yield ExampleTexts(dataset=dataset, number=number, target=target, answers=given)


def _study_value(runs: Iterable[ReportedRun], key: str) -> str:
    """What the first study that has the key has there, "" where none does."""
    for study in dict.fromkeys(run.folder.parent.parent / STUDY for run in runs):
        if study.exists():
            data = parse_yaml(read_text(study, str(study)), str(study)).data
            if isinstance(data, dict) and data.get(key):
                return printable(str(data[key]))
    return ""


def _headlines(
    rows: Sequence[TableRow],
    comparisons: Sequence[Comparison],
    references: Sequence[Reference],
    baseline: str,
) -> Iterator[str]:
    """Sentences in the order of the table: for each data set and protocol the baseline's, and
    the references'.
    """
    for family in dict.fromkeys(row.family for row in rows):
        members = [row for row in rows if row.family == family]
        pairs = [pair for pair in comparisons if pair.first.family == family]
        guesses = [reference for reference in references if reference.family == family]
        beside = _baseline_sentence(members, pairs, baseline)
        above = _reference_sentence(members, guesses)
        for sentence in filter(None, (beside, above)):
            yield f"{family[0]} ({family[1]}): {sentence}"


def _baseline_sentence(
    rows: Sequence[TableRow], everything: Sequence[Comparison], baseline: str
) -> str:
    """What the mixers score beside the baseline."""
    controls = [row for row in rows if row.is_called(baseline)]
    one_mixer = len(rows) > len({row.label for row in rows}) == 1
    if not baseline or (not controls and one_mixer):  # a study of a setting, not of mixers
        return ""
    if len(controls) == len(rows):
        return f"only the baseline {baseline} ran: nothing to compare it with"
    if not controls:
        return f"no row of the baseline {baseline}"
    by_verdict = defaultdict[str, list[Comparison]](list)
    spent = []
    for pair in everything:
        if pair.second.is_called(baseline) and not pair.first.is_called(baseline):
            by_verdict[pair.verdict].append(pair)
            if pair.unequal:
                spent.append(f"{pair.first.name} {pair.unequal}")
    if not by_verdict:
        return f"the baseline {baseline} and the other mixers have no test scores to compare"
    parts = [_clear(pair, baseline, len(controls)) for pair in by_verdict["distinguishable"]]
    if alike := by_verdict["not distinguishable"]:
        words = f"not distinguishable from the baseline {baseline}, {_possible(alike)} not excluded"
        if all(pair.verdict == "not distinguishable" for pair in everything):
            words += f": {_why_alike(alike)}"
        parts.append(f"{_names(alike)}: {words}")
    if few := by_verdict["not enough seeds"]:
        words = f"not enough seeds to compare with the baseline {baseline}"
        parts.append(f"{_names(few)}: {words}; run more than one seed of each")
    if spent:
        parts.append(f"beside the baseline: {', '.join(spent)}")
    return "; ".join(parts)


def _why_alike(pairs: Sequence[Comparison]) -> str:
    """Whether more seeds could tell: with very many of them, a difference as found would stand
    out of the samples'.
    """
    for pair in pairs:
        if pair.estimate and abs(pair.estimate.difference) > pair.estimate.least:
            return "too few seeds to tell"
    return "this data set cannot tell mixers apart in this setting"


def _clear(pair: Comparison, baseline: str, controls: int) -> str:
    """`fast beats the baseline plain by 61.2 points [58.9, 63.3]`."""
    assert pair.estimate is not None
    estimate, metric = pair.estimate, pair.first.compared
    verb = "beats" if (estimate.difference > 0) == (metric.mode == "max") else "falls behind"
    setting = pair.second.setting if controls > 1 else ()
    which = f" ({short_setting(setting)})" if setting else ""
    # both ends have the sign of the difference
    low, high = sorted(map(abs, (estimate.low, estimate.high)))
    points = f"{metric.points(abs(estimate.difference))} {metric.points_word}"
    gap = f"{points} {metric.interval(low, high)}"
    return f"{pair.first.name} {verb} the baseline {baseline}{which} by {gap}"


def _possible(pairs: Sequence[Comparison]) -> str:
    """`differences of -1.8 to 2.3 points`: what stays possible, so that no evidence is not read
    as equality.
    """
    found, metric = [pair.estimate for pair in pairs if pair.estimate], pairs[0].first.compared
    low = min(estimate.low for estimate in found)
    high = max(estimate.high for estimate in found)
    return f"differences of {metric.points(low)} to {metric.points(high)} {metric.points_word}"


def _names(pairs: Sequence[Comparison]) -> str:
    return ", ".join(dict.fromkeys(pair.first.name for pair in pairs))


def _reference_sentence(rows: Sequence[TableRow], references: Sequence[Reference]) -> str:
    """For the rows and references of one data set and protocol; empty where there is nothing to
    say.

    Judged are metrics of which more is better, where the intervals over the test samples are known
    on both sides.
    """
    best = defaultdict[int, list[TableRow]](list)
    nor_above = defaultdict[int, list[str]](list)
    missing = []
    for row in rows:
        is_known = row.compared.answers or row.interval(row.metric)
        if not is_known or row.score is None or row.compared.mode != "max":
            continue
        own = _own(row, references)
        if not own:
            missing.append(row.name)
            continue
        highest = max(own, key=lambda reference: reference.reach[1])
        best[id(highest)].append(row)
        for reference in own:
            if reference is not highest and _place_of(row, reference) == "not above":
                nor_above[id(reference)].append(row.name)
    if not best:
        return ""
    known = [reference for reference in references if id(reference) in best]
    parts = [_against(reference, best[id(reference)]) for reference in known]
    for reference in references:
        if below := nor_above[id(reference)]:
            parts.append(f"nor above {_named(reference)}: {', '.join(below)}")
    if missing:
        parts.append(f"no reference score recorded beside {', '.join(missing)}")
    if rows[0].protocol == "paper":
        parts.append("these scores were chosen on the test split")
    return "; ".join(parts)


def _own(row: TableRow, references: Sequence[Reference]) -> list[Reference]:
    """Those with an interval that the row's own runs recorded."""
    folders = {run.folder for run in row.counted}
    own = []
    for reference in references:
        is_recorded = any(run.folder in folders for run in reference.runs)
        if is_recorded and reference.metric == row.metric and reference.interval:
            own.append(reference)
    return own


def _named(reference: Reference) -> str:
    """`root operator 36.4 % [34.3, 38.5]`."""
    metric = reference.compared
    share = f"{metric.points(reference.value)}{' %' if metric.unit == '%' else ''}"
    return f"{reference.words} {share} {metric.interval(*reference.reach)}"


def _against(reference: Reference, rows: Sequence[TableRow]) -> str:
    places = defaultdict[str, list[str]](list)
    for row in rows:
        places[_place_of(row, reference)].append(row.name)
    what = f"the best reference score ({_named(reference)})"
    parts = []
    for place, (start, end) in _PLACES.items():
        if names := places[place]:
            parts.append(f"{start} {what}: {', '.join(names)}{end}")
            what = "it"
    return "; ".join(parts)


_PLACES = {
    "above": ("above", ""),
    "not above": ("not shown to be above", " (scores up to it need no trained model)"),
    "few seeds": ("not enough seeds to place above", "; run more than one seed of each"),
}
"""Where a row stands beside a reference: the words before and after it."""


def _place_of(row: TableRow, reference: Reference) -> str:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the
    reference's.
    """
    high = reference.reach[1]
    if row.score is None or row.score.mean <= high:
        return "not above"
    ends = row.interval(row.metric) or stats.wilson(row.score.mean, reference.samples)
    low = _lower_end(row.score, ends[0])
    if low is None:
        return "few seeds"
    return "above" if low > high else "not above"


def _lower_end(score: Spread, low: float) -> float | None:
    """Lower end of a 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and of `low`, the lower end over the samples, added
    in squares (Newcombe, 1998).
    """
    if score.std is None:
        return None
    of_seeds = stats.t_quantile(score.count - 1.0) * score.std / sqrt(score.count)
    return score.mean - hypot(of_seeds, score.mean - low)
