"""Certificates as Markdown, for a repository or a paper's appendix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from subquad.registry import plugin_facts
from subquad.registry.foreign import plain
from subquad.testing.certificate import Certificate
from subquad.testing.check import Status
from subquad.testing.checks import CHECKS
from subquad.testing.subject import CheckSubject

MARKS: dict[Status, str] = {"passed": "yes", "failed": "**no**", "excluded": "-", "not proven": "**?**"}
LISTED: dict[Status, str] = {"failed": "Failed", "not proven": "Not proven", "excluded": "Excluded"}


def certificates_markdown(certificates: Sequence[Certificate]) -> str:
    """One document; a section for each mixer."""
    here = Certificate.environment()
    lines = [
        "# Certificate",
        "",
        f"subquad {here['subquad']}, torch {here['torch']}, Python {here['python']}, {here['machine']} CPU.",
        "yes: shown; no: refuted; ?: not proven; -: excluded, for the reason that is listed.",
        "",
    ]
    for certificate in certificates:
        lines += _section(certificate)
    return "\n".join(lines).rstrip() + "\n"


def _section(certificate: Certificate) -> Iterator[str]:
    yield from (f"## {_safe(certificate.name)}", "")
    yield from _origin(certificate)
    yield from _ways(certificate)
    yield from _checks(certificate)
    if (asked := len(certificate.checks)) < (whole := len(CHECKS)):
        yield from (f"Only {asked} of {whole} checks were asked for.", "")
    for status, title in LISTED.items():
        if found := certificate.notes(status):
            yield from (f"{title}:", "", *(f"- {_safe(note)}" for note in found), "")
    yield from (f"{_safe(certificate.verdict)}.", "")


def _origin(certificate: Certificate) -> Iterator[str]:
    plugin, origin = certificate.resolved.plugin, plugin_facts(certificate.resolved)
    if plugin.summary:
        yield from (_safe(plugin.summary), "")
    yield f"- distribution: {_safe(origin['distribution'])} {_safe(origin['version'])}"
    yield f"- sha256: {origin['sha256'] or 'not recorded'}"
    yield from (f"- paper: {_safe(plugin.paper)}", "") if plugin.paper else ("",)


def _ways(certificate: Certificate) -> Iterator[str]:
    yield from ("| | built as | parameters | claims |", "|---|---|---|---|")
    for number, subject in enumerate(certificate.subjects, 1):
        yield f"| {number} | {_safe(subject)} | {_parameters(subject)} | {_words(asdict(subject.facts))} |"
    yield ""


def _parameters(subject: CheckSubject) -> str:
    return _words(subject.config.model_dump(mode="json", exclude_defaults=True)) or "defaults"


def _checks(certificate: Certificate) -> Iterator[str]:
    count = len(certificate.subjects)
    yield f"| check | shows | {' | '.join(map(str, range(1, count + 1)))} | seen, nearest to the limit |"
    yield f"|---|---|{'---|' * count}---|"
    for check, marks, seen in certificate.table(MARKS):
        yield f"| {check.name} | {_safe(check.shows)} | {' | '.join(marks)} | {_safe(seen)} |"
    yield ""


def _words(values: Mapping[str, Any]) -> str:
    return _safe(", ".join(f"{key} {value}" for key, value in values.items()))


def _safe(text: object) -> str:
    """Foreign text that can neither end a table's cell nor start markup."""
    return plain(text, 2000).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
