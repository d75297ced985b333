"""Sensitivity: what changing one setting around its base does to the score. Method: docs/how-to/sensitivity.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subquad.report import settings
from subquad.report.beside import Beside, printed_values, varied_beside
from subquad.report.compare import Comparison, compare_values
from subquad.report.ledger import PublishedRow
from subquad.report.rows import Row
from subquad.report.text import Spread


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value of a varied setting.

    Attributes:
        text: the value.
        row: its runs.
        base: whether it is the base's own value.
        validation: mean over the same seeds of the metric of the chosen checkpoint, None without a validation split.
        published: what is printed for the same value.
    """

    text: str
    row: Row
    base: bool
    validation: Spread | None
    published: tuple[Beside, ...]


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """One setting, varied around one base.

    Attributes:
        key: the setting.
        base: the row of the base.
        values: in order, the base's among them.
        printed: all published values of the setting on this data set, with their rows.
        comparisons: pairs of the values; corrected over these.
    """

    key: str
    base: Row
    values: tuple[Value, ...]
    printed: tuple[tuple[float, PublishedRow], ...]
    comparisons: tuple[Comparison, ...]

    @property
    def name(self) -> str:
        """The last word of the setting."""
        return self.key.rpartition(".")[2]

    @property
    def title(self) -> str:
        """`listops, agf (honest): order`, with what else tells the base from others."""
        where = f" at {settings.short(self.base.setting)}" if self.base.setting else ""
        return f"{self.base.dataset}, {self.base.label} ({self.base.protocol}): {self.name}{where}"


def make_sensitivities(rows: Sequence[Row]) -> list[Sensitivity]:
    """For every base and every setting that is varied around it, in the order of the table."""
    found = []
    for base in (row for row in rows if row.is_base):
        changed = [row for row in rows if _alike(row, base) and any(row.roles)]
        for key in dict.fromkeys(key for row in changed for role in row.roles for key, _ in role):
            own = [row for row in changed if row is not base and _changes_only(row, key, base)]
            if own:
                found.append(_sensitivity(key, base, own))
    return found


def clusters(sensitivities: Iterable[Sensitivity]) -> list[list[Row]]:
    """Each base with the rows around it."""
    found: dict[int, list[Row]] = {}
    for one in sensitivities:
        rows = found.setdefault(id(one.base), [])
        rows += [value.row for value in one.values if all(value.row is not row for row in rows)]
    return list(found.values())


def _alike(row: Row, base: Row) -> bool:
    return (row.dataset, row.protocol, row.label) == (base.dataset, base.protocol, base.label)


def _changes_only(row: Row, key: str, base: Row) -> bool:
    if not any(key == name for role in row.roles for name, _ in role):
        return False
    apart = settings.with_alternatives([key])
    return set(settings.varying([row.cells[0].settings, base.cells[0].settings])) <= apart


def _sensitivity(key: str, base: Row, changed: Sequence[Row]) -> Sensitivity:
    values = sorted([_value(row, key, base) for row in (base, *changed)], key=lambda value: order(value.text))
    return Sensitivity(
        key=key,
        base=base,
        values=tuple(values),
        printed=tuple(printed_values(base, key)),
        comparisons=tuple(compare_values([value.row for value in values], key)),
    )


def order(text: str) -> tuple[float, str]:
    """Numbers in their order, words after them."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def _value(row: Row, key: str, base: Row) -> Value:
    return Value(
        text=row.cells[0].settings.get(key, "none"),
        row=row,
        base=row is base,
        validation=_validation(row),
        published=tuple(varied_beside(row, key)),
    )


def _validation(row: Row) -> Spread | None:
    bests = [cell.result.best for cell in row.counted if cell.result and cell.result.best]
    values = [best.metrics.get(row.metric) for best in bests if best.split == "validation"]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return Spread.of(known) if len(known) == len(row.counted) else None
