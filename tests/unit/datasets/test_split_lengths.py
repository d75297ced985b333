"""What splits say of their samples' lengths is what their batches hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from subquad.data import Split
from subquad_datasets.text.split import CutSplit


def test_a_split_that_does_not_know_its_lengths_says_so(tmp_path: Path):
    class Plain(Split):
        def __len__(self) -> int:
            return 1

        def fetch(self, indices, *, epoch, seed):
            return {"inputs": np.zeros((1, 2), dtype=np.int64)}

    assert Plain().lengths() is None
    assert CutSplit(Plain(), 1).lengths() is None
