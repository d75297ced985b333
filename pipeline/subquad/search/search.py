"""A search as it was asked for and as it lies on disk: candidates, spaces, settings; made, written down, read back."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from subquad.drivers.folder import exclusive
from subquad.errors import ConfigError, RunError, UserError
from subquad.experiment import Run, Study, differences, load_study
from subquad.experiment.canonical import to_yaml
from subquad.experiment.settings import dotted, one_line
from subquad.experiment.strict_yaml import parse_yaml
from subquad.runs import FINAL, SEARCH, TRIALS, new_folder, read_json, write_json, write_text
from subquad.search.candidates import Candidate, axes_of, candidates_of
from subquad.search.fitting import Fitted
from subquad.search.folder import BUDGETS, Trials, free_name, is_search, place_of, retry, trial_folder
from subquad.search.given import check_points, first_points_of, plain_trial, told_trials, warm_trials
from subquad.search.matching import LENGTH_KEYS
from subquad.search.measure import Timing
from subquad.search.pruner import Pruner
from subquad.search.sampler import Sampler
from subquad.search.settings import Settings, parse_budget
from subquad.search.trial import Goal, Trial
from subquad.space import NothingToSearch, Space, check_space, empty_space, find_space, plain_space, read_space

FORMAT = 2


@dataclass(frozen=True)
class Search:
    """What is searched, before anything is known of trials.

    Attributes:
        study: the experiment or study.
        settings: the search's.
        candidates: in the order of the study.
        spaces: what is searched of each candidate, by label.
        measured: what steps and evaluations of each candidate's own experiment take, by label; empty where no setting
            needs them.
        warm: trials of another search that its samplers are told, by label.
    """

    study: Study
    settings: Settings
    candidates: tuple[Candidate, ...]
    spaces: Mapping[str, Space]
    measured: Mapping[str, Timing] = field(default_factory=dict)
    warm: Mapping[str, Sequence[Trial]] = field(default_factory=dict)

    @property
    def goals(self) -> dict[str, Goal]:
        return {one.label: one.goal(self.settings.cost) for one in self.candidates}


def plan_search(study: Study, settings: Settings, *, cwd: Path | None = None) -> Search:
    """A search of a study, checked as far as that is possible without its data.

    Raises:
        ConfigError: a space is unknown or wrong, there is nothing to search, or the protocol has no validation split.
    """
    candidates = candidates_of(study)
    several = len(candidates) > 1
    spaces = {one.label: _space(one, settings.space, several=several, cwd=cwd) for one in candidates}
    if not any(space.dims for space in spaces.values()):
        raise ConfigError(one_line(f"space {settings.space}: nothing of it can be searched in any cell of the study"))
    search = Search(study, settings, candidates, spaces)
    _refuse_owned(search)
    check_points(settings.points, spaces)
    return _warmed(search, (cwd or Path.cwd()) / settings.warm_start) if settings.warm_start else search


def _warmed(search: Search, folder: Path) -> Search:
    other = read_search(folder)
    trials = {one.label: trials_of(other, folder).of(one.label) for one in other.candidates}
    return replace(search, warm=warm_trials(other, trials, search))


def _space(candidate: Candidate, names: str, *, several: bool, cwd: Path | None) -> Space:
    """The candidate's own space. In a study the space of one mixer may leave another one nothing to search."""
    said = find_space(names, candidate.run, cwd=cwd)
    try:
        return check_space(said, candidate.run, drop=several)
    except NothingToSearch:
        if several:
            return empty_space(said.name)
        raise


def _refuse_owned(search: Search) -> None:
    """Refuse to search what the study's axes or `--match` decide."""
    axes, match = axes_of(search.study), search.settings.match
    for space in search.spaces.values():
        for dim in space.dims:
            if axis := next((one for one in axes if one.owns(dim.key_path)), None):
                raise ConfigError(
                    one_line(
                        f"{dim.origin}: {dotted(dim.key_path)}: cannot be searched, as {axis.key} is an axis of the "
                        "study; leave it out of the space, or the axis out of the matrix"
                    )
                )
            if match in ("flops", "time") and dim.path in LENGTH_KEYS:
                raise ConfigError(
                    one_line(f"{dim.origin}: {dim.path}: cannot be searched with --match {match}, which decides it")
                )
            if match == "params" and dim.path in ("backbone.params.ffn_dim", "backbone.params.dim"):
                raise ConfigError(
                    one_line(f"{dim.origin}: {dim.path}: cannot be searched with --match params, which may decide it")
                )


def write_search(search: Search, root: Path) -> Path:
    """Make the folder of a new search and say in it what is searched, as one file that is written whole."""
    data = {
        "format": FORMAT,
        "study": not search.study.single,
        "settings": search.settings.plain(),
        "measured": dict(search.measured),
        "spaces": {label: plain_space(space.dims, space.constraints) for label, space in search.spaces.items()},
        "warm": {label: [plain_trial(one, search.goals[label]) for one in warm] for label, warm in search.warm.items()},
        "experiment": parse_yaml(search.study.text, search.study.source).data,
    }
    text = to_yaml(data)
    folder = new_folder(root / "runs", f"{search.study.name}-search", hashlib.sha256(text.encode()).hexdigest())
    write_text(folder / SEARCH, text)
    return folder


def read_search(folder: Path) -> Search:
    """The search of a folder, exactly as it was started.

    Raises:
        RunError: the folder holds no search, one of another version, or one that was edited.
        ConfigError: it does not load.
    """
    if not is_search(folder):
        raise RunError(f"{folder}: not a search (no {SEARCH})")
    path = folder / SEARCH
    _refuse_edited(path)
    data = parse_yaml(path.read_text(encoding="utf-8"), str(path)).data
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RunError(f"{path}: written by another version of subquad, this one reads format {FORMAT}")
    try:
        study, settings = load_text(to_yaml(data["experiment"])), Settings(**data["settings"])
        candidates = candidates_of(study)
        spaces = {one.label: read_space(data["spaces"][one.label], settings.space, one.run) for one in candidates}
        warm = {label: told_trials(label, rows) for label, rows in data["warm"].items()}
        settings = replace(settings, budget=_budgets(folder, settings.budget)[-1])
        return Search(study, settings, candidates, spaces, data["measured"], warm)
    except UserError as error:
        raise type(error)(one_line(f"{path}: {error}")) from error
    except (KeyError, TypeError) as error:  # only where the folder has another name, which the hash is part of
        raise RunError(one_line(f"{path}: damaged: {type(error).__name__}: {error}; {_PUT_BACK}")) from error


def _budgets(folder: Path, first: str) -> list[str]:
    """All budgets that a search had, the last one its own.

    Raises:
        RunError: what the folder says of them is damaged.
    """
    path = folder / BUDGETS
    later = (read_json(path) or {"budgets": None})["budgets"] if path.exists() else []
    if not isinstance(later, list) or not all(isinstance(one, str) for one in later):
        raise RunError(one_line(f"{path}: damaged: must hold a list of budgets; {_PUT_BACK}"))
    return [first, *later]


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
        raise RunError(
            one_line(
                f"--budget: the search has {search.settings.budget}, got {budget}; it can only be given more of it"
            )
        )
    _set_final_aside(folder)
    write_json(folder / BUDGETS, {"budgets": [*_budgets(folder, "")[1:], budget]})
    return replace(search, settings=replace(search.settings, budget=budget))


def _retry_failed(folder: Path, search: Search) -> None:
    trials = trials_of(search, folder)
    failed = [one for each in search.candidates for one in trials.of(each.label) if one.state == "failed"]
    if failed:
        _set_final_aside(folder)
    for one in failed:
        retry(trial_folder(folder, one.candidate, one.number))


def _set_final_aside(folder: Path) -> None:
    """Rename the final study, where there is one, so that another one may come."""
    if (folder / FINAL).exists():
        (folder / FINAL).rename(free_name(folder / FINAL))


_PUT_BACK = "put it back as it was, or start a new search"


def _refuse_edited(path: Path) -> None:
    """A folder's name ends with a hash of its search.yaml; of a folder with another name nothing is known."""
    named = re.fullmatch(r"\d{8}-\d{6}-([0-9a-f]{8})(?:\.\d+)?", path.parent.resolve().name)
    if named and not hashlib.sha256(path.read_bytes()).hexdigest().startswith(named[1]):
        raise RunError(f"{path}: changed since the search was started; {_PUT_BACK}")


def same_sources(search: Search, folder: Path) -> None:
    """Refuse to go on where the file of a mixer is not what the trials were trained with.

    Raises:
        RunError: the first trial that has another one.
    """
    for one in search.candidates:
        sources = list(one.run.sources.values())
        for kept in sorted((folder / TRIALS / one.label).glob("**/source/[0-9a-f]*")) if sources else ():
            if not any(kept.name.startswith(source.sha256[:12]) for source in sources):
                raise RunError(one_line(f"{sources[0].path}: not what trials were trained with, {kept}; {_PUT_BACK}"))


def trial_runs(search: Search) -> Callable[[Path, str, Fitted], Run]:
    """What makes the runs of one driver's trials, by folder, label and what was fitted."""
    launch = uuid.uuid4().hex
    axes = {one.label: one.axes for one in search.candidates}

    def run(trial: Path, label: str, fitted: Fitted) -> Run:
        known = axes[place_of(trial)[1]]
        return replace(fitted.run, place=trial, label=label, axes=known, launch=launch, is_trial=True)

    return run


def trials_of(search: Search, folder: Path) -> Trials:
    """The reader of a search's trials."""
    return Trials(folder, search.goals)


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
    what = changed[0] if changed else "its name, its cells, or where it runs"
    raise RunError(
        one_line(
            f"{target}: differs from what the search was started with: {what}; leave it out to resume, or start a new "
            "search"
        )
    )


def sampler_of(search: Search, candidate: Candidate) -> Sampler:
    """What suggests the candidate's points.

    Raises:
        ConfigError: there is no such sampler, a setting is wrong, or it cannot search this space.
    """
    settings, label = search.settings, candidate.label
    goal, space = candidate.goal(settings.cost), search.spaces[label]
    return Sampler(
        settings.sampler,
        space,
        goal,
        settings.seed,
        candidate=label,
        settings=settings.sampler_settings,
        first=first_points_of(settings.points, space),
        warm=search.warm.get(label, ()),
    )


def seeds_of(search: Search, candidate: Candidate) -> list[int]:
    """Of the runs of a trial: the experiment's own and those after it; none where a trial is one run."""
    count, first = search.settings.seeds_per_trial, candidate.run.experiment.train.seed
    return [] if count == 1 else [first + number for number in range(count)]


def pruner_of(search: Search, candidate: Candidate) -> Pruner:
    """What ends the candidate's trials early.

    Raises:
        ConfigError: there is no such pruner, a setting is wrong, or it cannot judge by this goal.
    """
    settings = search.settings
    goal = candidate.goal(settings.cost)
    return Pruner(settings.pruner, goal, candidate=candidate.label, settings=settings.pruner_settings)


@dataclass(frozen=True)
class _Stored:
    """A text, where a recipe is wanted."""

    stored: str
    name: str = "search"
    distribution: str = "search.yaml"

    def text(self) -> str:
        return self.stored


def load_text(text: str) -> Study:
    """What `subquad.experiment.load_study` reads from a file with this text.

    Raises:
        ConfigError: it does not load.
        PluginError: a plugin cannot be used.
    """
    return load_study("search", recipes=lambda: {"search": _Stored(text)})  # pyright: ignore[reportArgumentType]
