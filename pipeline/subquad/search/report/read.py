"""From a search's folder to its report: the summary made anew of its trials, the final study, the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subquad.report import BASELINE, Report, build
from subquad.report.text import clean
from subquad.runs import FINAL, SUMMARY, is_study, read_json, runs_below
from subquad.search.budget import parse_budget
from subquad.search.pictures import PLOTS
from subquad.search.search import read_search, trials_of
from subquad.search.summary import summary_of
from subquad.search.words import unfinished


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """A report of a search.

    Attributes:
        name: its folder below `runs/`.
        summary: as in search.json.
        final: the report of the final study; None where that has not begun.
        pictures: those that were drawn.
    """

    name: str
    summary: Mapping[str, Any]
    final: Report | None
    pictures: tuple[Path, ...]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not unfinished(self.summary) and not _final_state(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """What was searched and how, and what is left to do."""
        return (_asked(self.summary), *_state(self))


def read_search_report(folder: Path, *, baseline: str = BASELINE) -> SearchReport:
    """Read a search, at whatever point it stands.

    Args:
        baseline: the control mixer of the final study.

    Raises:
        RunError: the folder holds no search, or one of another version.
        ConfigError: it does not load.
    """
    folder = folder.resolve()
    search = read_search(folder)
    written = read_json(folder / SUMMARY) or {}
    over = {one["label"]: one["over"] for one in written.get("subjects", [])}  # only its driver knows
    place = folder / FINAL
    pictures = sorted((folder / PLOTS).glob("*.png"), key=lambda path: (not path.stem.startswith("best-so-far"), path))
    return SearchReport(
        name=f"{folder.parent.name}/{folder.name}",
        summary=summary_of(search, folder, trials_of(search, folder), over),
        final=build([place], baseline=baseline) if is_study(place) and runs_below(place) else None,
        pictures=tuple(pictures),
    )


def _asked(summary: Mapping[str, Any]) -> str:
    settings, subjects = summary["settings"], summary["subjects"]
    whom = f"each of {len(subjects)} subjects" if len(subjects) > 1 else subjects[0]["label"]
    parts = [f"searcher {settings['searcher']}, scheduler {settings['scheduler']}"]
    parts += [f"--{name} {settings[name]}" for name in ("match", "cost") if settings[name] != "none"]
    parts += [f"{parse_budget(settings['budget'])} for {whom}", f"seed {settings['seed']}"]
    return clean(f"space {settings['space']}, {', '.join(parts)}; selected on the validation split")


def _state(report: SearchReport) -> list[str]:
    """What is left to do; a folder cannot tell whether somebody is at it."""
    if open_ones := unfinished(report.summary):
        return [clean(f"unfinished, still running or interrupted: trials of {', '.join(open_ones)}")]
    return _final_state(report)


def _final_state(report: SearchReport) -> list[str]:
    if not any(one["best"] for one in report.summary["subjects"]):
        return []  # it never comes
    if report.final is None:
        return ["unfinished: all trials ended, the final study has not begun"]
    done, cells = sum(cell.status == "finished" for cell in report.final.cells), len(report.final.cells)
    return [] if done == cells else [f"unfinished: {done} of {cells} runs of the final study finished"]
