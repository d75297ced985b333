"""Texts that live in Python, written as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subquad.errors import DataError
from subquad_datasets.from_python import arrays_of, frame_table, is_frame, parts_of, write_parts


def write_texts(data: Any, root: Path) -> tuple[str, dict[str, str]]:
    """See `subquad.plugin.DatasetPlugin.from_python`.

    A frame keeps its columns; of `(texts, labels)` they are `text` and `label`.

    Raises:
        DataError: it is nothing that can be written, or has no parts train and test.
    """
    parts = parts_of(data)
    files = {part: _json_lines(_rows(values, name)) for part, (name, values) in parts.items()}
    if "test" not in parts:
        raise DataError(
            "data: texts need parts: give a dict with train and test, optionally validation"
        )
    return write_parts(files, ".jsonl", {part: name for part, (name, _) in parts.items()}, root)


def _rows(values: Any, name: str) -> list[dict[str, Any]]:
    if is_frame(values):
        return frame_table(values, name).to_pylist()
    arrays = arrays_of(values, name)
    if arrays["x"].dtype.kind not in "US":
        raise DataError(
            f"{name}: x has {arrays['x'].dtype} values, must be texts; for series add dataset=table"
        )
    texts = arrays["x"].tolist()
    labels = arrays["y"].tolist()
    if len(texts) != len(labels):
        raise DataError(f"{name}: y has {len(labels)} labels, x has {len(texts)} texts")
    return [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row, default=str)}\n" for row in rows).encode()
