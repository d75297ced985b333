"""The best trial of each candidate, and the study that trains it anew over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.errors import RunError
from subquad.experiment import Study, load_study
from subquad.experiment.axes import axis_path
from subquad.experiment.canonical import to_yaml
from subquad.experiment.settings import Origin, Setting, Tree, one_line, overlay
from subquad.experiment.strict_yaml import parse_yaml
from subquad.runs import FINAL, STUDY, write_text
from subquad.search.candidates import SEED, Candidate
from subquad.search.folder import BEST, settings_of, trial_folder
from subquad.search.search import load_text
from subquad.search.trial import Trial
from subquad.space import builder


def write_best(search: Path, candidate: Candidate, trial: Trial, seeds: int) -> Path:
    """Write the winner as a study over the final seeds that `subquad train` runs as is."""
    run = builder(candidate.run)(_laid(settings_of(trial_folder(search, trial.candidate, trial.number))))
    data = run.experiment.model_dump(mode="json") | {"matrix": {"seed": list(range(seeds))}}
    path = search / BEST / f"{candidate.label}.yaml"
    write_text(path, to_yaml(data))
    return path


Winners = Sequence[tuple[Candidate, Trial | None]]


def final_study(search: Path, study: Study, winners: Winners, seeds: int) -> Study:
    """The study of all winners over the final seeds; candidates without a winner are left out.

    Args:
        study: what was searched.
        winners: of every candidate, one trial at least.
        seeds: how many.
    """
    path = search / f"{FINAL}.yaml"
    write_text(path, _final_text(search, study, winners, seeds))
    return load_study(str(path))


def same_winners(search: Path, study: Study, winners: Winners, seeds: int) -> None:
    """Refuse to go on with a final study, which has met the test split, where trials now have other winners.

    Args:
        study, winners, seeds: as of `final_study`.

    Raises:
        RunError: the first run that differs.
    """
    before = _digests(load_study(str(search / FINAL / STUDY)))
    now = _digests(load_text(_final_text(search, study, winners, seeds))) if any(one for _, one in winners) else {}
    changed = next((label for label in (before | now) if before.get(label) != now.get(label)), None)
    if changed is not None:
        raise RunError(
            one_line(
                f"{search}: its final study began with other winners than the trials now have (run {changed} differs); "
                "put the trials back as they were, or start a new search"
            )
        )


def _digests(study: Study) -> dict[str, str]:
    """What decides the numbers of each run of a study, by label."""
    return {run.label: run.digest for run in study.runs}


def _final_text(search: Path, study: Study, winners: Winners, seeds: int) -> str:
    data = parse_yaml(study.text, study.source).data
    data = _study(search, data, winners) if not study.single else _single(search, data, winners)
    matrix = {key: choices for key, choices in data.get("matrix", {}).items() if axis_path(key) != SEED}
    return to_yaml(data | {"matrix": matrix | {"seed": list(range(seeds))}})


def _single(search: Path, data: dict[str, Any], winners: Winners) -> dict[str, Any]:
    ((_, trial),) = winners
    assert trial is not None
    return overlay(Tree(data, {}), _laid(settings_of(trial_folder(search, trial.candidate, trial.number)))).data


def _study(search: Path, data: dict[str, Any], winners: Winners) -> dict[str, Any]:
    """The study with one more case for each winner: settings of a case lie over those of the axes."""
    cases, exclude = list(data.get("cases", [])), list(data.get("exclude", []))
    for candidate, trial in winners:
        if trial is None:
            exclude.append(dict(candidate.axes))
        elif values := settings_of(trial_folder(search, trial.candidate, trial.number)):
            cases.append(({"when": dict(candidate.axes)} if candidate.axes else {}) | {"set": values})
    return data | ({"cases": cases} if cases else {}) | ({"exclude": exclude} if exclude else {})


def _laid(values: Mapping[str, Any]) -> list[Setting]:
    return [Setting(tuple(key.split(".")), value, Origin("")) for key, value in values.items()]
