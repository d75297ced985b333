"""Published rows beside our own: comparable, or not and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subquad.reports.published import (
    Beside,
    Conditions,
    PublishedRow,
    PublishedTable,
    Varied,
    published_tables,
)
from subquad.reports.rows import TableRow
from subquad.reports.text import Values

_SELECTION = {
    "honest": "checkpoint chosen on validation",
    "fixed": "last epoch of a fixed length",
    "paper": "best test accuracy over epochs",
}


def published_beside(row: TableRow, key: str = "") -> list[Beside]:
    """Published rows of the row's mixer on its data set, each with its verdict.

    Args:
        row: of a report.
        key: a setting: from the tables that change it alone, the rows for its value in `row`. Their
            conditions are those of the main table, with this value in place of the chosen one.
    """
    found = []
    if not key:
        for table in published_tables():
            for published in table.find(row.mixer, row.benchmark, row.metric, row.label):
                found.append(_beside(row, published, table.conditions_of(published)))
    for value, published, table, varied in printed_values(row, key):
        if value == row.first.leaves.get(key):
            rule = table.conditions_of(published.model_copy(update=varied.main))
            own = {key.removeprefix("mixer.params."): value}
            found.append(_beside(row, published, rule, varied.variants, own))
    return found


def printed_values(
    row: TableRow, key: str
) -> Iterator[tuple[float, PublishedRow, PublishedTable, Varied]]:
    """Every published value of one setting of the row's mixer on its data set, with its row and
    where it stands.
    """
    for table in published_tables():
        for value, printed, rule in table.find_varied(row.mixer, key, row.benchmark, row.metric):
            yield value, printed, table, rule


def _beside(
    row: TableRow,
    published: PublishedRow,
    rule: Conditions | None,
    count: int | None = None,
    own: Values | None = None,
) -> Beside:
    """The verdict on one row, by the conditions of its table.

    Args:
        count: of the mixer's settings that count as the published ones so many do; None: all.
        own: what these have in place of their own.
    """
    reasons = ["conditions unknown"]
    if rule:
        # any of them counts
        known = rule.mixer.get(row.mixer, {}).get(published.benchmark, [])[:count]
        variants = [{**variant, **(own or {})} for variant in known]
        reasons = [rule.never] if rule.never else []
        reasons += _differences(row, published.benchmark, rule, variants)
    if not row.counted:
        reasons.append("no finished run")
    if row.is_stand_in:
        reasons.append("stand-in data, published: the real data")
    if not published.target:
        reasons += published.cautions[:1]
    return Beside(published=published, reasons=tuple(reasons))


def _differences(
    row: TableRow, benchmark: str, rule: Conditions, variants: Sequence[Values]
) -> Iterator[str]:
    own = rule.exceptions.get(benchmark, {})
    expect = {**own, **rule.expect, **own}  # the benchmark's own come first
    protocol, words = rule.protocols.get(benchmark, rule.protocol)
    if row.protocol != protocol:
        for key, (_, value) in expect.items():
            words = words.replace(f"{{{key}}}", str(value))
        yield f"{_SELECTION.get(row.protocol, row.protocol)}, published: {words}"
    leaves = row.first.leaves
    yield from _unlike(leaves, expect)
    by_variant = [
        list(_unlike(leaves, {f"mixer.params.{key}": (key, variant[key]) for key in variant}))
        for variant in variants
    ]
    yield from min(by_variant, key=len, default=[])
    printed = rule.samples[benchmark]
    if None not in (row.samples, printed) and row.samples != printed:
        yield f"{row.samples} test samples, published {printed}"
    if 0 < len(row.seeds) < (rule.seeds or 0):
        yield f"{len(row.seeds)} of the {rule.seeds} seeds that the published mean has"


def _unlike(leaves: Values, expect: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    for key, (word, value) in expect.items():
        found = _value_text(leaves[key]) if key in leaves else "not stated"
        if key not in leaves or not _same(leaves[key], value):
            yield f"{word} {found}, published {_value_text(value)}"


def _same(found: Any, value: Any) -> bool:
    """Whether a setting has a published value, or one of a list of them.

    Where the setting is a list too, as `mixers` is, it is held entry by entry, and of a mapping the
    keys that are given.
    """
    if isinstance(value, list):
        if isinstance(found, list):
            return len(found) == len(value) and all(map(_same, found, value))
        return any(_same(found, choice) for choice in value)
    if isinstance(found, Mapping) and isinstance(value, Mapping):
        return all(_same(found.get(key), value[key]) for key in value)
    is_equal = isinstance(found, bool) == isinstance(value, bool) and found == value
    return is_equal or str(found) == str(value)


def _value_text(value: Any) -> str:
    """A value of a setting in words; of a list, as of published ones, any of them. Of `mixers`
    `decoder subquad:softmax`.
    """
    if isinstance(value, Mapping):
        return " ".join(map(_value_text, filter(None, map(value.get, ("role", "name", "layers")))))
    if isinstance(value, list):
        word = " and " if any(isinstance(entry, Mapping) for entry in value) else " or "
        return word.join(map(_value_text, value)) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
