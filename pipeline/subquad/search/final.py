"""The final study of a search: each winner trained anew over the final seeds, which alone meets
the test split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from subquad.errors import RunError
from subquad.experiment import Run, Study, load_study
from subquad.experiment.canonical import to_yaml
from subquad.experiment.folder import reopen
from subquad.experiment.labels import plain_label
from subquad.record.files import find_file, write_text
from subquad.record.layout import is_study
from subquad.record.models import Identity
from subquad.record.names import CELLS, FINAL, STUDY, WINNERS
from subquad.record.storage import remove_tree
from subquad.search.candidates import cell_of, final_labels
from subquad.search.folder import earlier_finals
from subquad.search.search import Search
from subquad.search.trial import Values
from subquad.security.disk import make_folder, rename

Winners = Mapping[str, Values]
"""Settings of the best trial of each candidate that has one, by label."""


def begin_final(search: Search, folder: Path, winners: Winners) -> Study:
    """Write the winners down, and the study of all of them over the final seeds; begun before, it
    goes on.
    """
    study = _winning_study(search, winners)
    seeds = {"seed": list(range(search.settings.final_seeds))}
    for candidate in search.candidates:
        if candidate.label not in winners:
            continue
        experiment = candidate.laid(winners[candidate.label]).experiment.model_dump(mode="json")
        experiment["matrix"] = seeds
        # which `subquad train` runs as it is
        write_text(folder / WINNERS / f"{candidate.label}.yaml", to_yaml(experiment))
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
    before = {run.label: run.digest for run in load_study(str(folder / FINAL / STUDY)).runs}
    now: dict[str, str] = {}
    if winners:
        now = {run.label: run.digest for run in _winning_study(search, winners).runs}
    for label in before | now:
        if before.get(label) != now.get(label):
            raise RunError(
                f"{folder}: its final study began with other winners than the trials "
                f"now have (run {label} differs); "
                "put the trials back as they were, or start a new search"
            )


def _winning_study(search: Search, winners: Winners) -> Study:
    """The study's candidates with the settings of their winners, over the final seeds. A candidate
    without a winner is left out.

    Raises:
        UserError: a plugin refuses the settings.
    """
    runs: list[Run] = []
    for candidate in search.candidates:
        if candidate.label not in winners:
            continue
        cell = cell_of(candidate.run)
        for seed, label in enumerate(final_labels(candidate, search.settings.final_seeds)):
            run = candidate.laid({**winners[candidate.label], "train.seed": seed})
            axes = {**candidate.axes, "seed": seed}
            labels = {**cell, "seed": plain_label("seed", seed)}
            runs.append(replace(run, label=label, axes=axes, labels=labels))
    return replace(search.study, single=False, runs=tuple(runs))
