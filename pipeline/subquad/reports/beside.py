"""Published rows beside our own: comparable, or not and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subquad.reports.published import (
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


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published row, and every condition in which a run's row differs: none where they are
    comparable.
    """

    published: PublishedRow
    reasons: tuple[str, ...]

    @property
    def in_short(self) -> str:
        """`98.0 (not comparable)`."""
        verdict = "not comparable" if self.reasons else "comparable"
        return f"{self.published.printed} ({verdict})"

    @property
    def verdict(self) -> str:
        """Comparable, or not and why."""
        if not self.reasons:
            return "comparable"
        words = "; ".join(self.reasons)
        return f"not comparable: {words}"


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
                rule = table.conditions_of(published)
                found.append(_beside(row, published, rule, _variants(row, published, rule)))
        return found
    name = key.removeprefix("mixer.params.")
    own = row.first.leaves.get(key)
    for value, published, table, varied in printed_values(row, key):
        if value != own:
            continue
        rule = table.conditions_of(published.model_copy(update=varied.main))
        chosen = _variants(row, published, rule)
        variants = [{**variant, name: value} for variant in chosen[: varied.variants]]
        found.append(_beside(row, published, rule, variants))
    return found


def _variants(row: TableRow, published: PublishedRow, rule: Conditions | None) -> list[Values]:
    """The mixer's settings that count as the published ones; any of them."""
    if rule is None:
        return []
    return rule.mixer.get(row.mixer, {}).get(published.benchmark, [])


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
    row: TableRow, published: PublishedRow, rule: Conditions | None, variants: Sequence[Values]
) -> Beside:
    reasons = []
    if rule is None:
        reasons.append("conditions unknown")
    else:
        if rule.never:
            reasons.append(rule.never)
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
        selection = _SELECTION.get(row.protocol, row.protocol)
        yield f"{selection}, published: {words}"
    leaves = row.first.leaves
    yield from _unlike(leaves, expect)
    by_variant = []
    for variant in variants:
        params = {f"mixer.params.{key}": (key, value) for key, value in variant.items()}
        by_variant.append(list(_unlike(leaves, params)))
    yield from min(by_variant, key=len, default=[])
    samples = row.samples
    printed = rule.samples[benchmark]
    are_known = samples is not None and printed is not None
    if are_known and samples != printed:
        yield f"{samples} test samples, published {printed}"
    seeds = len(row.seeds)
    expected = rule.seeds or 0
    if 0 < seeds < expected:
        yield f"{seeds} of the {expected} seeds that the published mean has"


def _unlike(leaves: Values, expect: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    for key, (word, value) in expect.items():
        published = value_text(value)
        if key not in leaves:
            yield f"{word} not stated, published {published}"
            continue
        found = leaves[key]
        if not _same(found, value):
            yield f"{word} {value_text(found)}, published {published}"


def _same(found: Any, value: Any) -> bool:
    """Whether a setting has a published value, or one of a list of them.

    Where the setting is a list too, as `mixers` is, it is held entry by entry, and of a mapping the
    keys that are given.
    """
    if isinstance(value, list):
        if not isinstance(found, list):
            return any(_same(found, choice) for choice in value)
        if len(found) != len(value):
            return False
        return all(map(_same, found, value))
    if isinstance(found, Mapping) and isinstance(value, Mapping):
        return all(_same(found.get(key), value[key]) for key in value)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, int | float) and isinstance(value, int | float):
        return found == value
    return str(found) == str(value)


def value_text(value: Any) -> str:
    """A value of a setting in words; of a list, as of published ones, any of them."""
    if isinstance(value, list):
        entries = [_entry(entry) for entry in value if isinstance(entry, Mapping)]
        if entries:
            return " and ".join(entries)
        choices = " or ".join(map(value_text, value))
        return choices or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _entry(entry: Mapping[str, Any]) -> str:
    """`decoder subquad:softmax`, an entry of `mixers`."""
    words = []
    for key in ("role", "name", "layers"):
        part = entry.get(key)
        if part:
            words.append(value_text(part))
    return " ".join(words)
