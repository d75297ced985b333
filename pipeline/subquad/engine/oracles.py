"""What guesses without a model score on the test split. A faulty one becomes a note: the run keeps its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from subquad.data import Dataset, Split

_LONGEST = 200


@dataclass(frozen=True)
class Oracles:
    """Accuracies of guesses.

    Attributes:
        samples: test samples they were scored on.
        accuracy: in [0, 1], by the guess's name.
        notes: what went wrong.
    """

    samples: int
    accuracy: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any] | None:
        """None where there are none."""
        return {"samples": self.samples, "accuracy": dict(self.accuracy)} if self.accuracy else None


def ask(dataset: Dataset, split: Split) -> Oracles:
    """Score a data set's guesses on an open split; whatever is wrong with them becomes a note."""
    try:
        found = dict(dataset.oracles(split))
        wrong = [name for name, value in found.items() if not _is_accuracy(name, value)]
        notes = tuple(_one_line(f"oracle {name!r} left out: {found.pop(name)!r} is no accuracy") for name in wrong)
        return Oracles(len(split), {name: float(value) for name, value in found.items()}, notes)
    except Exception as error:  # a plugin's: the run has its result, which a row beside it must not cost
        return Oracles(len(split), notes=(_one_line(f"no oracles: {type(error).__name__}: {error}"),))


def _is_accuracy(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not name.strip():
        return False
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and bool(0 <= value <= 1)


def _one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 1]}…"
