"""Exact copies of training samples in what a model is judged by."""

from __future__ import annotations

import numpy as np

from subquad.data import Dataset, Split
from subquad.errors import DataError


def check_copies(dataset: Dataset, test: Split | None, *, validation: bool) -> tuple[str, ...]:
    """Count exact copies of training samples, in any order, in the validation part and in TEST.

    Args:
        test: TEST, where it is open.
        validation: look at the validation part too.

    Returns:
        notes; none where there are no copies.

    Raises:
        DataError: most samples of a part are such copies.
    """
    notes: list[str] = []
    if validation:
        training = dataset.split("train")
        notes += _note_on_copies("validation", dataset.split("validation"), training)
    if test is not None:
        notes += _note_on_copies("TEST", test, dataset.split("trainval"))
    return tuple(notes)


def _note_on_copies(name: str, part: Split, training: Split) -> list[str]:
    known = training.digests()
    copies = int(np.isin(part.digests(), known).sum())
    if copies == 0:
        return []
    note = f"{copies:,} of {len(part):,} {name} samples are exact copies of training samples"
    if 2 * copies > len(part):
        raise DataError(f"dataset: {note}; use other files, or generate longer sequences")
    return [note]
