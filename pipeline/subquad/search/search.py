"""A search as it was asked for and as it lies on disk: candidates with their spaces, settings;
written, read back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from subquad.errors import ConfigError, RunError, UserError
from subquad.experiment import Study, load_text
from subquad.experiment.canonical import to_yaml
from subquad.experiment.components import Resolve
from subquad.experiment.folder import exclusive, found_in, note_written, refuse_storage
from subquad.experiment.refusals import shown
from subquad.experiment.settings import dotted
from subquad.experiment.strict_yaml import parse_yaml, read_yaml
from subquad.preparation.size import WIDTH_KEY
from subquad.record.files import read_bytes, read_json, write_json, write_text
from subquad.record.layout import enter, new_folder
from subquad.record.names import FINAL, SEARCH
from subquad.search.candidates import Candidate, candidates_of
from subquad.search.folder import BUDGETS, free_name
from subquad.search.journal import PUT_BACK, Trials, damaged, read_trials
from subquad.search.pruner import Pruner
from subquad.search.sampler import Sampler
from subquad.search.settings import LENGTH_KEYS, Budget, Settings
from subquad.security.disk import rename
from subquad.space import (
    Dimension,
    NothingToSearch,
    Point,
    Space,
    check_space,
    find_space,
    read_space,
)
from subquad.suggest import did_you_mean

FORMAT = 4


@dataclass(frozen=True)
class Search:
    """What is searched, before anything is known of trials.

    Attributes:
        study: the experiment or study.
        settings: the search's.
        candidates: in the order of the study.
    """

    study: Study
    settings: Settings
    candidates: tuple[Candidate, ...]

    @property
    def dimensions(self) -> list[Dimension]:
        """What is searched of all candidates."""
        return [dim for candidate in self.candidates for dim in candidate.space.dims]

    def trials(self, folder: Path, kept: Callable[[], None] = lambda: None) -> dict[str, Trials]:
        """Its trials, by the candidate's label; see `read_trials`.

        Raises:
            RunError: the journal is damaged.
        """
        return read_trials(folder, self.candidates, kept)

    def sampler(self, candidate: Candidate) -> Sampler:
        """What suggests the candidate's points.

        Raises:
            ConfigError: it cannot search this space.
        """
        paths = [dim.path for dim in candidate.space.dims]
        first: list[Point] = []
        for given in self.settings.points:
            point = {path: given[path] for path in paths if path in given}
            if point and point not in first:
                first.append(point)
        name, seed = self.settings.sampler, self.settings.seed
        return Sampler(name, candidate.space, seed, candidate=candidate.label, first=first)

    def pruner(self, candidate: Candidate) -> Pruner:
        """What ends the candidate's trials early.

        Raises:
            ConfigError: a setting is wrong, or it cannot judge by this goal.
        """
        return Pruner(self.settings.pruner, candidate.goal, self.settings.pruner_settings)

    def seeds(self, candidate: Candidate) -> list[int]:
        """Of the runs of a trial: the experiment's own and those after it; none where a trial is
        one run.
        """
        count, first = self.settings.seeds_per_trial, candidate.run.experiment.train.seed
        return [] if count == 1 else [first + number for number in range(count)]


def plan_search(study: Study, settings: Settings) -> Search:
    """A search of a study, checked as far as that is possible without its data.

    Raises:
        ConfigError: a space is unknown or wrong, there is nothing to search, or the protocol has no
            validation split.
    """
    candidates: list[Candidate] = []
    found = candidates_of(study, settings.cost)
    for candidate in found:
        space = find_space(settings.space, candidate.run)
        try:
            space = check_space(space, candidate.run, drop=len(found) > 1)
        except NothingToSearch:
            # the space of one mixer may leave another one nothing to search
            if len(found) == 1:
                raise
            space = Space(space.name)
        candidates.append(replace(candidate, space=space))
    search = Search(study, settings, tuple(candidates))
    if not search.dimensions:
        raise ConfigError(
            f"space {settings.space}: nothing of it can be searched in any run of the study"
        )
    _refuse_owned(search)
    _refuse_unmatched(search)
    _check_points(search)
    return search


def _refuse_owned(search: Search) -> None:
    """Refuse to search what the study's axes, its `match` or `trial.match` decide."""
    study, match = search.study, search.settings.match
    for dim in search.dimensions:
        why = ""
        if dim.path in LENGTH_KEYS and match != "none":
            why = f" with trial.match={match}, which decides it"
        if dim.path == WIDTH_KEY and study.match:
            why = f" with match: {study.match}, which may decide it"
        owners = (axis.key for axis in study.file.axes if axis.owns(dim.key_path))
        if owner := next(owners, None):
            why = (
                f", as {owner} is an axis of the study; leave it out of the space, "
                "or the axis out of the matrix"
            )
        if why:
            raise ConfigError(f"{dim.origin}: {dotted(dim.key_path)}: cannot be searched{why}")


def _refuse_unmatched(search: Search) -> None:
    """Refuse what ends trials early where `trial.match` makes them equal, unless the budget is one
    of FLOPs.
    """
    settings = search.settings
    if settings.match == "none" or settings.limit.unit == "flops":
        return
    early = ""
    patient = [candidate.run.experiment.train.patience for candidate in search.candidates]
    if any(patient) or "train.patience" in [dim.path for dim in search.dimensions]:
        early = "train.patience"
    if settings.pruner != "none":
        early = f"--pruner {settings.pruner}"
    if early:
        raise ConfigError(
            f"trial.match=flops: {early} ends trials early, and with --budget "
            f"{settings.budget} candidates would not "
            "get the same FLOPs; give a budget in FLOPs, such as 1e15flops, or "
            "leave one of them out"
        )


def _check_points(search: Search) -> None:
    """Refuse points that no candidate can try: a setting that no space has, or a value that its
    space does not try.
    """
    dims = {dim.path: dim for dim in search.dimensions}
    for point in search.settings.points:
        for key, value in point.items():
            if key not in dims:
                raise ConfigError(f"--points: {key}: is not searched{did_you_mean(key, dims)}")
            if not dims[key].can_be(value):
                raise ConfigError(f"--points: {key}: the space does not try {shown(value)}")


def write_search(search: Search, root: Path) -> Path:
    """Make the folder of a new search and say in it what is searched, as one file that is
    written whole.
    """
    candidates = search.candidates
    data = {
        "format": FORMAT,
        "study": not search.study.single,
        "settings": search.settings.values(),
        "measured": {
            candidate.label: candidate.timing for candidate in candidates if candidate.timing
        },
        "spaces": {candidate.label: candidate.space.as_data() for candidate in candidates},
        "experiment": parse_yaml(search.study.text, search.study.source).data,
    }
    text = to_yaml(data)
    folder = new_folder(
        root / "runs", f"{search.study.name}-search", hashlib.sha256(text.encode()).hexdigest()
    )
    write_text(folder / SEARCH, text)
    note_written([candidate.run for candidate in candidates], folder)
    return folder


def read_search(folder: Path, resolve: Resolve | None = None) -> Search:
    """The search of a folder, exactly as it was started, with the newest budget that it was given.

    Args:
        resolve: finds plugins, see `found_in`.

    Raises:
        RunError: the folder holds no search, one of another version, or one that was edited.
        ConfigError: it does not load.
    """
    folder = enter(folder)
    path = folder / SEARCH
    if not path.exists():
        raise RunError(f"{folder}: not a search (no {SEARCH})")
    _refuse_edited(path)
    data = read_yaml(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RunError(
            f"{path}: written by another version of subquad, this one reads format {FORMAT}"
        )
    try:
        study = load_text(to_yaml(data["experiment"]), found_in(folder, resolve))
        settings = Settings(**data["settings"])
        candidates: list[Candidate] = []
        for candidate in candidates_of(study, settings.cost):
            given = data["spaces"][candidate.label]
            space = read_space(given, settings.space, candidate.run)
            candidates.append(
                replace(candidate, space=space, timing=data["measured"].get(candidate.label))
            )
        budget = [settings.budget, *_later_budgets(folder)][-1]
        return Search(study, replace(settings, budget=budget), tuple(candidates))
    except UserError as error:
        raise type(error)(f"{path}: {error}") from error
    except (
        KeyError,
        TypeError,
    ) as error:  # only where the folder has another name, which the hash is part of
        raise damaged(path, error) from error


def _later_budgets(folder: Path) -> list[str]:
    """Larger budgets that a search was given after its start, the last one its own.

    Raises:
        RunError: what the folder says of them is damaged.
    """
    path = folder / BUDGETS
    later = (read_json(path) or {"budgets": None})["budgets"] if path.exists() else []
    if not isinstance(later, list) or not all(isinstance(word, str) for word in later):
        raise RunError(f"{path}: damaged: must hold a list of budgets; {PUT_BACK}")
    return later


def _refuse_edited(path: Path) -> None:
    """A folder's name ends with a hash of its search.yaml; of a folder with another name nothing
    is known.
    """
    named = re.fullmatch(r"\d{8}-\d{6}-([0-9a-f]{8})(?:\.\d+)?", path.parent.resolve().name)
    if named and not hashlib.sha256(read_bytes(path)).hexdigest().startswith(named[1]):
        raise RunError(f"{path}: changed since the search was started; {PUT_BACK}")


def reopened(folder: Path, search: Search, budget: str | None) -> Search:
    """The search before it goes on: with a larger budget, which its folder remembers, where one is
    given.

    A final study that has begun is then set aside as `final-1`, `final-2`, ...: its winners may
    change. Runs of winners that stay come back from there. Of the others the ledger and the summary
    keep that they opened the test split.

    Raises:
        ConfigError: the budget is none.
        RunError: it is of another kind, or smaller; another process has the search.
        UserError: it names storage that the user never gave.
    """
    refuse_storage(search.study)
    if budget is None:
        return search
    wanted, there = Budget.parse(budget), search.settings.limit
    if wanted == there:
        return search
    if wanted.unit != there.unit or wanted.amount < there.amount:
        has = search.settings.budget
        raise RunError(
            f"--budget: the search has {has}, got {budget}; it can only be given more of it"
        )
    with exclusive(folder):
        final = folder / FINAL
        if final.exists():  # set aside, so that another one may come
            rename(final, free_name(final))
        write_json(folder / BUDGETS, {"budgets": [*_later_budgets(folder), budget]})
    return replace(search, settings=replace(search.settings, budget=budget))
