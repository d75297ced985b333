"""What was read of a large .ts file is kept and mapped from then on: reading text takes a
thousand times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from subquad_datasets.prepared import prepare_once, read_manifest
from subquad_datasets.text.source import fingerprint
from subquad_datasets.uea.header import Header
from subquad_datasets.uea.rows import Missing
from subquad_datasets.uea.ts import Cases

WORTH_KEEPING = 8 << 20
"""Bytes of a file."""

_ARRAYS = ("values", "lengths", "labels", "filled", "ended")
_VERSION = 2


def kept_cases(home: Path, path: Path, missing: Missing, read: Callable[[], Cases]) -> Cases:
    """The series of a file, as they were read before, else as `read` gives them now.

    Args:
        home: the folder for what is kept.
        path: the file; one of another size or time is another one.
        missing: what `read` does with missing values.

    Raises:
        DataError: as `read`; or nothing can be kept in `home`.
    """

    def build(part: Path) -> Mapping[str, Any]:
        cases = read()
        for name in _ARRAYS:
            np.save(part / f"{name}.npy", getattr(cases, name))
        return {"file": path.name, "header": asdict(cases.header)}

    key = {"version": _VERSION, "files": fingerprint([path]), "missing": missing}
    folder = prepare_once(home, key, build)
    facts = read_manifest(folder).facts["header"]
    arrays = {
        name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in _ARRAYS
    }
    return Cases(**arrays, header=Header(**{**facts, "class_names": tuple(facts["class_names"])}))
