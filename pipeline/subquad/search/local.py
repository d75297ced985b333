"""Trials one after the other: in this process, or each on the local processes that its experiment asks for."""

from __future__ import annotations

from subquad.drivers.local import run_local
from subquad.drivers.payload import payload_of
from subquad.drivers.signals import listening
from subquad.engine.ticket import Ticket
from subquad.errors import RunError, SubquadError
from subquad.runs import read_result
from subquad.search.executor import Ended, Executor, NextTicket, failed
from subquad.search.pruner import Pruning


class LocalExecutor(Executor):
    """One trial at a time, without Ray."""

    def run(self, next_ticket: NextTicket, judge: Pruning | None, ended: Ended) -> int:
        with listening() as between:  # of a signal while no trial runs
            while not between.signum and (ticket := next_ticket()):
                signum = _train(ticket, judge)
                if read_result(ticket.folder) is not None:
                    ended(ticket)
                if signum:
                    return signum
        return between.signum


def _train(ticket: Ticket, judge: Pruning | None) -> int:
    experiment = ticket.checked.experiment
    system = experiment.tracking.enabled and experiment.tracking.system_metrics
    try:
        return run_local([payload_of(ticket)], experiment.resources, ticket.folder, system=system, judge=judge)
    except RunError:  # another process writes this trial
        raise
    except SubquadError as error:
        failed(ticket, str(error))
        return 0
