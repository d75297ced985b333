"""The final study of a search: each winner trained anew over the final seeds, which alone meets
the test split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.disk import make_folder, rename
from subquad.drivers.folder import reopen
from subquad.errors import RunError
from subquad.experiment import Study, load_study, load_text
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.canonical import to_yaml
from subquad.experiment.labels import plain_label
from subquad.experiment.strict_yaml import parse_yaml
from subquad.runs import CELLS, FINAL, IDENTITY, STUDY, WINNERS, is_study, read_json, write_text
from subquad.search.candidates import Candidate, cell_of, final_labels
from subquad.search.folder import earlier_finals
from subquad.search.search import Search
from subquad.search.trial import Trial, Values
from subquad.storage import remove_tree

Winners = Mapping[str, Trial]
"""The best trial of each candidate that has one, by label."""


def check_final(search: Search) -> None:
    """Refuse a search whose final study could not be made, before any trial.

    Raises:
        UserError: why.
    """
    _winning_study(search, {candidate.label: {} for candidate in search.candidates})


def begin_final(search: Search, folder: Path, winners: Winners) -> Study:
    """Write the winners down, and the study of all of them over the final seeds; begun before, it
    goes on.

    Raises:
        RunError: a run of it would not be that of its candidate's winner.
    """
    settings = _settings(winners)
    study = _winning_study(search, settings)
    for candidate in search.candidates:
        if candidate.label in settings:
            _write_best(folder, candidate, settings[candidate.label], search.settings.final_seeds)
    place = folder / FINAL
    if not is_study(place):
        write_text(folder / f"{FINAL}.yaml", study.text)
        write_text(place / STUDY, study.text)
    _take_back(study.placed(place), folder)
    return reopen(place)


def _take_back(study: Study, search: Path) -> None:
    """Move runs of earlier final studies that are the same experiments here: what was tested is
    not tested again.
    """
    earlier = [final / CELLS for final in earlier_finals(search)]
    for run in study.runs:
        if run.folder.exists():
            continue
        same = [
            cells / run.label for cells in earlier if _digest_in(cells / run.label) == run.digest
        ]
        if same:
            make_folder(run.folder.parent, exist_ok=True)
            rename(same[-1], run.folder)
        elif run.files.kept != run.folder:  # in storage, where an earlier winner's may lie
            remove_tree(run.files.checkpoints)


def _digest_in(run: Path) -> str:
    return (read_json(run / IDENTITY) or {}).get("digest", "")


def same_winners(search: Search, folder: Path, winners: Winners) -> None:
    """Refuse to go on with a final study, which has met the test split, where trials now have other
    winners.

    Raises:
        RunError: the first run that differs.
    """
    before = _digests(load_study(str(folder / FINAL / STUDY)))
    now = _digests(_winning_study(search, _settings(winners))) if winners else {}
    changed = next((label for label in (before | now) if before.get(label) != now.get(label)), None)
    if changed is not None:
        raise RunError(
            f"{folder}: its final study began with other winners than the trials "
            f"now have (run {changed} differs); "
            "put the trials back as they were, or start a new search"
        )


def _digests(study: Study) -> dict[str, str]:
    """What decides the numbers of each run of a study, by label."""
    return {run.label: run.digest for run in study.runs}


def final_study(
    study: Study,
    candidates: Sequence[Candidate],
    seeds: int,
    settings: Mapping[str, Values],
) -> Study:
    """A study's candidates over the final seeds: one case more for each, whose settings lie over
    those of the axes.

    Args:
        settings: of each candidate's winner, by the candidate's label; a candidate without is left
            out.

    Raises:
        UserError: it does not load.
    """
    data = parse_yaml(study.text, study.source).data
    cases = list(data.get("cases", []))
    kept = [candidate for candidate in candidates if candidate.label in settings]
    for candidate in kept:
        cell, laid = cell_of(candidate.run), settings[candidate.label]
        if laid:
            cases.append(({"when": cell} if cell else {}) | {"set": dict(laid)})
    matrix = {
        key: values for key, values in data.get("matrix", {}).items() if axis_path(key) != SEED
    }
    if matrix and len(kept) < len(candidates):
        key = next(iter(matrix))
        cells = [cell_of(candidate.run) for candidate in kept]
        matrix[key] = list(_for_cells(key, matrix[key], cells))
    data["matrix"] = matrix | {"seed": list(range(seeds))}
    return load_text(to_yaml(data | ({"cases": cases} if cases else {})))


def _for_cells(
    key: str, values: Sequence[Any], cells: Sequence[Mapping[str, str]]
) -> Iterator[Values]:
    """The values of an axis, each for the candidates with these cells alone."""
    for value in values:
        given = value if isinstance(value, dict) else {"value": value}
        label = given.get("label", plain_label(key, value))
        others = [
            {other: wanted for other, wanted in cell.items() if other != key}
            for cell in cells
            if cell[key] == label
        ]
        if others:
            yield given | {"label": label} | ({"when": others} if others != [{}] else {})


def _settings(winners: Winners) -> dict[str, Values]:
    return {label: trial.settings for label, trial in winners.items()}


def _winning_study(search: Search, settings: Mapping[str, Values]) -> Study:
    """The final study, each run of which is known to be that of its own candidate's winner.

    Raises:
        RunError: one is not.
    """
    study = final_study(search.study, search.candidates, search.settings.final_seeds, settings)
    seeds = search.settings.final_seeds
    candidates = {
        label: option for option in search.candidates for label in final_labels(option, seeds)
    }
    for run in study.runs:
        candidate = candidates[run.label]
        winner = candidate.laid(
            {**settings[candidate.label], "train.seed": run.experiment.train.seed}
        )
        if run.digest != winner.digest:
            raise RunError(
                f"run {run.label} of the final study is not the winner of {candidate.label}"
            )
    return study


def _write_best(folder: Path, candidate: Candidate, settings: Values, seeds: int) -> None:
    """Write the winner as a study over the final seeds that `subquad train` runs as is."""
    data = candidate.laid(settings).experiment.model_dump(mode="json")
    path = folder / WINNERS / f"{candidate.label}.yaml"
    write_text(path, to_yaml(data | {"matrix": {"seed": list(range(seeds))}}))
