"""Trials one after the other: in this process, or each on the local processes that its experiment asks for."""

from __future__ import annotations

from subquad.drivers.local import run_local
from subquad.drivers.signals import listening
from subquad.errors import RunError, SubquadError
from subquad.experiment import Run
from subquad.runs import read_result
from subquad.search.executor import Ended, Executor, NextRun, failed
from subquad.search.pruner import Pruning


class LocalExecutor(Executor):
    """One trial at a time, without Ray."""

    def run(self, next_run: NextRun, judge: Pruning | None, ended: Ended) -> int:
        with listening() as between:  # of a signal while no trial runs
            while not between.signum and (run := next_run()):
                signum = _train(run, judge)
                if read_result(run.folder) is not None:
                    ended(run)
                if signum:
                    return signum
        return between.signum


def _train(run: Run, judge: Pruning | None) -> int:
    experiment = run.experiment
    system = experiment.tracking.enabled and experiment.tracking.system_metrics
    try:
        return run_local([run], experiment.resources, run.folder, system=system, judge=judge)
    except RunError:  # another process writes this trial
        raise
    except SubquadError as error:
        failed(run, str(error))
        return 0
