"""Learning curves that a whole grid search has left behind, as a table on which searches can be replayed."""

from __future__ import annotations

from pathlib import Path

from subquad.errors import RunError
from subquad.experiment.origins import one_line
from subquad.search.replay import Table
from subquad.search.search import Search, trials_of
from subquad.search.searcher import Goal
from subquad.search.searchers.fresh import identity
from subquad.search.trial import Trial, best_of


def recorded(search: Search, folder: Path, label: str) -> Table:
    """The curves of a subject, one for each point of its space.

    Points that plugin or data refuse are not in the table: a replay finds them infeasible, as a search does.

    Args:
        search: as `read_search` gives it.
        folder: the search's.
        label: of the subject.

    Raises:
        RunError: the space is not finite; a point was not trained to its end, failed, or has no value; trials differ in
            their number of steps.
    """
    space, goal = search.spaces[label], search.goals[label]
    if not space.is_finite:
        raise RunError(one_line(f"{folder}: {label}: the space {space.name} has a continuous dimension; record a grid"))
    trials = {identity(trial.point): trial for trial in trials_of(search, folder).of(label)}
    refused = {key for key, trial in trials.items() if trial.state == "infeasible"}
    points = [key for point in space.grid() if (key := identity(point)) not in refused]
    whole = [trials[key] for key in points if key in trials and _is_whole(trials[key], goal)]
    if len(whole) < max(2, len(points)):
        raise RunError(
            one_line(
                f"{folder}: {label}: {len(whole)} of {len(points)} points were trained to their end; a replay needs "
                "all of at least two: search the whole space with --searcher grid and no scheduler"
            )
        )
    lengths = {trial.total_steps for trial in whole}
    if len(lengths) > 1:
        raise RunError(
            one_line(
                f"{folder}: {label}: trials have {min(lengths)} to {max(lengths)} steps, a replay needs one number"
            )
        )
    return Table(
        space=space,
        goal=goal,
        total_steps=lengths.pop(),
        curves={identity(trial.point): trial.curve for trial in whole},
    )


def _is_whole(trial: Trial, goal: Goal) -> bool:
    return trial.state == "finished" and best_of(trial.curve, goal.mode) is not None
