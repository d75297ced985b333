"""Rows of the table: runs that differ in nothing but their seed, and guesses that they recorded.
Other protocols and settings are rows of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from subquad.reports.model import BASE, Reference, TableRow
from subquad.reports.reported_run import ReportedRun, printable, varying, with_alternative
from subquad.reports.text import Setting, Spread, Values, grouped, in_order, short_setting


def make_rows(runs: Sequence[ReportedRun]) -> list[TableRow]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups = grouped(runs, lambda run: (run.data_label, run.protocol, run.label))
    return [row for names in sorted(groups, key=_with_numbers) for row in _rows_of(groups[names])]


def _with_numbers(names: Sequence[str]) -> list[list[tuple[float, str]]]:
    """Sort key of names by the numbers in them: k2 before k16."""
    return [list(map(in_order, re.split(r"(\d+)", name))) for name in names]


def _rows_of(runs: list[ReportedRun]) -> list[TableRow]:
    keys = varying(run.settings for run in runs)

    def setting_of(run: ReportedRun) -> Setting:
        return tuple((printable(key), printable(run.settings.get(key, "none"))) for key in keys)

    variants = grouped(runs, setting_of)
    shorter = _by_change(list(variants))
    return sorted(
        [_row(shorter[setting], members) for setting, members in variants.items()],
        key=lambda row: [(key, *in_order(value)) for key, value in row.setting],
    )


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
    # of several runs with one seed the newest counts, because folders are named by their time
    newest = {
        run.seed: run
        for run in sorted(runs, key=lambda run: run.folder.name)
        if run.score(run.compared) is not None
    }
    counted = tuple(newest[seed] for seed in sorted(newest))
    first = next((run for run in runs if run.has_result), runs[0])
    return TableRow(
        dataset=first.data_label,
        label=first.label,
        protocol=first.protocol,
        setting=setting,
        metric=first.compared,
        runs=tuple(runs),
        counted=counted,
        score=Spread.of(run.score(first.compared) for run in counted),
        samples=next((run.test.samples for run in (*counted, *runs) if run.test), None),
    )


def make_references(rows: Sequence[TableRow]) -> Iterator[Reference]:
    """Those of each data set and protocol, of what is compared there, in the order of the rows,
    the worst first.
    """
    blocks = grouped(rows, lambda row: (*row.family, row.metric))
    for (dataset, protocol, metric), members in blocks.items():
        everyone = [run for row in members for run in row.counted]
        guesses = [
            (value, key, run.reference_scores.samples, run)
            for run in everyone
            if run.reference_scores
            for key, value in run.reference_scores.scores.get(metric, {}).items()
        ]
        kept = grouped(guesses, lambda guess: guess[:3])
        times = Counter(key for _, key, _ in kept)
        for value, key, samples in sorted(kept, reverse=members[0].compared.mode == "min"):
            runs = [run for *_, run in kept[value, key, samples]]
            which = _which(runs, everyone) if times[key] > 1 else ""
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


def _which(members: Sequence[ReportedRun], everyone: Sequence[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many
    runs they are.
    """
    setting = [
        (key, members[0].settings.get(key, "none"))
        for key in varying(run.settings for run in everyone)
        if key.startswith("dataset.") and key not in varying(run.settings for run in members)
    ]
    if setting:
        return printable(short_setting(tuple(setting)))
    return f"{len(members)} of {len(everyone)} runs"


def make_examples(rows: Sequence[TableRow]) -> Iterator[Values]:
    """What the mixers wrote, by data set and sample."""
    for dataset, of_dataset in groupby(rows, key=lambda row: row.dataset):
        texts = [
            (number, row.name, example)
            for row in of_dataset
            for number, example in enumerate(row.first.examples, 1)
        ]
        for number, mixer, example in sorted(texts, key=lambda text: text[0]):
            yield {
                "kind": "example",
                "dataset": dataset,
                "mixer": mixer,
                "sample": number,
                "target": example.target,
                "answer": example.answer,
            }
