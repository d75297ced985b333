"""Where a run stands: everything but tensors that a checkpoint must hold, and what "better" means."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Position and counters of a run; plain JSON values, equal on every rank.

    Attributes:
        step: batches consumed; with the plan this is the position in the data.
        updates: optimiser updates made; skipped steps do not count, so the schedule does not advance on them.
        skipped: non-finite steps skipped so far.
        skipped_in_a_row: of these, the ones since the last update.
        seconds: training time over all attempts.
        best: step, epoch, split and metrics of the best evaluation; empty before the first.
        last: the same of the newest evaluation.
        stale: evaluations since the best one.
        records: lines of metrics.jsonl that belong to this state.
        done: training is over; only the final evaluation is left.
        pruned: why a search ended its trial before the last step; "" where none did.
        loss_scale, scaler_good_steps: the fp16 scaler.
    """

    step: int = 0
    updates: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    seconds: float = 0.0
    best: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    stale: int = 0
    records: int = 0
    done: bool = False
    pruned: str = ""
    loss_scale: float = 1.0
    scaler_good_steps: int = 0

    def evaluated(self, found: dict[str, Any], metric: str, mode: str) -> bool:
        """Take note of an evaluation; True where it is the best so far. NaN never is, and of equals the lower loss is.

        Small validation splits give many equals: the first one would be a checkpoint that is hardly trained.
        """
        self.last = found
        if _better(found["metrics"], self.best.get("metrics"), metric, mode):
            self.best, self.stale = found, 0
            return True
        self.stale += 1
        return False


def _better(new: dict[str, float], best: dict[str, float] | None, metric: str, mode: str) -> bool:
    if not math.isfinite(new[metric]):
        return False
    if best is None:
        return True
    if new[metric] == best[metric] and "loss" in new and "loss" in best:
        return new["loss"] < best["loss"]
    return new[metric] > best[metric] if mode == "max" else new[metric] < best[metric]
