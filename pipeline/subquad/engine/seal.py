"""Opening a sealed test split: the only place that makes a key, and it writes the ledger first.

Ledgers: `test-openings.jsonl` in the run, and one of the same name beside all runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from subquad.data import Dataset, Split, TestKey

LEDGER = "test-openings.jsonl"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Who opens a test split.

    Attributes:
        dataset: its label.
        experiment: sha256 of the experiment.
        protocol: "honest", "fixed" or "paper".
        run: the run's folder.
        attempt: the run's attempt.
    """

    dataset: str
    experiment: str
    protocol: str
    run: str
    attempt: int


@dataclass(frozen=True)
class Seal:
    """The test split of a run's data set, closed until `open` is called.

    Attributes:
        dataset: the data set.
        opening: who opens it.
        ledgers: files that record each opening; none on ranks other than the first, which open with it.
    """

    dataset: Dataset
    opening: Opening
    ledgers: Sequence[Path]

    def open(self, reason: str) -> Split:
        """Record the opening with its reason, then open the split."""
        line = json.dumps({**vars(self.opening), "reason": reason, "time": time.time()}, sort_keys=True) + "\n"
        for ledger in self.ledgers:
            with ledger.open("a", encoding="utf-8") as stream:
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
        return self.dataset.split("test", TestKey(self.opening.dataset, reason))
