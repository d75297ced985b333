"""Certificates as Markdown, for a repository or a paper's appendix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from subquad.registry import plugin_facts
from subquad.registry.text import plain
from subquad.testing.certificate import Certificate, environment
from subquad.testing.check import Outcome

MARKS = {"passed": "yes", "failed": "**no**", "excluded": "-", "not proven": "**?**"}


def to_markdown(certificates: Sequence[Certificate]) -> str:
    """One document; a section for each mixer."""
    here = environment()
    lines = ["# Certificate", ""]
    lines += [f"subquad {here['subquad']}, torch {here['torch']}, Python {here['python']}, {here['machine']} CPU.", ""]
    lines += ["yes: shown; no: refuted; ?: not proven; -: does not apply, the reason is listed.", ""]
    for certificate in certificates:
        lines += _section(certificate)
    return "\n".join(lines).rstrip() + "\n"


def _section(certificate: Certificate) -> Iterator[str]:
    origin = plugin_facts(certificate.resolved)
    yield from (f"## {_safe(certificate.name)}", "", _safe(certificate.resolved.plugin.summary), "")
    yield from _pairs(
        {
            "distribution": f"{origin['distribution']} {origin['version']}",
            "sha256": origin["sha256"] or "not recorded",
            "paper": certificate.resolved.plugin.paper or "none",
        }
    )
    yield from _ways(certificate)
    yield from _checks(certificate)
    for title, status in (("Failed", "failed"), ("Not proven", "not proven"), ("Excluded", "excluded")):
        yield from _details(certificate, title, status)
    yield from (certificate.closing_line.partition(" in ")[0] + ".", "")


def _pairs(rows: dict[str, str]) -> Iterator[str]:
    yield from (f"- {name}: {_safe(value)}" for name, value in rows.items())
    yield ""


def _ways(certificate: Certificate) -> Iterator[str]:
    yield from ("| | built as | parameters | claims |", "|---|---|---|---|")
    for number, subject in enumerate(certificate.subjects, 1):
        defaults = type(subject.config)().model_dump(mode="json") if subject.variant == "default" else None
        parameters = (
            "defaults"
            if defaults is not None
            else _words(subject.config.model_dump(mode="json", exclude_defaults=True))
        )
        yield f"| {number} | {_safe(str(subject))} | {parameters} | {_words(asdict(subject.facts))} |"
    yield ""


def _checks(certificate: Certificate) -> Iterator[str]:
    count = len(certificate.subjects)
    yield f"| check | shows | {' | '.join(map(str, range(1, count + 1)))} | seen |"
    yield f"|---|---|{'---|' * count}---|"
    for check in certificate.checks:
        found = certificate.of_check(check.name)
        cells = " | ".join(MARKS[found[str(subject)].status] for subject in certificate.subjects)
        yield f"| {check.name} | {_safe(check.shows)} | {cells} | {_safe(worst(list(found.values())))} |"
    yield ""


def worst(outcomes: Sequence[Outcome]) -> str:
    """What the one of several passed outcomes saw that came nearest to its limit."""
    passed = [outcome for outcome in outcomes if outcome.status == "passed"]
    return max(passed, key=lambda outcome: outcome.figures.get("worst") or 0.0).detail if passed else ""


def grouped(certificate: Certificate, status: str) -> dict[tuple[str, str], list[str]]:
    """Subjects by check and detail, for the outcomes with a status."""
    found: dict[tuple[str, str], list[str]] = {}
    for outcome in certificate.outcomes:
        if outcome.status == status:
            found.setdefault((outcome.check, outcome.detail), []).append(outcome.subject)
    return found


def _details(certificate: Certificate, title: str, status: str) -> Iterator[str]:
    rows = grouped(certificate, status)
    if not rows:
        return
    yield from (f"{title}:", "")
    for (check, detail), ways in rows.items():
        where = "" if len(ways) == len(certificate.subjects) else f" ({'; '.join(ways)})"
        yield f"- {check}{_safe(where)}: {_safe(detail)}"
    yield ""


def _words(values: dict) -> str:
    return _safe(", ".join(f"{key} {value}" for key, value in values.items()) or "none")


def _safe(text: object) -> str:
    """Foreign text that cannot end a table's cell or start markup."""
    return plain(text, 2000).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
