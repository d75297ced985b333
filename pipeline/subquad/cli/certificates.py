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
    from subquad.testing import Certificate, CheckOutcome
    from subquad.testing.cases import Status
    from subquad.testing.claims import Claims

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
        from subquad.testing import Certificate

        requested = {**settings, "only": list(settings["only"])}
        head = json.dumps({"environment": Certificate.environment(), "asked": requested})
        begun = head.removesuffix("}")
        self.head = f'{begun}, "mixers": ['
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
        is_complete = kind is None
        click.echo(
            f'\n], "broken": {json.dumps(self.broken)}, "complete": {json.dumps(is_complete)}}}'
        )

    def has(self, name: str) -> bool:
        """Print a mixer if the earlier document has it, of the same plugin and the same code."""
        from subquad.registry import plugin_facts, resolve
        from subquad.testing.code import code_digest

        _, _, short = name.rpartition(":")
        if short not in {known for _, known in self.earlier}:
            return False
        try:
            resolved = resolve("mixer", name)
            facts = plugin_facts(resolved)
            mixer = self.earlier.get((facts["distribution"], facts["name"]))
            if mixer is None or mixer["plugin"] != facts:
                return False
            if mixer["code"] != code_digest(resolved):
                return False
        except UserError:  # it is told where the mixer is checked
            return False
        self.add(mixer)
        return True

    def _read(self, file: str) -> dict[tuple[str, str], dict[str, Any]]:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            why = error.strerror or "is no text"
            raise UserError(f"--resume {file}: {why}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"--resume {file}: is no text") from error
        lines = text.splitlines()
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
                plugin = mixer["plugin"]
                found[(plugin["distribution"], plugin["name"])] = mixer
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
        _print_verdict(certificate)
        if verbose:
            _print_table(certificate)
        print_line()
        sys.stdout.flush()
    if not debug:
        return
    for outcome in certificate.outcomes:
        if outcome.traceback:
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
    line = f"{name}: {outcome.subject}: {outcome.check}: {MARKS[outcome.status]} "
    line += f"{outcome.seconds:.1f} s"
    if sys.stderr.isatty():
        # the line is emptied, and written to from its start
        click.echo(f"\x1b[2K{escaped(line, 79)}\r", nl=False, err=True)
    else:
        print_line(line, err=True)


MOST = 3
"""Failures that the verdict tells, of each kind."""


def _print_verdict(certificate: Certificate) -> None:
    """In twelve lines at most: whether it has passed, what failed, what could be claimed, and what
    nobody has looked at.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("\x1b[2K", nl=False, err=True)
    print_line(f"{certificate.verdict} in {certificate.seconds:.1f} s")
    notes = []
    for status in ("failed", "not proven"):
        notes += [(f"{status}: {note}", again) for note, again in certificate.notes(status)]
    for note, _ in notes[:MOST]:
        print_line(note)
    if notes[MOST:]:
        print_line(f"and {len(notes) - MOST} more")
    for _, again in notes[:1]:
        if again:
            print_line(f"    again: {again}")
    if certificate.could_claim:
        _print_claims(certificate.name, certificate.could_claim)
    unchecked = "; ".join(certificate.unchecked)
    print_line(f"not looked at: {unchecked}; -v shows each check")


def _print_table(certificate: Certificate) -> None:
    """Each check that applies, why others do not, and all that failed with what repeats it."""
    ways: list[str] = []
    for number, subject in enumerate(certificate.subjects, 1):
        print_line(f"{number}  {certificate.name}, {subject}")
        ways.append(str(number))
    rows = [(check.name, *marks, measured) for check, marks, measured in certificate.table(MARKS)]
    print_table(("check", *ways, "seen, nearest to the limit"), rows)
    for status in ("excluded", "not proven", "failed"):
        for note, again in certificate.notes(status):
            print_line(f"{status}: {note}")
            if again:
                print_line(f"    again: {again}")


def _print_claims(name: str, claims: Claims) -> None:
    print_line(f"could be claimed: {claims.code}")
    package = to_paste("new", "mixer", "NAME", "--from", name)
    print_line(f"    in its class (from subquad.plugin import Facts), or as a package: {package}")
    for fact, reason in claims.reasons.items():
        print_line(f"not {fact}: {reason}")


def print_end(certificates: Sequence[Certificate], broken: Mapping[str, str]) -> None:
    """How many mixers hold."""
    for name, problem in broken.items():
        print_line(f"{name}: {problem}")
    whole = len(certificates) + len(broken)
    if whole < 2:
        return
    seconds = 0.0
    failing: list[str] = []
    for certificate in certificates:
        seconds += certificate.seconds
        if not certificate.holds:
            failing.append(certificate.name)
    failing += broken
    line = f"{whole - len(failing)} of {whole} mixers certified in {seconds:.0f} s"
    if failing:
        names = ", ".join(failing)
        line += f"; not certified: {names}"
    print_line(line)
