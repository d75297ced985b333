"""A certificate: every check of every subject of one mixer, and where all of it was seen."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch

from subquad.registry import Resolved, plugin_facts
from subquad.testing.catalogue import chosen
from subquad.testing.check import Check, Outcome, Status
from subquad.testing.run import run_check
from subquad.testing.subject import Subject, subjects
from subquad.testing.workers import Way, Workers, origin_of

WORTH_A_PROCESS = 6
"""Ways from which on processes of their own pay: each takes as long to start and to import the compiler as two ways."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is known of one mixer.

    Attributes:
        resolved: the plugin.
        subjects: the ways it was built.
        checks: what was asked.
        outcomes: one for each subject and check.
        seconds: how long it took.
    """

    resolved: Resolved
    subjects: tuple[Subject, ...]
    checks: tuple[Check, ...]
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def name(self) -> str:
        return self.resolved.found.name

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
        counts = [f"{self.count(status)} {status}" for status in ("passed", "excluded", "failed")]
        unproven = [f"{self.count('not proven')} not proven"] if self.count("not proven") else []
        return f"{self.name}: {', '.join(counts + unproven)}"

    def of_check(self, name: str) -> dict[str, Outcome]:
        """A check's outcomes by subject."""
        return {outcome.subject: outcome for outcome in self.outcomes if outcome.check == name}

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        plugin = self.resolved.plugin
        return {
            "plugin": plugin_facts(self.resolved),
            "summary": plugin.summary,
            "paper": plugin.paper,
            "subjects": [_subject(subject) for subject in self.subjects],
            "checks": {check.name: check.shows for check in self.checks},
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
            "passed": self.count("passed"),
            "excluded": self.count("excluded"),
            "failed": self.count("failed"),
            "not_proven": self.count("not proven"),
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
        }


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "name": str(subject),
        "variant": subject.variant,
        "causal": subject.causal,
        "parameters": subject.config.model_dump(mode="json"),
        "facts": asdict(subject.facts),
        "dim": subject.dim,
        "num_heads": subject.num_heads,
        "compiler": subject.compiler,
    }


def environment() -> dict[str, str]:
    """What the checks ran on."""
    return {
        "subquad": version("subquad"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }


def certify(
    resolved: Resolved,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
    workers: Workers | None = None,
    **options: Any,
) -> Certificate:
    """Check a mixer in every way it can be built.

    Args:
        resolved: the plugin.
        params: its parameters; the defaults and all its variants where None.
        exclude: checks to leave out, with reasons.
        only: checks to make; all where None.
        done: told of each outcome.
        workers: check the ways side by side; in this process, one by one, where None.
        options: further attributes of the subjects: dim, num_heads, compiler.

    Raises:
        ConfigError: parameters or names of checks are wrong.
    """
    start = time.perf_counter()
    checks, ways, reasons = chosen(only, exclude), tuple(subjects(resolved, params, **options)), dict(exclude or {})
    if workers and len(ways) >= WORTH_A_PROCESS and (origin := origin_of(resolved)):
        names = tuple(check.name for check in checks)
        sent = [Way(origin, params, number, str(way), names, reasons, options) for number, way in enumerate(ways)]
        found = workers.outcomes(sent)
    else:
        found = (run_check(check, subject, reasons) for subject in ways for check in checks)
    return Certificate(
        resolved=resolved,
        subjects=ways,
        checks=checks,
        outcomes=tuple(_told(found, done)),
        seconds=time.perf_counter() - start,
    )


def _told(outcomes: Iterable[Outcome], done: Callable[[Outcome], None]) -> Iterator[Outcome]:
    for outcome in outcomes:
        done(outcome)
        yield outcome
