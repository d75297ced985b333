"""What `subquad.train`, `tune`, `report` and `load` return: lists, dictionaries and models that
show themselves in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import RunError
from subquad.record.layout import enter
from subquad.record.names import FINAL, SEARCH

if TYPE_CHECKING:
    import pandas as pd

    from subquad.nn import Backbone
    from subquad.reports import ReportDocument
    from subquad.reports.view import Charts, ReportView


def document_of_folders(folders: Sequence[Path], baseline: str | None = None) -> ReportDocument:
    """The report of runs and studies, or of one search.

    Args:
        folders: of runs or studies, or that of a search.
        baseline: label of the mixer that others are compared with; None: the one the study names.

    Raises:
        RunError: a search stands beside others, or a folder is neither.
    """
    from subquad.reports import document_of, read_report, search_document

    searches = [folder for folder in folders if (folder / SEARCH).exists()]
    if not searches:
        return document_of(read_report(folders, baseline=baseline))
    if len(folders) > 1:
        where = f"beside other runs give its final study, {searches[0] / FINAL}"
        raise RunError(f"{searches[0]}: is a search, which is reported alone; {where}")
    from subquad.search.summary import read_summary

    return search_document(searches[0], read_summary(searches[0]), baseline=baseline)


def view_of(runs: Sequence[str], baseline: str | None) -> ReportView:
    """The report of folders or addresses in storage.

    Raises:
        RunError: a folder is none of a run, a study or a search, or a result cannot be read.
    """
    from subquad.reports.view import ReportView

    if not runs:
        raise RunError("report: give the folder of a run, a study or a search")
    return ReportView(document_of_folders([_found(run) for run in runs], baseline))


def _found(run: str) -> Path:
    if "://" not in run:
        return enter(Path(run))  # without importing what fetches them
    from subquad.experiment.folder import local_folder

    return local_folder(run)


class _Shown:
    """Has runs, which `report` reads."""

    def _folders(self) -> list[Path]:
        raise NotImplementedError

    def report(self) -> ReportView:
        """What `subquad report` says of it."""
        from subquad.reports.view import ReportView

        return ReportView(document_of_folders(self._folders()))

    def table(self) -> pd.DataFrame:
        """The rows of the report as a frame of pandas, with numbers as numbers."""
        return self.report().table()

    def curves(self) -> Charts:
        """The pictures of the report: scores, and metrics and losses while training."""
        return self.report().curves()

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


class Results(_Shown, list[dict[str, Any]]):
    """The result of each run, with its `folder`: a list, which a notebook shows as a table.

    Args:
        results: of the runs.
        place: the folder of their study, or of the only run.
    """

    def __init__(self, results: Iterable[dict[str, Any]], place: Path):
        super().__init__(results)
        self.place = place

    def _folders(self) -> list[Path]:
        return [self.place]


class SearchResult(_Shown, dict[str, Any]):
    """What search.json holds, and the search's `folder`: a dictionary, which a notebook shows as
    tables.
    """

    def _folders(self) -> list[Path]:
        return [Path(self["folder"])]


def refuse_no_batch(model: Backbone, given: tuple[Any, ...]) -> None:
    """Say what a trained model takes, where it is called with something else.

    Raises:
        TypeError: it got no batch.
    """
    if given and not isinstance(given[0], dict):
        raise TypeError(
            "a model takes a batch: a dict with the data set's arrays, such as "
            "inputs, (B, L) or (B, L, C), and keep, "
            f"(B, L) bool; got a {type(given[0]).__name__}"
        )
