"""From run folders to a report: plain data that is rendered elsewhere, and the sentences made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from typing import Any, Literal

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.report import stats
from subquad.report.compare import Comparison, compare_rows
from subquad.report.curves import Curve, make_curves
from subquad.report.published import Beside, published_beside
from subquad.report.ranks import Ranking, make_rankings
from subquad.report.references import Mean, Reference, make_means, make_references
from subquad.report.rows import TableRow, make_rows, short_setting
from subquad.report.run import ReportedRun, reported_runs
from subquad.report.text import Spread, printable
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
        headlines: a sentence for each data set and protocol, and one against its best reference score.
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
        """Published rows beside a row: those that change the same setting to its value, else the main tables'."""
        keys = [one.key for one in self.curves if not row.is_base and row in one.rows]
        return [one for key in keys for one in published_beside(row, key)] or published_beside(row)


def read_report(
    folders: Sequence[Path], *, baseline: str | None = None, search: Mapping[str, Any] | None = None
) -> Report:
    """Read run or study directories.

    Args:
        folders: run and study directories.
        baseline: label of the mixer that others are held against; None: the one that a study among them names.
        search: the summary of the search whose final study they are, where it was made anew.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    runs = reported_runs(folders, search)
    rows = make_rows(runs)
    held = printable(_said(runs, "baseline") if baseline is None else baseline)
    curves, references = make_curves(rows), list(make_references(rows))
    comparisons = compare_rows(rows, held, apart=[row for curve in curves for row in curve.rows])
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
        match=_said(runs, "match"),
    )


def _examples(rows: Sequence[TableRow]) -> Iterator[ExampleTexts]:
    """By data set and sample; rows whose samples have other targets stand apart."""
    found: dict[tuple[str, int, str], list[tuple[str, str]]] = {}
    for row in rows:
        for number, example in enumerate(row.first.examples, 1):
            answers = found.setdefault((row.dataset, number, example.target), [])
            answers.append((row.name, example.answer))
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    for dataset, number, target in sorted(found, key=lambda key: (datasets.index(key[0]), key[1])):
        answers = tuple(found[dataset, number, target])
        yield ExampleTexts(dataset=dataset, number=number, target=target, answers=answers)


def _said(runs: Iterable[ReportedRun], key: str) -> str:
    """What the first study that has the key has there, "" where none does."""
    for study in dict.fromkeys(run.folder.parent.parent / STUDY for run in runs):
        data = parse_yaml(read_text(study, str(study)), str(study)).data if study.exists() else None
        if isinstance(data, dict) and data.get(key):
            return printable(str(data[key]))
    return ""


def _headlines(
    rows: Sequence[TableRow], comparisons: Sequence[Comparison], references: Sequence[Reference], baseline: str
) -> Iterator[str]:
    """Sentences in the order of the table: for each data set and protocol the baseline's, and the references'."""
    for family in dict.fromkeys(row.family for row in rows):
        members = [row for row in rows if row.family == family]
        pairs = [one for one in comparisons if one.first.family == family]
        guesses = [one for one in references if one.family == family]
        for part in (_baseline_sentence(members, pairs, baseline), _reference_sentence(members, guesses)):
            if part:
                yield f"{family[0]} ({family[1]}): {part}"


def _baseline_sentence(rows: Sequence[TableRow], everything: Sequence[Comparison], baseline: str) -> str:
    """What the mixers score beside the baseline."""
    controls = [row for row in rows if row.is_called(baseline)]
    one_mixer = len(rows) > len({row.label for row in rows}) == 1
    if not baseline or (not controls and one_mixer):  # a study of a setting, not of mixers
        return ""
    if len(controls) == len(rows):
        return f"only the baseline {baseline} ran: nothing to compare it with"
    if not controls:
        return f"no row of the baseline {baseline}"
    pairs = [one for one in everything if one.second.is_called(baseline) and not one.first.is_called(baseline)]
    if not pairs:
        return f"the baseline {baseline} and the other mixers have no test scores to compare"
    by_verdict: dict[str, list[Comparison]] = {}
    for one in pairs:
        by_verdict.setdefault(one.verdict, []).append(one)
    parts = [_clear(one, baseline, len(controls)) for one in by_verdict.get("distinguishable", ())]
    spent = [f"{one.first.name} {one.unequal}" for one in pairs if one.unequal]
    if open_ones := by_verdict.get("not distinguishable"):
        alike = all(one.verdict == "not distinguishable" for one in everything)
        end = f": {_why_alike(open_ones)}" if alike else ""
        said = f"not distinguishable from the baseline {baseline}, {_possible(open_ones)} not excluded"
        parts.append(f"{_names(open_ones)}: {said}{end}")
    if few := by_verdict.get("not enough seeds"):
        said = f"not enough seeds to compare with the baseline {baseline}; run more than one seed of each"
        parts.append(f"{_names(few)}: {said}")
    if spent:
        parts.append(f"beside the baseline: {', '.join(spent)}")
    return "; ".join(parts)


def _why_alike(pairs: Sequence[Comparison]) -> str:
    """Whether more seeds could tell: with very many of them, a difference as found would stand out of the samples'."""
    found = [one.estimate for one in pairs if one.estimate]
    few = any(abs(one.difference) > one.least for one in found)
    return "too few seeds to tell" if few else "this data set cannot tell mixers apart in this setting"


def _clear(one: Comparison, baseline: str, controls: int) -> str:
    """`fast beats the baseline plain by 61.2 points [58.9, 63.3]`."""
    assert one.estimate is not None
    estimate, metric = one.estimate, one.first.compared
    verb = "beats" if (estimate.difference > 0) == (metric.mode == "max") else "falls behind"
    which = f" ({short_setting(one.second.setting)})" if controls > 1 and one.second.setting else ""
    low, high = sorted(map(abs, (estimate.low, estimate.high)))  # both ends have the sign of the difference
    gap = f"{metric.points(abs(estimate.difference))} {metric.points_word} {metric.interval(low, high)}"
    return f"{one.first.name} {verb} the baseline {baseline}{which} by {gap}"


def _possible(pairs: Sequence[Comparison]) -> str:
    """`differences of -1.8 to 2.3 points`: what stays possible, so that no evidence is not read as equality."""
    found, metric = [one.estimate for one in pairs if one.estimate], pairs[0].first.compared
    low, high = min(one.low for one in found), max(one.high for one in found)
    return f"differences of {metric.points(low)} to {metric.points(high)} {metric.points_word}"


def _names(pairs: Sequence[Comparison]) -> str:
    return ", ".join(dict.fromkeys(one.first.name for one in pairs))


def _reference_sentence(rows: Sequence[TableRow], references: Sequence[Reference]) -> str:
    """For the rows and references of one data set and protocol; empty where there is nothing to say.

    Judged are metrics of which more is better, where the intervals over the test samples are known on both sides.
    """
    known = [row for row in rows if row.compared.answers or row.interval(row.metric)]
    judged = [row for row in known if row.score is not None and row.compared.mode == "max"]
    pairs = [(row, _best_of(row, references)) for row in judged]
    parts = [_against(one, own) for one in references if (own := [row for row, found in pairs if found is one])]
    parts += [_below(one, own) for one in references if (own := _not_above(one, pairs))]
    if parts and (missing := [row.name for row, found in pairs if found is None]):
        parts.append(f"no reference score recorded beside {', '.join(missing)}")
    if parts and judged[0].protocol == "paper":
        parts.append("these scores were chosen on the test split")
    return "; ".join(parts)


def _not_above(reference: Reference, pairs: Sequence[tuple[TableRow, Reference | None]]) -> list[TableRow]:
    """Rows that are not shown to be above a reference of their own, which is not their best one."""
    others = [row for row, best in pairs if best and best is not reference and _own(row, [reference])]
    return [row for row in others if _judge(row, reference) == "not above"]


def _below(reference: Reference, rows: Sequence[TableRow]) -> str:
    return f"nor above {_named(reference)}: {', '.join(row.name for row in rows)}"


def _best_of(row: TableRow, references: Sequence[Reference]) -> Reference | None:
    """The reference with the highest upper end among those of the row's own runs."""
    return max(_own(row, references), key=lambda one: one.reach[1], default=None)


def _own(row: TableRow, references: Sequence[Reference]) -> list[Reference]:
    """Those with an interval that the row's own runs recorded."""
    folders = {run.folder for run in row.counted}
    return [
        reference
        for reference in references
        if reference.metric == row.metric and reference.interval and folders & {run.folder for run in reference.runs}
    ]


def _named(reference: Reference) -> str:
    """`root operator 36.4 % [34.3, 38.5]`."""
    metric = reference.compared
    share = f"{metric.points(reference.value)}{' %' if metric.unit == '%' else ''}"
    return f"{reference.words} {share} {metric.interval(*reference.reach)}"


def _against(reference: Reference, rows: Sequence[TableRow]) -> str:
    what, parts = f"the best reference score ({_named(reference)})", list[str]()
    for verdict, start, end in (
        ("above", "above", ""),
        ("not above", "not shown to be above", " (scores up to it need no trained model)"),
        ("few seeds", "not enough seeds to place above", "; run more than one seed of each"),
    ):
        if names := [row.name for row in rows if _judge(row, reference) == verdict]:
            parts.append(f"{start} {'it' if parts else what}: {', '.join(names)}{end}")
    return "; ".join(parts)


def _judge(row: TableRow, reference: Reference) -> Literal["above", "not above", "few seeds"]:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the reference's."""
    high = reference.reach[1]
    if row.score is None or row.score.mean <= high:
        return "not above"
    ends = row.interval(row.metric) or stats.wilson(row.score.mean, reference.samples)
    low = _lower_end(row.score, ends[0])
    return "few seeds" if low is None else "above" if low > high else "not above"


def _lower_end(score: Spread, low: float) -> float | None:
    """Lower end of a 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and of `low`, the lower end over the samples, added in squares
    (Newcombe, 1998).
    """
    if score.std is None:
        return None
    of_seeds = stats.t_quantile(score.count - 1.0) * score.std / sqrt(score.count)
    return score.mean - hypot(of_seeds, score.mean - low)
