"""The TEST split with what a reader of a number on it needs; it is known only when the file has
been opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from subquad_datasets.packed import PackedSplit


class NotedSplit(PackedSplit):
    """A packed split with notes, which are kept with the result.

    Args:
        notes: lines for the reader.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        max_len: int,
        *,
        shift: int = 0,
        rows: np.ndarray | None = None,
        notes: Iterable[str] = (),
    ):
        super().__init__(folder, name, max_len, shift=shift, rows=rows)
        self.notes = tuple(notes)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.notes = tuple(state["notes"])

    def __reduce__(self) -> Any:
        return *super().__reduce__(), {"notes": self.notes}
