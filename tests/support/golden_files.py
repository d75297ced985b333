"""Golden arrays: those of tests/golden/data, and of the folders that SUBQUAD_GOLDEN lists besides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

OWN = Path(__file__).resolve().parents[1] / "golden" / "data"


READ: set[Path] = set()
"""Files that tests have read."""


def further_folders() -> list[Path]:
    """Those that SUBQUAD_GOLDEN lists."""
    return [Path(one) for one in os.environ.get("SUBQUAD_GOLDEN", "").split(os.pathsep) if one]


def golden_files(pattern: str) -> dict[str, Path]:
    """Files by name without ending, such as `cur_*`; where a name is there twice, the first folder's."""
    folders = [OWN, *further_folders()]
    found = {path.stem: path for folder in reversed(folders) for path in folder.glob(f"{pattern}.npz")}
    return dict(sorted(found.items()))


def unread() -> list[Path]:
    """Files of SUBQUAD_GOLDEN's folders that no test has read: of a kind or with arrays that none knows, or hidden by a
    file of the same name.
    """
    found = [path for folder in further_folders() for path in sorted(folder.rglob("*.*"))]
    return [path for path in found if path not in READ and path.suffix not in (".md", ".txt")]


def load_golden(name: str) -> dict[str, Any]:
    """Numeric arrays of a golden file as tensors; the few strings in it, and lists of them, as they are."""
    path = golden_files(name)[name]
    READ.add(path)
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    return {
        key: torch.from_numpy(value) if value.dtype.kind != "U" else value.tolist() for key, value in arrays.items()
    }
