"""Official files in small, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "Source\tTarget\r\n"
TRAIN = [
    "( ( ( [MIN 3 ) 4 ) ] )\t3",
    "( ( ( [MIN 3 ) 7 ) ] )\t3",
    "( ( ( ( [MED 1 ) 5 ) 9 ) ] )\t5",
    "7\t7",
]
VALIDATION = ["( ( ( [MIN 3 ) 9 ) ] )\t3", "( ( ( [SM 4 ) ( ( ( [MAX 0 ) 8 ) ] ) ) ] )\t2"]
TEST = ["( ( ( [MAX 6 ) 2 ) ] )\t6"]


@pytest.fixture
def official(tmp_path: Path) -> Callable[..., Path]:
    """`official(train=rows, ...)`: the release's folder; rows are lines without their end, or
    whole files as bytes.
    """

    def _official(
        train=TRAIN, validation=VALIDATION, test=TEST, place: str = "listops-1000"
    ) -> Path:
        folder = tmp_path / "release" / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", train), ("val", validation), ("test", test)):
            if rows is not None:
                whole = (
                    rows
                    if isinstance(rows, bytes)
                    else "".join([HEADER, *(f"{r}\r\n" for r in rows)]).encode()
                )
                (folder / f"basic_{name}.tsv").write_bytes(whole)
        return tmp_path / "release"

    return _official
