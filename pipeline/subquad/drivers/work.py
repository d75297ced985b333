"""What every rank does, whichever driver started it: the same runs, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from filelock import BaseFileLock, FileLock, Timeout

from subquad.drivers.payload import Payload, ticket_of
from subquad.engine.group import Group
from subquad.engine.run import Signals, Status, fail, train_run
from subquad.engine.ticket import Ticket
from subquad.errors import RunError, SubquadError
from subquad.runs import ERROR

# A killed driver's workers die within seconds; a run that goes on waits for them.
TAKEOVER_SECONDS = 60.0


def work(payloads: Sequence[Payload], group: Group, signals: Signals, *, restarts: bool) -> None:
    """Do the runs in order; a failed one does not keep the next from starting, a stop does.

    Args:
        restarts: the driver starts ranks again that end with an unexpected error, so raise it; otherwise it is
            recorded as the run's failure.

    Raises:
        SubquadError: on every rank alike: no run can start (a plugin is missing on some rank), or the only run cannot.
    """
    tickets = group.together(lambda: [ticket_of(payload) for payload in payloads])
    for ticket in tickets:
        if group.device.type == "cpu":
            torch.set_num_threads(max(1, int(ticket.checked.experiment.resources.cpus_per_worker)))
        lock = group.together(partial(_writer_lock, ticket, group))
        try:
            if _done(ticket, group, signals, restarts, alone=len(tickets) == 1) == "stopped":
                return
        finally:
            if lock is not None:
                lock.release()


def _done(ticket: Ticket, group: Group, signals: Signals, restarts: bool, alone: bool) -> Status:
    try:
        return train_run(ticket, group, signals)
    except SubquadError as error:
        if alone:
            raise
        return fail(ticket, group, str(error))
    except Exception as error:
        if restarts:
            raise
        text = " ".join(str(error).split()) or "no message"
        return fail(ticket, group, f"{type(error).__name__}: {text} (traceback in {ticket.folder / ERROR})")


def _writer_lock(ticket: Ticket, group: Group) -> BaseFileLock | None:
    """The first rank's claim to be the only writer of a run."""
    if not group.first:
        return None
    lock = FileLock(ticket.folder / "writer.lock")
    try:
        lock.acquire(timeout=TAKEOVER_SECONDS)
    except Timeout as error:
        raise RunError(f"{ticket.folder}: another process is still writing this run") from error
    return lock
