"""The final study of a search: each winner trained anew over the final seeds, which alone meets
the test split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.errors import RunError
from subquad.experiment import Study, load_study, load_text
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.canonical import to_yaml
from subquad.experiment.folder import reopen
from subquad.experiment.labels import plain_label
from subquad.experiment.strict_yaml import parse_yaml
from subquad.record.files import find_file, write_text
from subquad.record.layout import is_study
from subquad.record.models import Identity
from subquad.record.names import CELLS, FINAL, STUDY, WINNERS
from subquad.record.storage import remove_tree
from subquad.search.candidates import Candidate, cell_of, final_labels
from subquad.search.folder import earlier_finals
from subquad.search.search import Search
from subquad.search.trial import Values
from subquad.security.disk import make_folder, rename

Winners = Mapping[str, Values]
"""Settings of the best trial of each candidate that has one, by label."""


def check_final(search: Search) -> None:
    """Refuse a search whose final study could not be made, before any trial.

    Raises:
        UserError: why.
    """
    starting: Winners = {candidate.label: {} for candidate in search.candidates}
    _winning_study(search, starting)


def begin_final(search: Search, folder: Path, winners: Winners) -> Study:
    """Write the winners down, and the study of all of them over the final seeds; begun before, it
    goes on.

    Raises:
        RunError: a run of it would not be that of its candidate's winner.
    """
    study = _winning_study(search, winners)
    seeds = {"seed": list(range(search.settings.final_seeds))}
    for candidate in search.candidates:
        if candidate.label not in winners:
            continue
        experiment = candidate.laid(winners[candidate.label]).experiment.model_dump(mode="json")
        experiment["matrix"] = seeds
        path = folder / WINNERS / f"{candidate.label}.yaml"  # which `subquad train` runs as it is
        write_text(path, to_yaml(experiment))
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
    finals = earlier_finals(search)
    for run in study.runs:
        if run.folder.exists():
            continue
        same = None
        for final in finals:
            earlier = final / CELLS / run.label
            identity = find_file(Identity, earlier)
            if identity and identity.digest == run.digest:
                same = earlier
        if same:
            make_folder(run.folder.parent, exist_ok=True)
            rename(same, run.folder)
        elif run.files.kept != run.folder:  # in storage, where an earlier winner's may lie
            remove_tree(run.files.checkpoints)


def same_winners(search: Search, folder: Path, winners: Winners) -> None:
    """Refuse to go on with a final study, which has met the test split, where trials now have other
    winners.

    Raises:
        RunError: the first run that differs.
    """
    begun = load_study(str(folder / FINAL / STUDY))
    before = {run.label: run.digest for run in begun.runs}
    now: dict[str, str] = {}
    if winners:
        study = _winning_study(search, winners)
        now = {run.label: run.digest for run in study.runs}
    for label in before | now:
        if before.get(label) != now.get(label):
            raise RunError(
                f"{folder}: its final study began with other winners than the trials "
                f"now have (run {label} differs); "
                "put the trials back as they were, or start a new search"
            )


def final_study(search: Search, winners: Winners) -> Study:
    """The study's candidates over the final seeds: one case more for each, whose settings lie over
    those of the axes. A candidate without a winner is left out.

    Raises:
        UserError: it does not load.
    """
    study = search.study
    data = parse_yaml(study.text, study.source).data
    cases = list(data.get("cases", []))
    kept = [candidate for candidate in search.candidates if candidate.label in winners]
    cells = [cell_of(candidate.run) for candidate in kept]
    for candidate, cell in zip(kept, cells, strict=True):
        settings = dict(winners[candidate.label])
        case: Values = {}
        if cell:
            case["when"] = cell
        case["set"] = settings
        if settings:
            cases.append(case)
    matrix: dict[str, Any] = {}
    for key, values in data.get("matrix", {}).items():
        if axis_path(key) == SEED:
            continue
        if not matrix and len(kept) < len(search.candidates):
            values = list(_for_cells(key, values, cells))
        matrix[key] = values
    matrix["seed"] = list(range(search.settings.final_seeds))
    data["matrix"] = matrix
    if cases:
        data["cases"] = cases
    return load_text(to_yaml(data))


def _for_cells(
    key: str, values: Sequence[Any], cells: Sequence[Mapping[str, str]]
) -> Iterator[Values]:
    """The values of an axis, each for the candidates with these cells alone."""
    for value in values:
        case = dict(value) if isinstance(value, dict) else {"value": value}
        label = case.setdefault("label", plain_label(key, value))
        others: list[dict[str, str]] = []
        for cell in cells:
            if cell[key] == label:
                other = {**cell}
                other.pop(key)
                others.append(other)
        if not others:
            continue
        if others != [{}]:
            case["when"] = others
        yield case


def _winning_study(search: Search, winners: Winners) -> Study:
    """The final study, each run of which is known to be that of its own candidate's winner.

    Raises:
        RunError: one is not.
    """
    study = final_study(search, winners)
    candidates: dict[str, Candidate] = {}
    for candidate in search.candidates:
        candidates |= dict.fromkeys(final_labels(candidate, search.settings.final_seeds), candidate)
    for run in study.runs:
        candidate = candidates[run.label]
        settings = dict(winners[candidate.label])
        settings["train.seed"] = run.experiment.train.seed
        if run.digest != candidate.laid(settings).digest:
            raise RunError(
                f"run {run.label} of the final study is not the winner of {candidate.label}"
            )
    return study
