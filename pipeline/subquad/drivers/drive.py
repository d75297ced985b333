"""From a session to its results: tracking and progress around whichever driver does the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from subquad.drivers.payload import payload_of
from subquad.drivers.progress import Display
from subquad.drivers.session import Session, exclusive
from subquad.engine.result import PROTOCOL_LABELS
from subquad.engine.ticket import Ticket, dataset_label
from subquad.experiment.schema import Resources
from subquad.runs import flatten, read_result
from subquad.tracking import Summary, TrackedRun, open_publisher


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
        publisher = _publisher(session)
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


def _publisher(session: Session):
    runs = [
        TrackedRun(one.folder, one.label, flatten(one.checked.experiment.model_dump(mode="json")), _tags(one))
        for one in session.tickets
    ]
    return open_publisher(
        session.tickets[0].checked.experiment.tracking,
        root=session.root,
        name=session.plan.name,
        runs=runs,
        study=session.folder if session.plan.study else None,
    )


def _tags(ticket: Ticket) -> dict[str, str]:
    checked = ticket.checked
    protocol = checked.experiment.protocol
    return {
        "subquad.protocol": protocol,
        "subquad.protocol_label": PROTOCOL_LABELS[protocol],
        "subquad.experiment": ticket.digest,
        "subquad.dataset": dataset_label(checked),
        "subquad.mixer": checked.mixer.found.name,
        "subquad.mixer_distribution": f"{checked.mixer.found.distribution} {checked.mixer.found.version}",
    }
