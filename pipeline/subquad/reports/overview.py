"""What a reader sees first: mixers down, data sets across, and at most four sentences on it.

All of it is made from one frame of pandas with a line for each score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from subquad.errors import and_more
from subquad.output.terminal import DASH, quantity
from subquad.reports.document import Section, Sign, Table
from subquad.reports.means import AVERAGE
from subquad.reports.reading import Report
from subquad.reports.rows import TableRow, meanings
from subquad.reports.stats import why_alike
from subquad.reports.text import grouped, near_published, score_text

_Frame = Any
"""A frame of pandas, whose types do not say what is in its columns."""
_MOST_VERDICTS = 2
"""Sentences with verdicts; the others are in the table's signs."""
_MOST_REASONS = 3
_SIGN_OF: Mapping[str, Sign | None] = {
    "distinguishable": None,
    "not distinguishable": "≈",
    "not enough seeds": "?",
    "too few data sets": "?",
}
"""By the verdict on two mixers, one of which is the best."""
_COLUMNS = ("protocol", "metric", "dataset", "name", "line", "text", "judged", "apart")


def overview(report: Report) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """A table for each protocol and metric, and the sentences below them."""
    scores = _scores(report)
    sections = []
    for (protocol, metric), block in scores.groupby(["protocol", "metric"], sort=False):
        chosen = ", best on test" if protocol == "paper" else ""
        rows = [row for row in report.rows if (row.protocol, row.metric) == (protocol, metric)]
        sections.append(
            Section(
                title=f"Test {rows[0].compared.with_unit}, protocol {protocol}{chosen}",
                table=_table(block),
                lines=tuple(_beside_published(rows, report)),
            )
        )
    sentences = [_compared(report), *_verdicts(scores)]
    if reasons := list(dict.fromkeys(_reasons(report))):
        more = and_more(len(reasons) - _MOST_REASONS)
        sentences.append(f"Beware: {'; '.join(reasons[:_MOST_REASONS])}{more}.")
    return tuple(sections), tuple(sentences)


def _scores(report: Report) -> _Frame:
    """A line for each score of a row, a reference, or a mean over all data sets, with its sign and
    the pair of it and the best of its column.

    `judged` is the score where it may be the best: not of a guess, and not on stand-in data.
    """
    rows = []
    averages = [mean for mean in report.means if not mean.others]
    for line in (*report.rows, *report.references, *averages):
        text = score_text(line.compared, line.score)
        if isinstance(line, TableRow) and not line.score:
            text = line.status(reasons=False)
        apart = line.is_reference
        if isinstance(line, TableRow):
            apart = line.is_called(report.baseline)
        judged = (
            None if line.is_reference or line.is_stand_in or not line.score else line.score.mean
        )
        about = (line.protocol, line.metric, line.dataset, line.name)
        rows.append((*about, line, text, judged, apart))
    scores: _Frame = pd.DataFrame(rows, columns=pd.Index(_COLUMNS)).astype({"judged": float})
    own = [part.comparisons for part in (report, *report.curves)]
    over = [ranking.pairs for ranking in report.rankings]
    pairs = {frozenset((pair.first, pair.second)): pair for pair in chain(*own, *over)}
    scores[["sign", "pair"]] = None
    for _, column in scores.groupby(["protocol", "metric", "dataset"]):
        judged = column["judged"].dropna().round(9)  # sums of floats
        if len(judged) < 2:
            continue
        best = judged.min() if column["line"].iloc[0].compared.mode == "min" else judged.max()
        leader = column["line"][(judged == best).idxmax()]
        for place, score in judged.items():
            pair = pairs.get(frozenset((leader, column["line"][place])))
            scores.at[place, "pair"] = pair
            sign = _SIGN_OF[pair.verdict] if pair else "?"
            scores.at[place, "sign"] = "*" if score == best else sign
    return scores


def _table(block: _Frame) -> Table:
    """Mixers down, data sets across; the average is the last column."""
    datasets = list(block["dataset"].unique())
    # rows of one name are lines of their own
    copies = block.groupby(["dataset", "name"]).cumcount()
    wide = block.assign(number=copies).set_index(["name", "number", "dataset"]).unstack(sort=False)
    lines = wide["text"][datasets].fillna(DASH)
    signs = wide["sign"][datasets].fillna("").to_numpy()
    names = ["average" if dataset == AVERAGE else dataset for dataset in datasets]
    return Table(
        columns=("mixer", *names),
        lines=tuple((name, *texts) for (name, _), *texts in lines.itertuples()),
        numeric=names,
        apart=wide["apart"].eq(True).any(axis=1).to_numpy().nonzero()[0].tolist(),
        signs={(line, place + 1): sign for (line, place), sign in np.ndenumerate(signs) if sign},
        aside="the baseline, and guesses without a trained model",
    )


def _beside_published(rows: Sequence[TableRow], report: Report) -> Iterator[str]:
    """How many scores have a comparable published number, and where they lie beside it."""
    gaps = [
        row.compared.scaled(row.score.mean) - beside.published.value
        for row in rows
        if row.score and row.compared.is_fraction
        for beside in report.beside[row]
        if not beside.reasons
    ]
    if gaps:
        yield near_published(gaps, 1.0)


def _compared(report: Report) -> str:
    """How much is behind the numbers, and what each protocol means."""
    rows = report.rows
    mixers = quantity(len({row.label for row in rows}), "mixer")
    datasets = quantity(len({row.dataset for row in rows}), "data set")
    seeds = sorted({len(row.seeds) for row in rows})
    least = f"{seeds[0]} to " if len(seeds) > 1 else ""
    words = f"{mixers} on {datasets}, {least}{quantity(seeds[-1], 'seed')} each"
    if report.baseline:
        is_there = any(row.is_called(report.baseline) for row in rows)
        words += f", {'' if is_there else 'no row of the '}baseline {report.baseline}"
    return f"{words}; {'; '.join(meanings(rows))}."


def _verdicts(scores: _Frame) -> Iterator[str]:
    """A sentence for all data sets of one verdict, those of most data sets first."""
    datasets = scores[scores["dataset"] != AVERAGE]
    columns = datasets.groupby(["protocol", "metric", "dataset"], sort=False)
    said = grouped(columns, lambda column: _verdict(column[1]))
    groups = sorted(said.items(), key=lambda group: -len(group[1]))
    for verdict, told in groups[:_MOST_VERDICTS]:
        yield f"{', '.join(dataset for (*_, dataset), _ in told)}: {verdict}."
    if left := sum(len(told) for _, told in groups[_MOST_VERDICTS:]):
        yield f"The other {quantity(left, 'data set')}: see the signs in the table."


def _verdict(column: _Frame) -> str:
    """On one data set: who is best, and who is not told from that."""
    judged = column.dropna(subset="judged").sort_values("judged", kind="stable")
    if len(judged) < 2:
        return "one score or none on real data, so no verdict"
    names = judged.fillna({"sign": ""}).groupby("sign")["name"].agg(", ".join)
    best = names["*"]
    if "?" in names:
        return f"{best} ahead, not enough to tell from {names['?']}; train more seeds"
    if "≈" in names:
        words = f"{best} ≈ {names['≈']}"
        if "" not in names:
            words += f": {why_alike(pair.estimate for pair in judged['pair'].dropna())}"
        return words
    if "" not in names:
        return f"{best} score the same"
    metric = judged["line"].iloc[0].compared
    is_best = judged["sign"] == "*"
    other = judged[~is_best].iloc[0 if metric.mode == "min" else -1]
    gap = abs(other["judged"] - judged[is_best]["judged"].iloc[0])
    return f"{best} best, {metric.points(gap)} {metric.points_word} from {other['name']}"


def _reasons(report: Report) -> Iterator[str]:
    """What makes numbers of the table not comparable, or else must be known."""
    for row in report.rows:
        status = row.status(reasons=False)
        if status != f"{len(row.counted)} finished":
            yield f"{row.name} on {row.dataset}: {status}"
    for row in report.rows:
        yield from (f"{row.dataset}: {note}" for note in row.notes)
    for pair in report.comparisons:
        who = f"{pair.first.name} and {pair.second.name} on {pair.first.dataset}"
        yield from (f"{who}: {note}" for note in pair.notes)
    published = list(chain.from_iterable(report.beside.values()))
    if unlike := sum(bool(beside.reasons) for beside in published):
        count = quantity(len(published), "published number")
        yield f"{unlike} of {count} not comparable (see the details)"
