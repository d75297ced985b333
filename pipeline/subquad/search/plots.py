"""Pictures of a search, one PNG each, by Optuna's Matplotlib backend.

`best-so-far.png` compares the candidates. Of each one `<candidate>-curves.png` has the learning
curves of all trials, `-parallel.png`, `-slice.png` and `-importances.png` say what finished trials
tell about settings, and `-front.png` holds a second objective against the metric. Importances are
by PED-ANOVA (Watanabe, Bansal, Hutter, IJCAI 2023).
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
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

from subquad.errors import by_class
from subquad.search.journal import quiet
from subquad.search.trial import Curve, Goal, Trial, objectives
from subquad.security.disk import replacing
from subquad.space import Dimension, Space

_DPI = 120
_CUT = 32
_END = _CUT // 2
_IN_LEGEND = 12
_Job = Callable[[Any], Any]
"""Draws with Optuna's charts and gives the figure."""


class _NotDrawn(Exception):
    """There is nothing to draw; the message says why."""


@dataclass(frozen=True)
class Pictured:
    """One candidate's part of a search; its label begins the names of its files.

    Attributes:
        curve: that of a trial, of several seeds the newest one's.
    """

    label: str
    space: Space
    goal: Goal
    trials: Sequence[Trial]
    curve: Callable[[Trial], Curve]

    @property
    def metric(self) -> str:
        """`validation accuracy (%)`."""
        return f"validation {self.goal.printed.with_unit}"

    @property
    def metric_only(self) -> dict[str, Any]:
        """What Optuna's charts are of: the metric, which is one of two values where a search has a
        second objective. Without a target they know which trials are best.
        """
        target = None if self.goal.cost == "none" else _metric_of
        return {"target": target, "target_name": self.metric}


@dataclass(frozen=True)
class Drawn:
    """The pictures that were drawn, and a line for each reason why some could not be: which, and
    the reason.
    """

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
    files: list[Path] = []
    reasons = defaultdict[str, list[str]](list)
    for name, job in _jobs(candidates).items():
        try:
            file = out / name
            with _apart() as charts, replacing(file) as stream:
                job(charts).savefig(stream, format="png", dpi=_DPI, bbox_inches="tight")
            files.append(file)
        except _NotDrawn as error:
            reasons[str(error)].append(name)
        except Exception as error:  # whatever a plotting library raises must not reach the search
            reasons[by_class(error)].append(name)
    left_out = (f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return Drawn(tuple(files), tuple(left_out))


def _jobs(candidates: Sequence[Pictured]) -> dict[str, _Job]:
    """What draws each picture, by the name of its file."""
    jobs: dict[str, _Job] = {}
    by_metric = defaultdict[str, list[Pictured]](list)
    for candidate in candidates:
        by_metric[candidate.goal.metric].append(candidate)
    for metric, compared in by_metric.items():
        suffix = f"-{metric.replace('/', '_')}" if len(by_metric) > 1 else ""
        jobs[f"best-so-far{suffix}.png"] = partial(_best_so_far, compared)
    for candidate in candidates:
        own = {"curves": _curves}
        if candidate.goal.cost != "none":
            own = {"front": _front, **own}
        if candidate.space.dims:
            own |= {"parallel": _parallel, "slice": _slice, "importances": _importances}
        for name, picture in own.items():
            jobs[f"{candidate.label}-{name}.png"] = partial(picture, candidate)
    return jobs


def _best_so_far(candidates: Sequence[Pictured], charts: Any) -> Any:
    studies = [_study(candidate, least=0) for candidate in candidates]
    studies = [study for study in studies if study.trials]
    if not studies:
        raise _NotDrawn("no finished trial has a value")
    axes = charts.plot_optimization_history(studies, **candidates[0].metric_only)
    return _sized(axes, (9.0, 4.8), "finished trials, and the best of them so far")


def _curves(pictured: Pictured, charts: Any) -> Any:
    study = optuna.create_study(direction=pictured.goal.directions[0])
    scaled = pictured.goal.shown.scaled
    for trial in pictured.trials:
        learned = {
            point.step: scaled(point.value)
            for point in pictured.curve(trial)
            if math.isfinite(point.value)
        }
        if learned:
            state = optuna.trial.TrialState.PRUNED
            study.add_trial(optuna.create_trial(state=state, intermediate_values=learned))
    if not study.trials:
        raise _NotDrawn("no trial was evaluated")
    axes = charts.plot_intermediate_values(study)
    axes.set_ylabel(pictured.metric)
    if len(study.trials) > _IN_LEGEND:
        # nobody could read it, and drawing it takes longer than all the rest
        axes.get_legend().remove()
    return _sized(axes, (7.2, 4.4), f"{pictured.label}: learning curves")


def _parallel(pictured: Pictured, charts: Any) -> Any:
    study, varied = _varied(pictured)
    axes = charts.plot_parallel_coordinate(study, params=varied, **pictured.metric_only)
    return _sized(
        axes, (1.5 * len(varied) + 4, 4.8), f"{pictured.label}: settings of finished trials"
    )


def _slice(pictured: Pictured, charts: Any) -> Any:
    study, varied = _varied(pictured)
    drawn = charts.plot_slice(study, params=varied, target=_metric_of, target_name=pictured.metric)
    panels = np.ravel(np.asarray(drawn, dtype=object))
    for panel in panels:
        panel.tick_params(axis="x", labelrotation=45)
    figure = _sized(panels[0], (2.6 * len(varied) + 2, 3.6), "")
    figure.suptitle(_plain(f"{pictured.label}: finished trials by each setting"))
    return figure


def _importances(pictured: Pictured, charts: Any) -> Any:
    from optuna.importance import PedAnovaImportanceEvaluator

    study, varied = _varied(pictured, least=2)
    axes = charts.plot_param_importances(
        study, PedAnovaImportanceEvaluator(), varied, **pictured.metric_only
    )
    title = f"{pictured.label}: what tells the best trials from the rest"
    return _sized(axes, (7.2, 1.6 + 0.4 * len(varied)), title)


def _varied(pictured: Pictured, *, least: int = 1) -> tuple[optuna.Study, list[str]]:
    """The finished trials, and the settings that differ between them: a panel of another one says
    nothing.

    Raises:
        _NotDrawn: there are fewer than `least`.
    """
    study = _study(pictured)
    trials = study.trials
    if least > 1 and all(trial.values == trials[0].values for trial in trials):
        raise _NotDrawn("all finished trials are equal")
    params = study.trials_dataframe(attrs=("params",))
    varied = [name for name in params if params[name].nunique(dropna=False) > 1]
    if len(varied) < least:
        few = f"fewer than {least} settings differ" if least > 1 else "no setting differs"
        raise _NotDrawn(f"{few} between finished trials")
    return study, [name.removeprefix("params_") for name in varied]


def _front(pictured: Pictured, charts: Any) -> Any:
    cost = pictured.goal.cost
    study = _study(pictured, least=1)
    axes = charts.plot_pareto_front(study, target_names=[pictured.metric, cost])
    with_unit = pictured.goal.printed.with_unit
    return _sized(axes, (7.2, 4.4), f"{pictured.label}: {with_unit} against {cost}")


def _metric_of(trial: optuna.trial.FrozenTrial) -> float:
    return trial.values[0]


def _study(pictured: Pictured, *, least: int = 2) -> optuna.Study:
    """The finished trials whose points are of the space, with short names of settings.

    Raises:
        _NotDrawn: there are fewer than `least`.
    """
    study = optuna.create_study(
        directions=pictured.goal.directions, study_name=pictured.label[:_CUT] or "trials"
    )
    words = Counter(_last_word(dim.path) for dim in pictured.space.dims)
    for trial in pictured.trials:
        values = objectives(trial, pictured.goal)
        if values is None or not pictured.space.holds(trial.point):
            continue
        values[0] = pictured.goal.shown.scaled(values[0])
        params: dict[str, Any] = {}
        distributions: dict[str, Any] = {}
        for dim in pictured.space.dims:
            if dim.path in trial.point:
                # `order`, or all of `mixer.params.order` where two share that
                name = _last_word(dim.path)
                name = name if words[name] == 1 else dim.path
                params[name], distributions[name] = _shown(dim, trial.point[dim.path])
        study.add_trial(
            optuna.create_trial(values=values, params=params, distributions=distributions)
        )
    count = len(study.trials)
    if count < least:
        trials = "trial" if count == 1 else "trials"
        raise _NotDrawn(f"{count} finished {trials} with a value, {least} are needed")
    return study


def _last_word(path: str) -> str:
    return path.rpartition(".")[2]


def _shown(dim: Dimension, value: Any) -> tuple[Any, Any]:
    """A value and its distribution, with choices as text: Optuna cannot draw mixed types."""
    if not isinstance(dim.distribution, CategoricalDistribution):
        return value, dim.distribution
    return _text(value), CategoricalDistribution(list(map(_text, dim.distribution.choices)))


def _text(value: Any) -> str:
    text = str(value)
    if len(text) > _CUT:  # lists differ at their ends
        text = f"{text[:_END]}…{text[-_END:]}"
    return _plain(text)


def _plain(text: str) -> str:
    """Text in which Matplotlib reads no mathematics."""
    return text.replace("$", r"\$")


def _sized(axes: Any, size: tuple[float, float], title: str) -> Any:
    axes.figure.set_size_inches(*size)
    if title:
        axes.set_title(_plain(title), fontsize=11)
    return axes.figure


@contextmanager
def _apart() -> Iterator[Any]:
    """Optuna's charts, without leaving anything behind: it draws with pyplot, changes its style,
    logs and warns.
    """
    import matplotlib

    if "matplotlib.pyplot" not in sys.modules:
        # no window system is asked for; a caller who uses pyplot already keeps his choice
        matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as charts

    open_before = set(plt.get_fignums())
    try:
        with quiet(), matplotlib.rc_context():
            yield charts
    finally:
        for number in set(plt.get_fignums()) - open_before:
            plt.close(number)
