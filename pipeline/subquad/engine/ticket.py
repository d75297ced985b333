"""What a driver hands to the ranks: one run to be done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subquad.experiment import Checked
from subquad.plugin import DatasetPlugin


@dataclass(frozen=True)
class Ticket:
    """A run to be done.

    Attributes:
        folder: the run's folder, on storage every rank sees.
        label: its label in a study, or the experiment's name.
        axes: its coordinates in a study.
        checked: the experiment.
        digest: sha256 of what determines its numbers.
        session: the driver's lifetime.
        data_root: folder for prepared data.
        runs_root: folder that holds all runs; the common ledger of test openings is there.
        trial: a trial of a search: it ends with its last evaluation, and the test split stays closed.
    """

    folder: Path
    label: str
    axes: dict[str, Any]
    checked: Checked
    digest: str
    session: str
    data_root: Path
    runs_root: Path
    trial: bool = False


def dataset_label(checked: Checked) -> str:
    """What tables call the data set: what its plugin says, else the plugin's name."""
    plugin = checked.dataset.plugin
    assert isinstance(plugin, DatasetPlugin)
    return plugin.label(checked.dataset_config) or checked.dataset.found.name
