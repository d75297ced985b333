"""A run as plain values that travel to another process or machine; plugins travel by name and are resolved there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subquad.engine.environment import plugins
from subquad.engine.ticket import Ticket
from subquad.experiment import check
from subquad.experiment.schema import Experiment
from subquad.registry import Kind, Resolved, SourceFile, load_source, resolve, verify_same


@dataclass(frozen=True)
class Payload:
    """Attributes:
    ticket: the ticket's plain fields.
    experiment: the experiment's values.
    source: path, attribute, sha256 and text of a mixer given as a file, or None.
    plugins: distribution, version and hash of every plugin, as the driver has them.
    """

    ticket: dict[str, Any]
    experiment: dict[str, Any]
    source: dict[str, str] | None
    plugins: list[dict[str, Any]]


def payload_of(ticket: Ticket) -> Payload:
    """Take a ticket apart."""
    plain = {name: value for name, value in vars(ticket).items() if name != "checked"}
    source = ticket.checked.mixer.source
    return Payload(
        plain,
        ticket.checked.experiment.model_dump(mode="python"),
        None if source is None else dict(vars(source)),
        plugins(ticket.checked),
    )


def ticket_of(payload: Payload) -> Ticket:
    """Put a ticket together from this process's plugins.

    Raises:
        PluginError: this machine lacks a plugin, or has another version of it.
    """
    verify_same(payload.plugins)

    def resolve_here(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
        if kind == "mixer" and payload.source is not None:
            return load_source(SourceFile(**payload.source))
        return resolve(kind, name, base=base)

    checked = check(Experiment.model_validate(payload.experiment), resolve=resolve_here)
    return Ticket(checked=checked, **payload.ticket)
