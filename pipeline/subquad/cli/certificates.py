"""What `subquad check` prints: a certificate as a table, or one JSON document of all of them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.errors import UserError
from subquad.suggest import to_paste
from subquad.terminal import print_line, print_table, print_text

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
        environment = Certificate.environment()
        head = json.dumps({"environment": environment, "asked": requested})
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
        names = {known for _, known in self.earlier}
        if short not in names:
            return False
        try:
            resolved = resolve("mixer", name)
            facts = plugin_facts(resolved)
            key = (facts["distribution"], facts["name"])
            mixer = self.earlier.get(key)
            if mixer is None or mixer["plugin"] != facts:
                return False
            digest = code_digest(resolved)
            if mixer["code"] != digest:
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
        first = lines[:1]
        if first != [self.head]:
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
                key = (plugin["distribution"], plugin["name"])
                found[key] = mixer
        return found


def show_certificate(
    certificate: Certificate,
    document: CertificateDocument | None,
    markdown: str | None,
    debug: bool,
) -> None:
    """Print a certificate where it belongs, and with `debug` the tracebacks of its failures."""
    if document:
        document.add(certificate.as_dict())
    elif markdown != "-":
        _print(certificate)
    if not debug:
        return
    for outcome in certificate.outcomes:
        if outcome.traceback:
            where = f"{certificate.name}, {outcome.subject}, {outcome.check}"
            text = f"{where}\n{outcome.traceback}\n"
            print_text(text, err=True)


def show_progress(name: str, outcome: CheckOutcome) -> None:
    """Write a line of a check that has ended, where a terminal shows it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    check = f"{name}: {outcome.subject}: {outcome.check}"
    mark = MARKS[outcome.status]
    seconds = f"{outcome.seconds:.1f} s"
    print_line(f"{check}: {mark} {seconds}", err=True)


def _print(certificate: Certificate) -> None:
    ways: list[str] = []
    for number, subject in enumerate(certificate.subjects, 1):
        print_line(f"{number}  {certificate.name}, {subject}")
        ways.append(str(number))
    rows: list[tuple[str, ...]] = []
    for check, marks, measured in certificate.table(MARKS):
        row = (check.name, *marks, measured)
        rows.append(row)
    columns = ("check", *ways, "seen, nearest to the limit")
    print_table(columns, rows)
    for status in ("excluded", "not proven", "failed"):
        for note, again in certificate.notes(status):
            print_line(f"{status}: {note}")
            if again:
                print_line(f"    again: {again}")
    unchecked = "; ".join(certificate.unchecked)
    print_line(f"not looked at: {unchecked}")
    seconds = f"{certificate.seconds:.1f} s"
    print_line(f"{certificate.verdict} in {seconds}")
    if certificate.could_claim:
        _print_claims(certificate.name, certificate.could_claim)
    print_line()
    sys.stdout.flush()


def _print_claims(name: str, claims: Claims) -> None:
    print_line(f"{name} claims nothing yet. Claims you could make, in its class:")
    print_line(f"    {claims.code}  # from subquad.plugin import Facts")
    package = to_paste("new", "mixer", "NAME", "--from", name)
    print_line(f"or as a package: {package}")
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
    certified = whole - len(failing)
    line = f"{certified} of {whole} mixers certified in {seconds:.0f} s"
    if failing:
        names = ", ".join(failing)
        line += f"; not certified: {names}"
    print_line(line)
