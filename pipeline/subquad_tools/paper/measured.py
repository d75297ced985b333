"""What is measured of models for a paper's cells, beside what their training found: a file for each
measurement, which is made once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from subquad.errors import PluginError, UserError
from subquad.experiment import Run
from subquad.output.terminal import print_line
from subquad.record.files import find_file, read_bytes, write_file
from subquad.record.models import File, Number
from subquad.record.names import RESULT
from subquad.record.sums import sum_of
from subquad.security.disk import make_folder
from subquad_tools.paper.runs import Measurement, OnDisk

if TYPE_CHECKING:
    from subquad.trained.model import Trained

_LAYER_SAMPLES = 128
"""Of TEST, evenly spaced, that differences of outputs are measured on."""


class KeptMeasurement(File):
    """A measurement.

    Attributes:
        weights: the sum of the result of the run whose weights they are; "" where training begins.
        values: one, or one for each layer in order, by metric.
        notes: what a reader of the numbers has to know.
    """

    FILE = ""
    format: Literal[1] = 1
    weights: str
    values: dict[str, list[Number]]
    notes: tuple[str, ...]


class Measurements:
    """What is measured for a paper.

    Args:
        folder: where it is kept.
        there: runs by their digest.
    """

    def __init__(self, folder: Path, there: Mapping[str, OnDisk]):
        self._folder = folder
        self._there = there
        self._last: tuple[tuple[str, bool], Trained] | None = None

    def find(self, wanted: Measurement) -> KeptMeasurement | None:
        """A measurement of the weights as they are now; None where it is not made."""
        found = find_file(KeptMeasurement, self._folder, _file(wanted))
        return found if found and found.weights == self._weights(wanted) else None

    def source(self, wanted: Measurement) -> dict[str, str]:
        """Its file, with the sum of that."""
        name = _file(wanted)
        return {"file": name, "sha256": sum_of(read_bytes(self._folder / name))["sha256"]}

    def make(self, wanted: Iterable[Measurement]) -> dict[str, str]:
        """Make those that can be made and are not. Returns what could not be done."""
        failed: dict[str, str] = {}
        for name, measurement in {_file(one): one for one in wanted}.items():
            weights = self._weights(measurement)
            if weights is None or self.find(measurement):
                continue
            make_folder(self._folder, exist_ok=True)
            try:
                write_file(self._folder, self._measured(measurement, weights), name)
            except (UserError, PluginError) as error:
                failed[measurement.words] = str(error)
            else:
                print_line(f"measured {measurement.words}")
        return failed

    def _weights(self, wanted: Measurement) -> str | None:
        """See `KeptMeasurement`; None where the run has not finished."""
        if wanted.untrained:
            return ""
        known = self._there.get(wanted.run.digest)
        if known is None or not known.is_finished:
            return None
        return sum_of(read_bytes(known.folder / RESULT))["sha256"]

    def _measured(self, wanted: Measurement, weights: str) -> KeptMeasurement:
        trained = self._trained(wanted)
        if wanted.other is None:
            return _diagnosed(trained, weights)
        return _transferred(trained, wanted.other, weights, self._folder)

    def _trained(self, wanted: Measurement) -> Trained:
        """The model with the weights; that of the last measurement where it is the same one."""
        from subquad.trained.model import Trained
        from subquad_tools.swap.compare import best_device

        key = wanted.run.digest, wanted.untrained
        if self._last is None or self._last[0] != key:
            if wanted.untrained:
                trained = Trained.before(wanted.run, best_device())
            else:
                trained = Trained.of(self._there[wanted.run.digest].folder, "best", best_device())
            self._last = key, trained
        return self._last[1]


def _file(wanted: Measurement) -> str:
    runs = [wanted.run, wanted.other] if wanted.other else [wanted.run]
    kind = "start" if wanted.untrained else "trained"
    return f"{'-'.join([kind, *(run.digest[:16] for run in runs)])}.json"


def _diagnosed(trained: Trained, weights: str) -> KeptMeasurement:
    from subquad_tools.diagnose.command import passport_of

    passport = passport_of(trained)
    ratios = [
        operator.response[-1] / operator.response[0] if operator.response[0] else math.nan
        for operator in passport.operators
    ]
    return KeptMeasurement(
        weights=weights,
        values={"gain_ratio": ratios, "token_similarity": list(passport.similarity[1:])},
        notes=trained.spec.notes,
    )


def _transferred(trained: Trained, other: Run, weights: str, folder: Path) -> KeptMeasurement:
    """Scores on TEST of a model with another one's weights.

    Raises:
        ConfigError: a tensor has no weights of its name and shape, or a trained one has no place.
    """
    from subquad_tools.swap.compare import errors_on, opened_split, refuse_gaps, spaced

    swapped, imported = trained.swapped(other)
    refuse_gaps(imported, other.label)
    split, note = opened_split(trained, "test", folder, "subquad paper")
    errors = errors_on(spaced(split, _LAYER_SAMPLES), trained, swapped)
    error = fmean(error.absolute for error in errors)
    values = {**swapped.scores(split), "output_error": error}
    return KeptMeasurement(
        weights=weights,
        values={name: [value] for name, value in values.items()},
        notes=(note, *trained.spec.notes),
    )
