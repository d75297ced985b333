"""From a point of a space to the experiment of a trial: settings laid over the candidate's, and what `--match` adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subquad.cost import Cost
from subquad.errors import ConfigError, UserError
from subquad.experiment import Run
from subquad.experiment.settings import Origin, Setting
from subquad.search.candidates import Candidate
from subquad.search.matching import TOLERANCE, Values, evaluations, of_length, steps_for, steps_of_flops, width_for
from subquad.search.materials import Materials
from subquad.search.measure import Timing
from subquad.search.settings import MatchBy
from subquad.space import Point, Space, builder


@dataclass(frozen=True)
class Target:
    """What each trial of each candidate gets alike.

    Attributes:
        by: what is meant.
        amount: FLOPs of a trial, parameters of a model, or seconds of a trial; of the reference candidate.
    """

    by: MatchBy = "none"
    amount: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """A trial that can be trained.

    Attributes:
        run: its experiment.
        values: all that is laid over the candidate's experiment, by dotted key.
        steps: of the whole trial.
        cost: of a step; None where the model could not be built here, which the trial itself will tell.
        seconds: expected; 0 where nothing was measured.
    """

    run: Run
    values: Values
    steps: int
    cost: Cost | None
    seconds: float = 0.0

    @property
    def flops_per_step(self) -> int | None:
        return self.cost.flops_per_step if self.cost else None

    @property
    def flops(self) -> float:
        return float(self.steps * (self.flops_per_step or 0))


class Fitter:
    """Makes experiments of one candidate's points.

    Args:
        candidate: whose.
        space: its own.
        materials: data and costs, shared by all candidates.
        target: what is matched.
        timing: measured on the candidate's own experiment; None where it was not.
        counted: refuse points whose FLOPs cannot be counted, as a budget of FLOPs could not hold them.
    """

    def __init__(
        self,
        candidate: Candidate,
        space: Space,
        materials: Materials,
        target: Target,
        timing: Timing | None = None,
        *,
        counted: bool = False,
    ):
        self.candidate = candidate
        self.space = space
        self._materials = materials
        self._target = target
        self._timing = timing
        self._counted = counted
        self._build = builder(candidate.run)

    def fit(self, point: Point) -> Fitted:
        """The trial of a point.

        Raises:
            UserError: plugin or data refuse it, it cannot be matched, or not be charged to the budget.
        """
        fitted = self.matched({".".join(map(str, one.path)): one.value for one in self.space.settings(point)})
        if self._counted and not fitted.flops_per_step:
            why = f" ({'; '.join(fitted.cost.uncounted)})" if fitted.cost else ""
            raise ConfigError(f"its FLOPs cannot be counted{why}, and the budget is one of FLOPs")
        return fitted

    def matched(self, values: Values) -> Fitted:
        """The trial of settings, with what `--match` adds to them.

        Raises:
            UserError: plugin or data refuse it, or it cannot be matched.
        """
        if self._target.by == "params":
            values |= self._width(values)
        elif self._target.by != "none":
            values |= self._length(values)
        return self.fitted(values)

    def fitted(self, values: Mapping[str, Any]) -> Fitted:
        """The trial of settings that were written down before."""
        run = self._laid(values)
        steps, per_epoch = self._materials.steps(run)
        cost = self._cost(run)
        of_step, of_evaluation = self._seconds(cost)
        seconds = steps * of_step + evaluations(run.experiment.train, steps, per_epoch) * of_evaluation
        return Fitted(run, dict(values), steps, cost, seconds)

    def _laid(self, values: Mapping[str, Any]) -> Run:
        return self._build([Setting(tuple(key.split(".")), value, Origin("")) for key, value in values.items()])

    def _cost(self, run: Run) -> Cost | None:
        try:
            return self._materials.cost(run)
        except UserError:
            raise
        except (Exception, SystemExit):  # a plugin's own; the trial fails with it, and its traceback is kept
            return None

    def _seconds(self, cost: Cost | None) -> tuple[float, float]:
        """Expected seconds of a step and of an evaluation: the candidate's own, in proportion to the counted FLOPs."""
        if self._timing is None:
            return 0.0, 0.0
        own = self._materials.cost(self.candidate.run).flops_per_step
        scale = cost.flops_per_step / own if cost and cost.flops_per_step and own else 1.0
        return self._timing["step"] * scale, self._timing["evaluation"] * scale

    def _length(self, values: Values) -> Values:
        run = self._laid(values)
        steps, per_epoch = self._materials.steps(run)
        cost = self._cost(run)
        if self._target.by == "time":
            wanted = self._steps_in_time(cost, evaluations(run.experiment.train, steps, per_epoch))
        elif cost is None or not cost.flops_per_step:
            why = f" ({'; '.join(cost.uncounted)})" if cost else ""
            raise ConfigError(f"its FLOPs cannot be counted{why}, so they cannot be matched")
        else:
            wanted = steps_of_flops(self._target.amount, cost.flops_per_step)
        return of_length(run.experiment.train, steps, per_epoch, wanted)

    def _steps_in_time(self, cost: Cost | None, evaluated: int) -> int:
        of_step, of_evaluation = self._seconds(cost)
        left = self._target.amount - evaluated * of_evaluation
        if left <= 0:
            raise ConfigError(
                f"its {evaluated} evaluations alone take {evaluated * of_evaluation:.3g} s, and a trial has "
                f"{self._target.amount:.3g} s; evaluate less often (train.eval_every_epochs, train.eval_every_steps)"
            )
        return steps_for(left, of_step)

    def _width(self, values: Values) -> Values:
        key, target = width_key(self.candidate.run), int(self._target.amount)

        def count(width: int) -> int:
            return self._materials.parameters(self._laid({**values, key: width}))

        run = self._laid(values)
        if abs(self._materials.parameters(run) - target) <= TOLERANCE * target:
            return {}
        start, step = _own_width(run, key)
        return {key: width_for(target, count, start, step=step)}


def width_key(run: Run) -> str:
    """The width of a backbone that is chosen to match parameters: of its feed-forward part, else of the model.

    Raises:
        ConfigError: it has neither.
    """
    fields = type(run.backbone_config).model_fields
    for name in ("ffn_dim", "dim"):
        if name in fields:
            return f"backbone.params.{name}"
    raise ConfigError(f"backbone {run.backbone.found.name!r} has neither ffn_dim nor dim to choose")


def _own_width(run: Run, key: str) -> tuple[int, int]:
    """A width to begin with, and what it is a multiple of."""
    config = run.backbone_config
    dim = int(getattr(config, "dim", 64))
    if key.endswith(".ffn_dim"):
        return int(getattr(config, "ffn_dim", None) or 4 * dim), 1
    return dim, int(getattr(config, "num_heads", 1))
