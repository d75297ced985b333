"""The journal of a search: the only record of its trials, Optuna's storage in one file.

Each line is one change that is there whole or not at all, with a check of its own. The search's
driver alone writes it, one change at a time. Nothing in it is run: Optuna makes plain values,
distributions and states of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter

from subquad.errors import RunError, by_class
from subquad.record.files import append_line, parse_object, read_bytes, touching, write_text
from subquad.record.names import JOURNAL
from subquad.search.candidates import Candidate
from subquad.search.pruner import Pruner
from subquad.search.sampler import POINT, Sampler, as_optuna
from subquad.search.trial import Evaluation, Trial, Values, objectives
from subquad.security.disk import opened
from subquad.security.strict_json import MAX_BYTES, MAX_VALUES
from subquad.space import Point

PUT_BACK = "put it back as it was, or start a new search"
_OWN = "subquad"
"""Attribute of a trial in Optuna's study: all of it that Optuna does not know."""
_TRIAL = TypeAdapter(Trial)


class Journal(BaseJournalBackend):
    """The file of a search's trials, for `JournalStorage`.

    Args:
        search: the folder.
        kept: called after each line.

    Raises:
        RunError: a line is damaged, or the file is a link or too large.
    """

    def __init__(self, search: Path, kept: Callable[[], None] = lambda: None):
        self._path = search / JOURNAL
        self._kept = kept
        self._changes: list[Values] = []
        self._new: list[Values] = []
        self._is_torn = False
        self._lines = 0
        if not self._path.exists():
            return
        with touching(self._path), opened(self._path) as stream:
            content: bytes = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES or content.count(b",") > MAX_VALUES:
            raise RunError(f"{self._path}: more than {MAX_BYTES:,} bytes or {MAX_VALUES:,} values")
        *lines, torn = content.split(b"\n")
        self._is_torn = torn != b""
        self._lines = len(lines)
        for number, line in enumerate(lines, 1):
            try:
                entry = parse_object(line)
                if entry["line"] != number:
                    raise ValueError(f"was line {entry['line']}")
                self._changes += map(_numbered, entry["changes"])
            except (ValueError, LookupError, TypeError) as error:
                raise damaged(f"{self._path}:{number}", error) from None

    def read_logs(self, log_number_from: int) -> Generator[Values, None, None]:
        """Changes from a number on."""
        yield from self._changes[log_number_from:]

    def append_logs(self, logs: list[Values]) -> None:
        """Note changes, which `keep` will write."""
        self._changes += logs
        self._new += logs

    def keep(self) -> None:
        """Write the changes since the last time, as one line. A line that a kill left torn goes."""
        if self._is_torn:
            whole, end, _ = read_bytes(self._path).rpartition(b"\n")
            write_text(self._path, (whole + end).decode())
            self._is_torn = False
        self._lines += 1
        append_line(self._path, {"line": self._lines, "changes": self._new})
        self._new = []
        self._kept()


def damaged(place: object, error: Exception) -> RunError:
    """A record that says what cannot be."""
    return RunError(f"{place}: damaged: {by_class(error)}; {PUT_BACK}")


def _numbered(change: Values) -> Values:
    """A change as Optuna made it: JSON has no NaN."""
    if "intermediate_value" in change:
        change["intermediate_value"] = float(change["intermediate_value"])
    return change


def read_trials(
    search: Path, candidates: Iterable[Candidate], kept: Callable[[], None] = lambda: None
) -> dict[str, Trials]:
    """The trials of a search's folder, by the candidate's label. Nothing is written before one is
    recorded.

    Args:
        kept: called after each change that is on the disk.

    Raises:
        RunError: the journal is damaged.
    """
    journal = Journal(search, kept)
    try:
        storage = JournalStorage(journal)
        return {
            candidate.label: Trials(candidate, storage, journal.keep) for candidate in candidates
        }
    except Exception as error:  # whatever Optuna makes of changes that cannot be
        raise damaged(search / JOURNAL, error) from None


class Trials:
    """The trials of one candidate: Optuna's study of them, and what it does not know of each.

    Args:
        candidate: whose.
        storage: Optuna's, of all candidates.
        keep: called after each change that shall be there whole or not at all.

    Raises:
        ValueError: the study has other objectives.
        TypeError: its values are none.
    """

    def __init__(
        self, candidate: Candidate, storage: BaseStorage, keep: Callable[[], None] = lambda: None
    ):
        self.goal = candidate.goal
        self._label = candidate.label
        self._space = candidate.space
        self._storage = storage
        self._keep = keep
        self._read: dict[int, tuple[FrozenTrial, Trial]] = {}
        """By number, with what each was read of, which Optuna replaces where it changes."""
        self._known: Sequence[Trial] | None = None
        names = [study.study_name for study in storage.get_all_studies()]
        with quiet():
            if self._label not in names:
                optuna.create_study(
                    storage=storage, study_name=self._label, directions=self.goal.directions
                )
            self._study = optuna.load_study(study_name=self._label, storage=storage)
        directions = [direction.name.lower() for direction in self._study.directions]
        if directions != self.goal.directions:
            raise ValueError(f"{self._label}: has other objectives, {directions}")
        self._worst()  # of values that are none it raises, too

    @property
    def known(self) -> Sequence[Trial]:
        """All that were begun, by number.

        Raises:
            RunError: what the journal says of one cannot be.
        """
        if self._known is None:
            begun = [frozen for frozen in self._suggested() if _OWN in frozen.user_attrs]
            self._known = [self._trial(number, frozen) for number, frozen in enumerate(begun)]
        return self._known

    def _suggested(self) -> list[FrozenTrial]:
        """Those that were begun, and behind them one that was asked for and not begun yet."""
        trials = self._study.get_trials(deepcopy=False)
        return [frozen for frozen in trials if POINT in frozen.user_attrs]

    def _asked(self) -> Point | None:
        """The point that was asked for and not begun yet, which is the newest."""
        for frozen in self._study.get_trials(deepcopy=False)[-1:]:
            if _OWN not in frozen.user_attrs:
                return frozen.user_attrs.get(POINT)
        return None

    def _trial(self, number: int, frozen: FrozenTrial) -> Trial:
        source, trial = self._read.get(number, (None, None))
        if trial is None or source is not frozen:
            try:
                point = frozen.user_attrs[POINT]
                named = {"candidate": self._label, "number": number, "point": point}
                trial = _TRIAL.validate_python(frozen.user_attrs[_OWN] | named)
                told = {"params": frozen.params, "distributions": frozen.distributions}
                if not self._space.holds(point) or told != as_optuna(self._space, point):
                    raise ValueError("is at no point of the space")
            except (ValueError, TypeError) as error:
                raise damaged(f"{JOURNAL}: trial {number} of {self._label}", error) from None
            self._read[number] = frozen, trial
        return trial

    def ask(self, sampler: Sampler) -> Point | None:
        """The point of the next trial; None where a finite space has none left. Asked again before
        that one was begun, it is the same.

        Raises:
            ConfigError: the constraints leave hardly a point.
        """
        with quiet():
            if self._asked() is None and not sampler.suggest(self._study, self.known, self._worst):
                return None
        return self._asked()

    def record(self, trial: Trial) -> None:
        """Write down that the trial begins whose point was asked for, or what became of one."""
        own = _TRIAL.dump_python(trial, exclude={"candidate", "number", "point"})
        id_ = self._id(trial.number)
        self._known = None
        self._storage.set_trial_user_attr(id_, _OWN, own)
        if trial.ended:
            values = objectives(trial, self.goal)
            if values is None and trial.state != "pruned":
                # Optuna ignores what failed, and would suggest it again
                values = self._worst()
            self._storage.set_trial_state_values(
                id_, TrialState.COMPLETE if values else TrialState.PRUNED, values
            )
        self._keep()

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(
            self._storage.get_study_id_from_name(self._label), self._suggested()[number].number
        )

    def _worst(self) -> list[float] | None:
        """The worst value of each objective so far; None where there is none."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not complete:
            return None
        columns = zip(*(frozen.values for frozen in complete), strict=True)
        return [
            min(column) if direction == "maximize" else max(column)
            for direction, column in zip(self.goal.directions, columns, strict=True)
        ]

    def reason_to_stop(self, pruner: Pruner, number: int, run: int, newest: Evaluation) -> str:
        """Why a trial shall end after its newest evaluation, in one line; "" where it shall go on.
        Asked again of the same evaluation, it is the same.

        Args:
            number: the trial.
            run: which of its runs, from 0: a trial of several seeds is one curve.
            newest: the evaluation, before the run's last one.
        """
        known = self.known
        trial = known[number]
        total = trial.total_steps or 1
        percent = int(100 * (run * total + newest.step) / (max(1, len(trial.seeds)) * total) + 1e-9)
        said = f"pruned at {percent} %"
        id_ = self._id(number)
        if percent not in self._storage.get_trial(id_).intermediate_values:
            self._storage.set_trial_intermediate_value(
                id_, percent, newest.value if math.isfinite(newest.value) else math.nan
            )
            with quiet():
                is_pruned = pruner.prunes(self._study, self._storage.get_trial(id_), known)
            if is_pruned:
                shown = self.goal.printed.text(newest.value)
                self._storage.set_trial_user_attr(
                    id_, said, f"{pruner.name}: {shown} at step {newest.step} of {total}"
                )
            self._keep()
        return self._storage.get_trial(id_).user_attrs.get(said, "")


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that parts of it are experimental."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
