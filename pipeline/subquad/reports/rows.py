"""Rows of the table: runs that differ in nothing but their seed, and guesses that they recorded.
Other protocols and settings are rows of their own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from subquad.reports.model import BASE, Reference, TableRow
from subquad.reports.reported_run import ReportedRun, printable, varying, with_alternative
from subquad.reports.text import Setting, Spread, Values, in_order, short_setting


def make_rows(runs: Sequence[ReportedRun]) -> list[TableRow]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups = defaultdict[tuple[str, str, str], list[ReportedRun]](list)
    for run in runs:
        groups[run.data_label, run.protocol, run.label].append(run)
    rows: list[TableRow] = []
    # names by the numbers in them: k2 before k16
    for names in sorted(
        groups,
        key=lambda names: [list(map(in_order, re.split(r"(\d+)", name))) for name in names],
    ):
        rows += _rows_of(groups[names])
    return rows


def _rows_of(runs: list[ReportedRun]) -> list[TableRow]:
    keys = varying(run.settings for run in runs)
    variants = defaultdict[Setting, list[ReportedRun]](list)
    for run in runs:
        values = [printable(run.settings.get(key, "none")) for key in keys]
        variants[tuple(zip(map(printable, keys), values, strict=True))].append(run)
    shorter = _by_change(list(variants))
    rows = [_row(shorter[setting], members) for setting, members in variants.items()]
    return sorted(rows, key=lambda row: [(key, *in_order(value)) for key, value in row.setting])


def _by_change(variants: Sequence[Setting]) -> Mapping[Setting, Setting]:
    """Shorter settings where all variants but a base differ from it in one thing: that thing.

    Two settings and more must be varied: along a single one no value is a base.
    """
    for base in variants:
        changes = {variant: _changes(variant, base) for variant in variants if variant != base}
        varied = {name for change in changes.values() for name, _ in change}
        if len(varied) > 1 and {1} == set(map(len, changes.values())):
            return {**changes, base: BASE}
    return {variant: variant for variant in variants}


def _changes(variant: Setting, base: Setting) -> Setting:
    """What differs; of two settings that switch each other off the one that is given."""
    found = [part for part, other in zip(variant, base, strict=True) if part != other]
    names = {name for name, _ in found}
    return tuple(
        (name, value)
        for name, value in found
        if value != "null" or len(with_alternative(name) & names) == 1
    )


def _row(setting: Setting, runs: Sequence[ReportedRun]) -> TableRow:
    newest: dict[int, ReportedRun] = {}
    # of several runs with one seed the newest counts, because folders are named by their time
    for run in sorted(runs, key=lambda run: run.folder.name):
        if run.score(run.compared) is not None:
            newest[run.seed] = run
    counted = tuple(newest[seed] for seed in sorted(newest))
    first = next((run for run in runs if run.has_result), runs[0])
    tested = [run.test.samples for run in (*counted, *runs) if run.test]
    return TableRow(
        dataset=first.data_label,
        label=first.label,
        protocol=first.protocol,
        setting=setting,
        metric=first.compared,
        runs=tuple(runs),
        counted=counted,
        score=Spread.of(run.score(first.compared) for run in counted),
        samples=tested[0] if tested else None,
    )


def make_references(rows: Sequence[TableRow]) -> Iterator[Reference]:
    """Those of each data set and protocol, of what is compared there, in the order of the rows,
    the worst first.
    """
    about = ["dataset", "protocol", "metric", "mode"]
    columns = [*about, "value", "key", "samples", "run"]
    kept: Any = pd.DataFrame(_kept(rows), columns=pd.Index(columns))
    for (dataset, protocol, metric, mode), found in kept.groupby(about, sort=False):
        times = Counter(key for (_, key, _), _ in found.groupby(["value", "key", "samples"]))
        everyone = [
            run
            for row in rows
            if (*row.family, row.metric, row.compared.mode) == (dataset, protocol, metric, mode)
            for run in row.counted
        ]
        groups = list(found.groupby(["value", "key", "samples"])["run"])
        for (value, key, samples), runs in reversed(groups) if mode == "min" else groups:
            which = _which(list(runs), everyone) if times[key] > 1 else ""
            words = printable(key.replace("_", " "))
            yield Reference(
                dataset=dataset,
                protocol=protocol,
                label=f"{words} ({which})" if which else words,
                key=key,
                which=which,
                metric=metric,
                value=value,
                score=Spread(value, None, 0),
                samples=samples,
                runs=tuple(runs),
            )


def _kept(rows: Sequence[TableRow]) -> Iterator[tuple[Any, ...]]:
    """A line for each guess that a run recorded."""
    for row in rows:
        for run in row.counted:
            if kept := run.reference_scores:
                for key, value in kept.scores.get(row.metric, {}).items():
                    about = (*row.family, row.metric, row.compared.mode)
                    yield (*about, value, key, kept.samples, run)


def _which(members: Sequence[ReportedRun], everyone: Sequence[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many
    runs they are.
    """
    differing = varying(run.settings for run in members)
    setting = [
        (key, members[0].settings.get(key, "none"))
        for key in varying(run.settings for run in everyone)
        if key.startswith("dataset.") and key not in differing
    ]
    if setting:
        return printable(short_setting(tuple(setting)))
    return f"{len(members)} of {len(everyone)} runs"


def make_examples(rows: Sequence[TableRow]) -> Iterator[Values]:
    """What the mixers wrote, by data set and sample; rows whose samples have other targets stand
    apart.
    """
    for dataset, of_dataset in groupby(rows, key=lambda row: row.dataset):
        texts = [
            (number, example.target, row.name, example.answer)
            for row in of_dataset
            for number, example in enumerate(row.first.examples, 1)
        ]
        targets = list(dict.fromkeys(text[:2] for text in texts))
        for number, target, mixer, answer in sorted(
            texts, key=lambda text: (text[0], targets.index(text[:2]))
        ):
            yield {
                "kind": "example",
                "dataset": dataset,
                "mixer": mixer,
                "sample": number,
                "target": target,
                "answer": answer,
            }
