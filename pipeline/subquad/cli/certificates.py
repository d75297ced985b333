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
        self.head = json.dumps({"environment": Certificate.environment(), "asked": requested})
        self.earlier = self._read(resume) if resume else {}
        self.broken: dict[str, str] = {}
        self.holds, self._separator = True, "\n"

    def __enter__(self) -> None:
        click.echo(f'{self.head[:-1]}, "mixers": [', nl=False)

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
        from subquad.testing.code import code_digest

        if name.rpartition(":")[2] not in {known for _, known in self.earlier}:
            return False
        with contextlib.suppress(UserError):  # it is told where the mixer is checked
            resolved = resolve("mixer", name)
            facts = plugin_facts(resolved)
            mixer = self.earlier.get((facts["distribution"], facts["name"]))
            if mixer and (mixer["plugin"], mixer["code"]) == (facts, code_digest(resolved)):
                self.add(mixer)
                return True
        return False

    def _read(self, file: str) -> dict[tuple[str, str], dict[str, Any]]:
        try:
            head, *lines = Path(file).read_text(encoding="utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"--resume {file}: {getattr(error, 'strerror', None) or 'is no text'}"
            ) from error
        if head != f'{self.head[:-1]}, "mixers": [':
            raise UserError(
                f"--resume {file}: not printed by `check --all --json` with these "
                "options and versions"
            )
        found = {}
        for line in lines:
            # the last one may be cut
            with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                mixer = json.loads(line.rstrip(","))
                found[mixer["plugin"]["distribution"], mixer["plugin"]["name"]] = mixer
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
    for outcome in certificate.outcomes if debug else ():
        if outcome.traceback:
            print_text(
                f"{certificate.name}, {outcome.subject}, {outcome.check}\n{outcome.traceback}\n",
                err=True,
            )


def show_progress(name: str, outcome: CheckOutcome) -> None:
    """Write a line of a check that has ended, where a terminal shows it."""
    if sys.stderr is not None and sys.stderr.isatty():
        ended = f"{MARKS[outcome.status]} {outcome.seconds:.1f} s"
        print_line(f"{name}: {outcome.subject}: {outcome.check}: {ended}", err=True)


def _print(certificate: Certificate) -> None:
    for number, subject in enumerate(certificate.subjects, 1):
        print_line(f"{number}  {certificate.name}, {subject}")
    ways = map(str, range(1, len(certificate.subjects) + 1))
    rows = [(check.name, *marks, measured) for check, marks, measured in certificate.table(MARKS)]
    print_table(("check", *ways, "seen, nearest to the limit"), rows)
    for status in ("excluded", "not proven", "failed"):
        for note, again in certificate.notes(status):
            print_line(f"{status}: {note}")
            if again:
                print_line(f"    again: {again}")
    print_line(f"not looked at: {'; '.join(certificate.unchecked)}")
    print_line(f"{certificate.verdict} in {certificate.seconds:.1f} s")
    if claims := certificate.could_claim:
        print_line(f"{certificate.name} claims nothing yet. Claims you could make, in its class:")
        print_line(f"    {claims.code}  # from subquad.plugin import Facts")
        package = to_paste("new", "mixer", "NAME", "--from", certificate.name)
        print_line(f"or as a package: {package}")
        for fact, reason in claims.reasons.items():
            print_line(f"not {fact}: {reason}")
    print_line()
    sys.stdout.flush()


def print_end(certificates: Sequence[Certificate], broken: Mapping[str, str]) -> None:
    """How many mixers hold."""
    for name, problem in broken.items():
        print_line(f"{name}: {problem}")
    if (whole := len(certificates) + len(broken)) > 1:
        failing = [done.name for done in certificates if not done.holds] + list(broken)
        seconds = sum(done.seconds for done in certificates)
        words = f"; not certified: {', '.join(failing)}" if failing else ""
        print_line(f"{whole - len(failing)} of {whole} mixers certified in {seconds:.0f} s{words}")
