"""From a session to its results: tracking and progress around whichever driver does the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from subquad.drivers.payload import payload_of
from subquad.drivers.progress import Display
from subquad.drivers.session import Session, exclusive
from subquad.engine.ticket import Ticket
from subquad.experiment.schema import Resources
from subquad.runs import read_result
from subquad.tracking.publisher import open_publisher
from subquad.tracking.upload import Summary


@dataclass(frozen=True)
class Outcome:
    """What became of a session.

    Attributes:
        signum: the signal that stopped it, 0 where none did.
        failed: labels of runs that stopped themselves, with their reasons.
        unfinished: labels of runs without a result.
        tracking: what became of the metrics.
    """

    signum: int
    failed: Mapping[str, str]
    unfinished: tuple[str, ...]
    tracking: Summary


def drive(session: Session, display: Display, *, local: bool) -> Outcome:
    """Do what is left of a session.

    Args:
        display: shows progress.
        local: without Ray.
    """
    with exclusive(session.folder):
        tracking = session.tickets[0].checked.experiment.tracking
        publisher = open_publisher(tracking, session.folder, name=session.plan.name)
        publisher.start()
        try:
            with display.showing(session.pending):
                signum = _run(session, local)
        finally:
            summary = publisher.close()
    results = {one.label: read_result(one.folder) or {} for one in session.tickets}
    return Outcome(
        signum,
        {label: one["reason"] for label, one in results.items() if one.get("status") == "failed"},
        tuple(label for label, one in results.items() if not one),
        summary,
    )


def _run(session: Session, local: bool) -> int:
    for resources, tickets in _same_resources(session.pending):
        system = any(one.checked.experiment.tracking.system_metrics for one in tickets)
        payloads = [payload_of(one) for one in tickets]
        if local:
            from subquad.drivers.local import run_local

            signum = run_local(payloads, resources, session.folder, system=system)
        else:
            from subquad.ray.train import run_ray

            signum = run_ray(payloads, resources, session.folder, system=system)
        if signum:
            return signum
    return 0


def _same_resources(tickets: Iterable[Ticket]) -> Iterator[tuple[Resources, list[Ticket]]]:
    """Neighbours that ask for the same workers; they share one group of them."""
    for resources, group in groupby(tickets, key=lambda one: one.checked.experiment.resources):
        yield resources, list(group)
