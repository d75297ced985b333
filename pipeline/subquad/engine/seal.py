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


@dataclass(frozen=True)
class Opening:
    """One line of the ledger.

    Attributes:
        dataset: its label.
        experiment: sha256 of the experiment that opens it.
        protocol: "honest", "fixed" or "paper".
        reason: why it is opened.
        run: the run's folder.
        attempt: the run's attempt.
    """

    dataset: str
    experiment: str
    protocol: str
    reason: str
    run: str
    attempt: int


def open_test(dataset: Dataset, opening: Opening, ledgers: Sequence[Path]) -> Split:
    """Record an opening and open the test split.

    Args:
        dataset: the data set.
        opening: what to record.
        ledgers: files to append to; none on ranks other than the first, which record nothing of their own.
    """
    line = json.dumps({**vars(opening), "time": time.time()}, sort_keys=True) + "\n"
    for ledger in ledgers:
        with ledger.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
    return dataset.split("test", TestKey(opening.dataset, opening.reason))
