"""A certificate: every check of every way of building one mixer; as text, plain values, and cases for pytest."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch

from subquad.errors import ConfigError
from subquad.registry import Resolved, SourceFile, plugin_facts
from subquad.registry.foreign import plain
from subquad.suggest import did_you_mean
from subquad.testing.check import Check, CheckCase, CheckOutcome, Status
from subquad.testing.checks import CHECKS
from subquad.testing.subject import CheckSubject, Target, check_subjects
from subquad.testing.workers import CheckWorkers

_COUNTED: tuple[Status, ...] = ("passed", "excluded", "failed", "not proven")
_MARKS: dict[Status, str] = {"passed": "yes", "failed": "**no**", "excluded": "-", "not proven": "**?**"}


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is known of one mixer.

    Attributes:
        subjects: the ways it was built.
        checks: what was asked.
        outcomes: one for each subject and check.
        seconds: how long it took.
    """

    subjects: tuple[CheckSubject, ...]
    checks: tuple[Check, ...]
    outcomes: tuple[CheckOutcome, ...]
    seconds: float

    @property
    def name(self) -> str:
        return self.subjects[0].resolved.found.name

    def count(self, status: Status) -> int:
        """How many outcomes have a status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def holds(self) -> bool:
        """Whether nothing failed and nothing is left unproven."""
        return not self.count("failed") and not self.count("not proven")

    @property
    def verdict(self) -> str:
        """`agf: 46 passed, 3 excluded, 0 failed`."""
        counts = {status: self.count(status) for status in _COUNTED}
        said = [f"{count} {status}" for status, count in counts.items() if count or status != "not proven"]
        return f"{self.name}: {', '.join(said)}"

    @staticmethod
    def environment() -> dict[str, str]:
        """What checks run on."""
        return {
            "subquad": version("subquad"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
        }

    def table(self, marks: Mapping[Status, str]) -> Iterator[tuple[Check, list[str], str]]:
        """Each check, a mark for its outcome with each subject, and what was seen nearest to the limit."""
        for check in self.checks:
            found = [outcome for outcome in self.outcomes if outcome.check == check.name]
            passed = [outcome for outcome in found if outcome.status == "passed"]
            nearest = max(passed, key=lambda outcome: outcome.figures.get("worst") or 0.0, default=None)
            yield check, [marks[outcome.status] for outcome in found], nearest.detail if nearest else ""

    def notes(self, status: Status) -> list[tuple[str, str]]:
        """Outcomes with a status in words, those that say the same of the same subjects together; and what repeats it.

        The second is "" for what passed or is excluded.
        """
        ways: dict[tuple[str, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.status == status:
                ways.setdefault((outcome.check, outcome.detail), []).append(outcome.subject)
        names: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for (check, detail), subjects in ways.items():
            names.setdefault((tuple(subjects), detail), []).append(check)
        return [(self._note(*key, checks), self._again(status, key[0], checks)) for key, checks in names.items()]

    def _note(self, subjects: tuple[str, ...], detail: str, checks: list[str]) -> str:
        where = "" if len(subjects) == len(self.subjects) else f" ({'; '.join(subjects)})"
        return f"{', '.join(checks)}{where}: {detail}"

    def _again(self, status: Status, subjects: tuple[str, ...], checks: list[str]) -> str:
        first = next(one for one in self.subjects if str(one) == subjects[0])
        return first.again(checks) if status in ("failed", "not proven") else ""

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        resolved = self.subjects[0].resolved
        return {
            "plugin": plugin_facts(resolved),
            "summary": resolved.plugin.summary,
            "paper": resolved.plugin.paper,
            "subjects": [_plain(subject) for subject in self.subjects],
            "checks": {check.name: check.shows for check in self.checks},
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
            **{status.replace(" ", "_"): self.count(status) for status in _COUNTED},
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
        }


def _plain(subject: CheckSubject) -> dict[str, Any]:
    own = {
        name: getattr(subject, name) for name in ("variant", "causal", "dim", "num_heads", "compiler", "device", "seed")
    }
    parameters = subject.config.model_dump(mode="json")
    return {"name": str(subject), **own, "parameters": parameters, "facts": asdict(subject.facts)}


def certificates_markdown(certificates: Sequence[Certificate]) -> str:
    """One document, for a repository or a paper's appendix; a section for each mixer."""
    here = Certificate.environment()
    lines = [
        "# Certificate",
        "",
        f"subquad {here['subquad']}, torch {here['torch']}, Python {here['python']}, {here['machine']} CPU.",
        "yes: shown; no: refuted; ?: not proven; -: excluded, for the reason that is listed.",
        "",
        *(line for certificate in certificates for line in _section(certificate)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _section(certificate: Certificate) -> Iterator[str]:
    resolved, ways = certificate.subjects[0].resolved, list(map(str, range(1, len(certificate.subjects) + 1)))
    origin, plugin = plugin_facts(resolved), resolved.plugin
    yield from (f"## {_safe(certificate.name)}", "")
    if plugin.summary:
        yield from (_safe(plugin.summary), "")
    yield f"- distribution: {_safe(origin['distribution'])} {_safe(origin['version'])}"
    yield f"- sha256: {origin['sha256'] or 'not recorded'}"
    if plugin.paper:
        yield f"- paper: {_safe(plugin.paper)}"
    yield from ("", "| | built as | parameters | claims |", "|---|---|---|---|")
    for number, subject in zip(ways, certificate.subjects, strict=True):
        given = _words(subject.config.model_dump(mode="json", exclude_defaults=True)) or "defaults"
        yield f"| {number} | {_safe(subject)} | {given} | {_words(asdict(subject.facts))} |"
    yield from ("", f"| check | shows | {' | '.join(ways)} | seen, nearest to the limit |")
    yield f"|---|---|{'---|' * len(ways)}---|"
    for check, marks, seen in certificate.table(_MARKS):
        yield f"| {check.name} | {_safe(check.shows)} | {' | '.join(marks)} | {_safe(seen)} |"
    yield ""
    if (asked := len(certificate.checks)) < (whole := len(CHECKS)):
        yield from (f"Only {asked} of {whole} checks were asked for.", "")
    for status in ("failed", "not proven", "excluded"):
        if found := certificate.notes(status):
            notes = (f"- {_safe(note)}" + (f"; again: `{_safe(again)}`" if again else "") for note, again in found)
            yield from (f"{status.capitalize()}:", "", *notes, "")
    yield from (f"{_safe(certificate.verdict)}.", "")


def _words(values: Mapping[str, Any]) -> str:
    return _safe(", ".join(f"{key} {value}" for key, value in values.items()))


def _safe(text: object) -> str:
    """Foreign text that can neither end a table's cell nor start markup."""
    return plain(text, 2000).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def certify(
    target: Target,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    done: Callable[[CheckOutcome], None] = lambda outcome: None,
    workers: CheckWorkers | None = None,
    **options: Any,
) -> Certificate:
    """Check a mixer in every way it can be built; arguments and errors are those of `check_mixer`.

    Args:
        done: told of each outcome.
        workers: check the ways side by side; in this process, one by one, where None.
    """
    start, outcomes = time.perf_counter(), []
    asked = {"params": params, "exclude": exclude, "only": list(only or ()), **options}
    cases = check_mixer(target, **asked)
    subjects, checks = dict.fromkeys(case.subject for case in cases), dict.fromkeys(case.check for case in cases)
    origin = _sendable(cases[0].subject.resolved)
    if workers and origin and len(subjects) > 1:
        found = workers.outcomes(cases, origin, asked)
    else:
        found = (case.outcome() for case in cases)
    for outcome in found:
        done(outcome)
        outcomes.append(outcome)
    return Certificate(
        subjects=tuple(subjects),
        checks=tuple(checks),
        outcomes=tuple(outcomes),
        seconds=time.perf_counter() - start,
    )


def _sendable(resolved: Resolved) -> str | SourceFile | None:
    """What another process finds a plugin by; None for a class that was handed over."""
    return resolved.source or (resolved.found.full_name if resolved.found.distribution else None)


def chosen_checks(only: Iterable[str] | None = None, exclude: Mapping[str, str] | None = None) -> tuple[Check, ...]:
    """The checks that `only` names, all where it names none.

    Raises:
        ConfigError: a name in `only` or `exclude` is no check, or an exclusion has no reason.
    """
    wanted, names = list(only or ()), [check.name for check in CHECKS]
    for name in (*wanted, *(exclude or {})):
        if name not in names:
            raise ConfigError(f"no check {name!r}{did_you_mean(name, names)}; checks: {', '.join(names)}")
    for name, reason in (exclude or {}).items():
        if not reason.strip():
            raise ConfigError(f"exclude {name}: give a reason, as in {name}='why it does not apply'")
    return tuple(check for check in CHECKS if not wanted or check.name in wanted)


def check_mixer(
    target: Target,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    **options: Any,
) -> list[CheckCase]:
    """The certificate of a mixer as cases, one for each check and each way of building it.

        import pytest
        from subquad.testing import check_mixer

        @pytest.mark.parametrize("case", check_mixer("my-mixer", {"order": 4}), ids=str)
        def test_contract(case):
            case()

    Args:
        target: a plugin's name, `./file.py:Class`, or a `TokenMixer` or `AttentionCore` class with `Config` and
            `facts`.
        params: its parameters; the defaults and all its variants where None.
        exclude: checks that are skipped, by name, each with the reason.
        only: checks to make; all where None.
        options: further attributes of `CheckSubject`: dim, num_heads, compiler, device, seed.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
        ConfigError: parameters or names of checks are wrong.
    """
    checks, reasons = chosen_checks(only, exclude), dict(exclude or {})
    return [
        CheckCase(check, subject, reasons) for subject in check_subjects(target, params, **options) for check in checks
    ]
