"""What `subquad check` prints: a certificate as a table, or one JSON document of all of them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.errors import UserError, escaped
from subquad.output.terminal import print_line, print_table, print_text
from subquad.suggest import to_paste

if TYPE_CHECKING:
    from subquad_check import Certificate, CheckOutcome
    from subquad_check.cases import Status


MARKS: dict[Status, str] = {"passed": "ok", "failed": "FAIL", "excluded": "-", "not proven": "?"}


class CertificateDocument:
    """The JSON document on stdout: a line for each mixer as soon as it is known, and an end
    wherever it is stopped.

    Args:
        settings: what was asked of each mixer.
        resume: a file with an earlier document of the same settings, perhaps cut; its mixers are
            taken over.
    """

    def __init__(self, settings: Mapping[str, Any], resume: str | None):
        from subquad_check import Certificate

        head = json.dumps({"environment": Certificate.environment(), "asked": settings})
        self.head = f'{head.removesuffix("}")}, "mixers": ['
        self.earlier = self._read(resume) if resume else {}
        self.broken: dict[str, str] = {}
        self.holds = True
        self._separator = "\n"

    def __enter__(self) -> None:
        click.echo(self.head, nl=False)

    def add(self, mixer: Mapping[str, Any]) -> None:
        """Print a mixer."""
        self.holds &= mixer["holds"]
        click.echo(self._separator + json.dumps(mixer, default=str), nl=False)
        self._separator = ",\n"
        sys.stdout.flush()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        click.echo(
            f'\n], "broken": {json.dumps(self.broken)}, "complete": {json.dumps(kind is None)}}}'
        )

    def has(self, name: str) -> bool:
        """Print a mixer if the earlier document has it, of the same plugin and the same code."""
        from subquad.registry import plugin_facts, resolve
        from subquad_check.code import code_digest

        if not self.earlier:
            return False
        try:
            resolved = resolve("mixer", name)
            facts = plugin_facts(resolved)
        except UserError:  # it is told where the mixer is checked
            return False
        mixer = self.earlier.get((facts["distribution"], facts["name"]))
        if not mixer or (mixer["plugin"], mixer["code"]) != (facts, code_digest(resolved)):
            return False
        self.add(mixer)
        return True

    def _read(self, file: str) -> dict[tuple[str, str], dict[str, Any]]:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "is no text")
            raise UserError(f"--resume {file}: {why}") from error
        if lines[:1] != [self.head]:
            raise UserError(
                f"--resume {file}: not printed by `check --all --json` with these "
                "options and versions"
            )
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for line in lines[1:]:
            # the last one may be cut
            with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                mixer = json.loads(line.rstrip(","))
                found[mixer["plugin"]["distribution"], mixer["plugin"]["name"]] = mixer
        return found


def show_certificate(
    certificate: Certificate,
    document: CertificateDocument | None,
    markdown: str | None,
    verbose: bool,
    debug: bool,
) -> None:
    """Print a certificate where it belongs, and with `debug` the tracebacks of its failures."""
    if document:
        document.add(certificate.as_dict())
    elif markdown != "-":
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo("\x1b[2K", nl=False, err=True)
        _print_filled(
            "verdict.txt.j2",
            certificate=certificate,
            notes=_notes(certificate, "failed", "not proven"),
            command=to_paste("new", "mixer", "NAME", "--from", certificate.name),
        )
        if verbose:
            ways = {str(number): subject for number, subject in enumerate(certificate.subjects, 1)}
            for number, subject in ways.items():
                print_line(f"{number}  {certificate.name}, {subject}")
            print_table(
                ("check", *ways, "seen, nearest to the limit"),
                [(check.name, *marks, seen) for check, marks, seen in certificate.table(MARKS)],
            )
            notes = _notes(certificate, "excluded", "not proven", "failed")
            _print_filled("notes.txt.j2", notes=notes)
        print_line()
        sys.stdout.flush()
    for outcome in certificate.outcomes:
        if debug and outcome.traceback:
            print_text(
                f"{certificate.name}, {outcome.subject}, {outcome.check}\n{outcome.traceback}\n",
                err=True,
            )


def show_progress(name: str, outcome: CheckOutcome) -> None:
    """Write a line of a check that has ended to stderr; one that the next replaces where that is a
    terminal.
    """
    if sys.stderr is None or outcome.status == "excluded":
        return
    mark = MARKS[outcome.status]
    line = f"{name}: {outcome.subject}: {outcome.check}: {mark} {outcome.seconds:.1f} s"
    if sys.stderr.isatty():
        # the line is emptied, and written to from its start
        click.echo(f"\x1b[2K{escaped(line, 79)}\r", nl=False, err=True)
    else:
        print_line(line, err=True)


def _print_filled(template: str, **values: Any) -> None:
    from subquad.output.markup import fill_template, one_line

    print_text(fill_template("subquad_check", template, one_line, **values))


def _notes(certificate: Certificate, *statuses: Status) -> list[tuple[str, str]]:
    """What is said of outcomes, and what repeats them."""
    return [
        (f"{status}: {note}", again)
        for status in statuses
        for note, again in certificate.notes(status)
    ]


def print_end(certificates: Sequence[Certificate], broken: Mapping[str, str]) -> None:
    """How many mixers hold."""
    _print_filled("end.txt.j2", certificates=certificates, broken=broken)
