"""Pictures of a search, one PNG each, by Optuna's Matplotlib backend.

`best-so-far.png` compares the candidates. Of each one `<candidate>-curves.png` has the learning curves of all trials,
`-parallel.png`, `-slice.png` and `-importances.png` say what finished trials tell about settings, and `-front.png`
holds a second objective against the metric. Importances are by PED-ANOVA (Watanabe, Bansal, Hutter, IJCAI 2023).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution

from subquad.disk import replacing
from subquad.search.optuna_study import quiet
from subquad.search.trial import Goal, Trial
from subquad.space import Dimension, Space

PLOTS = "plots"
_DPI = 120
_CUT = 32
_IN_LEGEND = 12
_Job = Callable[[Any], Any]
"""Draws with Optuna's charts and gives the figure."""


class _NotDrawn(Exception):
    """There is nothing to draw; the message says why."""


@dataclass(frozen=True)
class Pictured:
    """One candidate's part of a search; its label begins the names of its files."""

    label: str
    space: Space
    goal: Goal
    trials: Sequence[Trial]


@dataclass(frozen=True)
class Drawn:
    """The pictures that were drawn, and a line for each reason why some could not be: which, and the reason."""

    files: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()


def draw(candidates: Sequence[Pictured], out: Path) -> Drawn:
    """Draw all pictures of a search; never raises, as no search shall fail for a picture.

    Args:
        candidates: in the order of the study.
        out: folder for the files; pictures that are there are replaced.
    """
    if find_spec("matplotlib") is None:
        return Drawn(left_out=("plots need matplotlib: pip install 'subquad[tune]'",))
    jobs: list[tuple[str, _Job]] = []
    for metric in dict.fromkeys(one.goal.metric for one in candidates):
        own = [one for one in candidates if one.goal.metric == metric]
        suffix = "" if len(own) == len(candidates) else f"-{metric.replace('/', '_')}"
        jobs.append((f"best-so-far{suffix}.png", partial(_best_so_far, own)))
    for one in candidates:
        kinds = {"front": _front} if one.goal.cost != "none" else {}
        kinds |= {"curves": _curves}
        kinds |= {"parallel": _parallel, "slice": _slice, "importances": _importances} if one.space.dims else {}
        jobs += [(f"{one.label}-{kind}.png", partial(plot, one)) for kind, plot in kinds.items()]
    return _done(jobs, out)


def _done(jobs: Sequence[tuple[str, _Job]], out: Path) -> Drawn:
    files: list[Path] = []
    left_out: dict[str, list[str]] = {}
    for name, job in jobs:
        try:
            with _apart() as charts, replacing(out / name) as stream:
                job(charts).savefig(stream, format="png", dpi=_DPI, bbox_inches="tight")
            files.append(out / name)
        except _NotDrawn as error:
            left_out.setdefault(str(error), []).append(name)
        except Exception as error:  # whatever a plotting library may raise must not reach the search
            said = (str(error).splitlines() or [""])[0]
            left_out.setdefault(f"{type(error).__name__}: {said}", []).append(name)
    return Drawn(tuple(files), tuple(f"{', '.join(names)}: {reason}" for reason, names in left_out.items()))


def _best_so_far(candidates: Sequence[Pictured], charts: Any) -> Any:
    studies = [study for one in candidates if (study := _study(one, least=0)).trials]
    if not studies:
        raise _NotDrawn("no finished trial has a value")
    metric = candidates[0].goal.label
    axes = charts.plot_optimization_history(studies, target=_metric_of, target_name=f"validation {metric}")
    return _sized(axes, (9.0, 4.8), "finished trials, and the best of them so far")


def _curves(one: Pictured, charts: Any) -> Any:
    study = optuna.create_study(direction=one.goal.directions[0])
    known = [trial for trial in one.trials if any(math.isfinite(each.value) for each in trial.curve)]
    if not known:
        raise _NotDrawn("no trial was evaluated")
    for trial in known:
        learned = {each.step: one.goal.scaled(each.value) for each in trial.curve if math.isfinite(each.value)}
        study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.PRUNED, intermediate_values=learned))
    axes = charts.plot_intermediate_values(study)
    axes.set_ylabel(f"validation {one.goal.label}")
    if len(known) > _IN_LEGEND:
        axes.get_legend().remove()  # nobody could read it, and drawing it takes longer than all the rest
    return _sized(axes, (7.2, 4.4), f"{one.label}: learning curves")


def _parallel(one: Pictured, charts: Any) -> Any:
    names = _searched(study := _study(one))
    axes = charts.plot_parallel_coordinate(study, params=names, target=_metric_of, target_name=one.goal.label)
    return _sized(axes, (1.5 * len(names) + 4, 4.8), f"{one.label}: settings of finished trials")


def _slice(one: Pictured, charts: Any) -> Any:
    names = _searched(study := _study(one))
    found = charts.plot_slice(study, params=names, target=_metric_of, target_name=f"validation {one.goal.label}")
    return _sized(np.ravel(np.asarray(found, dtype=object))[0], (2.6 * len(names) + 2, 3.6), "")


def _importances(one: Pictured, charts: Any) -> Any:
    from optuna.importance import PedAnovaImportanceEvaluator

    study = _study(one)
    if len({tuple(trial.values) for trial in study.trials}) < 2:
        raise _NotDrawn("all finished trials are equal")
    varied = [name for name in _searched(study) if len({trial.params.get(name) for trial in study.trials}) > 1]
    if len(varied) < 2:
        raise _NotDrawn("fewer than 2 settings differ between finished trials")
    axes = charts.plot_param_importances(
        study,
        evaluator=PedAnovaImportanceEvaluator(),
        params=varied,
        target=_metric_of if one.goal.cost != "none" else None,
        target_name=one.goal.label,
    )
    return _sized(axes, (7.2, 1.6 + 0.4 * len(varied)), f"{one.label}: what tells the best trials from the rest")


def _front(one: Pictured, charts: Any) -> Any:
    axes = charts.plot_pareto_front(_study(one, least=1), target_names=[f"validation {one.goal.label}", one.goal.cost])
    return _sized(axes, (7.2, 4.4), f"{one.label}: {one.goal.label} against {one.goal.cost}")


def _metric_of(trial: optuna.trial.FrozenTrial) -> float:
    return trial.values[0]


def _study(one: Pictured, *, least: int = 2) -> optuna.Study:
    """The finished trials whose points are of the space, with short names of settings.

    Raises:
        _NotDrawn: there are fewer than `least`.
    """
    study = optuna.create_study(directions=one.goal.directions, study_name=one.label[:_CUT] or "trials")
    names = _short_names([dim.path for dim in one.space.dims])
    for trial in one.trials:
        found = trial.best(one.goal.mode) if trial.state == "finished" and one.space.holds(trial.point) else None
        told = [None, None] if found is None else [one.goal.scaled(found.value), trial.cost(one.goal)]
        values = [value for value in told[: len(one.goal.directions)] if value is not None and math.isfinite(value)]
        if len(values) < len(one.goal.directions):
            continue
        shown = {
            names[dim.path]: _shown(dim, trial.point[dim.path]) for dim in one.space.dims if dim.path in trial.point
        }
        params, distributions = ({name: pair[place] for name, pair in shown.items()} for place in (0, 1))
        study.add_trial(optuna.create_trial(values=values, params=params, distributions=distributions))
    count = len(study.trials)
    if count < least:
        raise _NotDrawn(f"{count} finished trial{'' if count == 1 else 's'} with a value, {least} are needed")
    return study


def _shown(dim: Dimension, value: Any) -> tuple[Any, Any]:
    """A value and its distribution, with choices as text: Optuna cannot draw mixed types."""
    if not isinstance(dim.distribution, CategoricalDistribution):
        return value, dim.distribution
    return _text(value), CategoricalDistribution([_text(one) for one in dim.distribution.choices])


def _text(value: Any) -> str:
    return str(value)[:_CUT].replace("$", r"\$")  # Matplotlib would read mathematics


def _searched(study: optuna.Study) -> list[str]:
    return list(dict.fromkeys(name for trial in study.trials for name in trial.params))


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """The last word of each dotted path, or all of it where two share that: `mixer.params.order` is `order`."""
    shared = Counter(path.rpartition(".")[2] for path in paths)
    return {path: last if shared[last := path.rpartition(".")[2]] == 1 else path for path in paths}


def _sized(axes: Any, size: tuple[float, float], title: str) -> Any:
    axes.figure.set_size_inches(*size)
    if title:
        axes.set_title(title.replace("$", r"\$"), fontsize=11)
    return axes.figure


@contextmanager
def _apart() -> Iterator[Any]:
    """Optuna's charts, without leaving anything behind: it draws with pyplot, changes its style, logs and warns."""
    import matplotlib

    if "matplotlib.pyplot" not in sys.modules:
        matplotlib.use("agg")  # no window system is asked for; a caller who uses pyplot already keeps his choice
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as charts

    open_before = set(plt.get_fignums())
    try:
        with quiet(), warnings.catch_warnings(), matplotlib.rc_context():
            warnings.simplefilter("ignore")
            yield charts
    finally:
        for number in set(plt.get_fignums()) - open_before:
            plt.close(number)
