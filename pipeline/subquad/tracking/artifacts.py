"""The files of a run or study that go to MLflow, and the plots drawn from them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from subquad.runs import ENVIRONMENT, EXPERIMENT, METRICS, RESULT, STUDY
from subquad.tracking.outcome import below
from subquad.tracking.secrets import mask

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

_TEXTS = (EXPERIMENT, STUDY, ENVIRONMENT, RESULT)


def send_run_artifacts(store: Store, run_id: str, run: Path) -> None:
    """The run's settings, environment, result, metrics and curves."""
    from subquad.tracking.plots import draw_run

    send_files(store, run_id, run)
    with tempfile.TemporaryDirectory() as out:
        _send_plots(store, run_id, draw_run(run, Path(out)))


def send_files(store: Store, run_id: str, run: Path) -> None:
    """What the run wrote: settings, environment, result, metrics."""
    send_masked(store, run_id, run, _TEXTS)
    if (run / METRICS).exists():
        store.send_file(run_id, run / METRICS)


def send_study_artifacts(store: Store, run_id: str, study: Path) -> None:
    """The study's settings and one plot of all its cells."""
    from subquad.tracking.plots import draw_study

    send_masked(store, run_id, study, _TEXTS)
    with tempfile.TemporaryDirectory() as out:
        _send_plots(store, run_id, draw_study(below(study), study.name, Path(out)))


def send_masked(store: Store, run_id: str, folder: Path, names: Sequence[str]) -> None:
    """Those of these files that are there: as text and not as file, so that no address in them carries a password."""
    for name in names:
        if (folder / name).exists():
            store.send_text(run_id, mask((folder / name).read_text(encoding="utf-8")), name)


def _send_plots(store: Store, run_id: str, plots: Sequence[Path]) -> None:
    for plot in plots:
        store.send_file(run_id, plot, "plots")
