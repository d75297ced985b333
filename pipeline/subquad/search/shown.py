"""What others see of a search: its runs in MLflow, and pictures. The driver starts both and depends on neither."""

from __future__ import annotations

from pathlib import Path

from subquad.search.folder import Trials
from subquad.search.plots import PLOTS, Drawn, Pictured, draw
from subquad.search.search import Search
from subquad.tracking.publisher import NullPublisher, Publisher, open_publisher


def publisher_of(search: Search, folder: Path) -> Publisher | NullPublisher:
    """What sends a search to MLflow: `start()` before its first trial, `close()` after its last file.

    Where the experiments' `tracking.enabled` is false it does nothing.

    Args:
        folder: of the search, written down already.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed.
    """
    return open_publisher(search.candidates[0].run.experiment.tracking, folder, name=search.study.name)


def draw_search(search: Search, trials: Trials, folder: Path) -> Drawn:
    """Draw a search's pictures into its folder; never raises."""
    candidates = [
        Pictured(one.label, search.spaces[one.label], one.goal(search.settings.cost), trials.of(one.label))
        for one in search.candidates
    ]
    return draw(candidates, folder / PLOTS)
