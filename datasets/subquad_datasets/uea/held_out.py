"""A part of TRAIN in TEST's place, where there is no TEST file; and what is refused of either."""

from __future__ import annotations

import numpy as np

from subquad.data import stratified_validation
from subquad.errors import DataError
from subquad_datasets.uea.source import Files
from subquad_datasets.uea.ts import Cases


def check_testable(files: Files, fraction: float | None) -> None:
    """Refuse files without a test split, since every protocol opens it, and a fraction that has no
    effect.

    Raises:
        DataError: what to do about it.
    """
    if files.test is None and fraction is None:
        raise no_test(files)
    if files.test is not None and fraction is not None:
        raise DataError(
            f"dataset.params.test_fraction: got {fraction:g}, but there is "
            f"{files.test}; leave it null"
        )


def no_test(files: Files) -> DataError:
    return DataError(
        f"{files.train.parent}: {files.stem}_TEST.ts is missing, and every "
        "protocol tests on it: add the file, or give "
        "dataset.params.test_fraction=0.3 to hold back a part of TRAIN (stand-in data)"
    )


def hold_out(cases: Cases, fraction: float, seed: int) -> tuple[Cases, Cases]:
    """What remains of TRAIN, and the part by class that takes TEST's place.

    Raises:
        DataError: a class has a single series.
    """
    digests = cases.digests()
    names = cases.header.class_names
    counts = np.bincount(cases.labels[np.unique(digests, return_index=True)[1]])
    if 1 in counts:
        single = names[int(np.flatnonzero(counts == 1)[0])]
        raise DataError(
            f"dataset.params.test_fraction: class {single} "
            "has 1 TRAIN series, too few to hold one back"
        )
    rest, held = stratified_validation(cases.labels, fraction, seed, digests)
    return cases.take(rest), cases.take(held)


def note(held: Cases, all_cases: Cases) -> str:
    """What stands beside every number."""
    return (
        f"stand-in data: TEST is a part of TRAIN ({len(held)} of {len(all_cases)} "
        "series), not the archive's TEST"
    )
