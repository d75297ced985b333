"""What a search that was stopped may go on with: the same experiment, settings and sources; more of its budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subquad.drivers.folder import exclusive
from subquad.errors import RunError
from subquad.experiment import differences, load_study
from subquad.experiment.refusals import shown
from subquad.experiment.settings import one_line
from subquad.runs import FINAL, TRIALS, write_json
from subquad.search.folder import BUDGETS, PUT_BACK, free_name, retry
from subquad.search.search import Search, later_budgets
from subquad.search.settings import Settings, parse_budget

_LEAVE_OUT = "leave it out to resume, or start a new search"


def same_settings(stored: Settings, given: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than a search was started with.

    Args:
        given: options that were typed beside `--resume`, by name.

    Raises:
        RunError: the first difference.
    """
    for name, value in given.items():
        if value == (before := getattr(stored, name)):
            continue
        option = name.replace("_", " ") if name.endswith("_settings") else f"--{name.replace('_', '-')}"
        was, now = (json.dumps(one) if isinstance(one, Mapping) else shown(one) for one in (before, value))
        raise RunError(one_line(f"{option}: the search was started with {was}, got {now}; {_LEAVE_OUT}"))


def same_target(search: Search, target: str, overrides: Sequence[str]) -> None:
    """Refuse to go on with another experiment than a search was started with.

    Raises:
        RunError: the first setting that differs.
    """
    now, before = load_study(target, overrides), search.study
    if now.text == before.text:
        return
    pairs = zip(before.runs, now.runs, strict=False)
    changed = [key for old, new in pairs for key in differences(old.experiment, new.experiment)]
    what = changed[0] if changed else "its name, its runs, or where it runs"
    raise RunError(one_line(f"{target}: differs from what the search was started with: {what}; {_LEAVE_OUT}"))


def same_sources(search: Search, folder: Path) -> None:
    """Refuse to go on where the file of a mixer is not what the trials were trained with.

    Raises:
        RunError: the first trial that has another one.
    """
    for one in search.candidates:
        sources = list(one.run.sources.values())
        for kept in sorted((folder / TRIALS / one.label).glob("**/source/[0-9a-f]*")) if sources else ():
            if not any(kept.name.startswith(source.sha256[:12]) for source in sources):
                raise RunError(one_line(f"{sources[0].path}: not what trials were trained with, {kept}; {PUT_BACK}"))


def reopened(folder: Path, search: Search, *, budget: str | None = None, retry_failed: bool = False) -> Search:
    """The search before it goes on: with a larger budget, which its folder remembers, and failed trials waiting again.

    A final study that has begun is then set aside as `final-1`, `final-2`, ...: its winners may change. The test split
    was opened in it, which the ledger and the summary keep.

    Raises:
        ConfigError: the budget is none.
        RunError: it is of another kind, or smaller; another process has the search.
    """
    if budget is None and not retry_failed:
        return search
    with exclusive(folder):
        if retry_failed:
            _retry_failed(folder, search)
        return search if budget is None else _extended(folder, search, budget)


def _extended(folder: Path, search: Search, budget: str) -> Search:
    asked, there = parse_budget(budget), search.settings.limit
    if asked == there:
        return search
    if asked.unit != there.unit or asked.amount < there.amount:
        has = search.settings.budget
        raise RunError(one_line(f"--budget: the search has {has}, got {budget}; it can only be given more of it"))
    _set_final_aside(folder)
    write_json(folder / BUDGETS, {"budgets": [*later_budgets(folder), budget]})
    return replace(search, settings=replace(search.settings, budget=budget))


def _retry_failed(folder: Path, search: Search) -> None:
    trials = search.trials(folder)
    failed = [one for each in search.candidates for one in trials.of(each.label) if one.state == "failed"]
    if failed:
        _set_final_aside(folder)
    for one in failed:
        retry(folder, one)


def _set_final_aside(folder: Path) -> None:
    """Rename the final study, where there is one, so that another one may come."""
    if (folder / FINAL).exists():
        (folder / FINAL).rename(free_name(folder / FINAL))
