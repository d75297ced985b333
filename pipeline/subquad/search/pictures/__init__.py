"""Pictures of a search, one PNG each: how far it came, and what each subject's trials say about its settings.

`best-so-far.png` compares the subjects, `<subject>-front.png` holds a second objective against the metric.
`<subject>-history.png`, `-parallel.png`, `-slice.png` and `-importances.png` are Optuna's own plots of finished trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from subquad.search.searcher import Goal
from subquad.search.trial import Trial
from subquad.space import Space

PLOTS = "plots"
_NEEDED = ("matplotlib", "optuna")


class NotDrawn(Exception):
    """There is nothing to draw; the message says why."""


@dataclass(frozen=True)
class Pictured:
    """One subject's part of a search.

    Attributes:
        label: of the subject; it begins the names of its files.
        space: what was searched.
        goal: what is better.
        trials: by number.
    """

    label: str
    space: Space
    goal: Goal
    trials: Sequence[Trial]


@dataclass(frozen=True)
class Drawn:
    """What was drawn.

    Attributes:
        files: the pictures.
        left_out: a line for each reason why some could not be made: which, and the reason.
    """

    files: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()


def draw(subjects: Sequence[Pictured], out: Path) -> Drawn:
    """Draw all pictures of a search; never raises, as no search shall fail for a picture.

    Args:
        subjects: in the order of the study.
        out: folder for the files; pictures that are there are replaced.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        return Drawn(left_out=(f"plots need {' and '.join(missing)}: pip install 'subquad[tune]'",))
    from subquad.search.pictures.best_so_far import draw_best_so_far
    from subquad.search.pictures.by_optuna import KINDS, draw_kind
    from subquad.search.pictures.front import draw_front

    jobs: list[tuple[str, Callable[[Path], None]]] = [
        (f"best-so-far{_suffix(metric, subjects)}.png", lambda path, own=own: draw_best_so_far(own, path))
        for metric, own in _by_metric(subjects).items()
    ]
    jobs += [
        (f"{one.label}-front.png", lambda path, one=one: draw_front(one, path))
        for one in subjects
        if one.goal.cost != "none"
    ]
    jobs += [
        (f"{one.label}-{kind}.png", lambda path, one=one, kind=kind: draw_kind(kind, one, path))
        for one in subjects
        for kind in KINDS
    ]
    return _done(jobs, out)


def _done(jobs: Sequence[tuple[str, Callable[[Path], None]]], out: Path) -> Drawn:
    files: list[Path] = []
    left_out: dict[str, list[str]] = {}
    for name, job in jobs:
        try:
            out.mkdir(parents=True, exist_ok=True)
            job(out / name)
            files.append(out / name)
        except NotDrawn as error:
            left_out.setdefault(str(error), []).append(name)
        except Exception as error:  # whatever a plotting library may raise must not reach the search
            said = (str(error).splitlines() or [""])[0]
            left_out.setdefault(f"{type(error).__name__}: {said}", []).append(name)
    return Drawn(tuple(files), tuple(f"{', '.join(names)}: {reason}" for reason, names in left_out.items()))


def _by_metric(subjects: Sequence[Pictured]) -> dict[str, list[Pictured]]:
    """Subjects whose values can be compared in one picture."""
    groups: dict[str, list[Pictured]] = {}
    for one in subjects:
        groups.setdefault(one.goal.metric, []).append(one)
    return groups


def _suffix(metric: str, subjects: Sequence[Pictured]) -> str:
    """Tells pictures of several metrics apart."""
    if len(_by_metric(subjects)) < 2:
        return ""
    return "-" + "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in metric)
