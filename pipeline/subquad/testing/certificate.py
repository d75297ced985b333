"""A certificate: every check of every subject of one mixer, and where all of it was seen; also as cases for pytest."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import torch

from subquad.errors import ConfigError
from subquad.plugin import MixerPlugin
from subquad.registry import Resolved, plugin_facts
from subquad.suggest import did_you_mean
from subquad.testing.check import Check, CheckOutcome, Finding, NotApplicable, Status, perform, run_check
from subquad.testing.checks import CHECKS
from subquad.testing.subject import CheckSubject, check_subjects, resolve_mixer
from subquad.testing.workers import CheckWorkers

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
    subjects: tuple[CheckSubject, ...]
    checks: tuple[Check, ...]
    outcomes: tuple[CheckOutcome, ...]
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
            found = self.of_check(check.name)
            yield check, [marks[found[str(subject)].status] for subject in self.subjects], self.seen(check.name)

    def of_check(self, name: str) -> dict[str, CheckOutcome]:
        """A check's outcomes by subject."""
        return {outcome.subject: outcome for outcome in self.outcomes if outcome.check == name}

    def seen(self, name: str) -> str:
        """What the outcome of a check saw that passed nearest to its limit; "" where none passed."""
        passed = [outcome for outcome in self.of_check(name).values() if outcome.status == "passed"]
        return max(passed, key=lambda outcome: outcome.figures.get("worst") or 0.0).detail if passed else ""

    def notes(self, status: Status) -> list[str]:
        """Outcomes with a status in words, those that say the same of the same subjects together."""
        ways: dict[tuple[str, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.status == status:
                ways.setdefault((outcome.check, outcome.detail), []).append(outcome.subject)
        names: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for (check, detail), subjects in ways.items():
            names.setdefault((tuple(subjects), detail), []).append(check)
        where = {one: "" if len(one) == len(self.subjects) else f" ({'; '.join(one)})" for one, _ in names}
        return [f"{', '.join(checks)}{where[subjects]}: {detail}" for (subjects, detail), checks in names.items()]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        plugin = self.resolved.plugin
        return {
            "plugin": plugin_facts(self.resolved),
            "summary": plugin.summary,
            "paper": plugin.paper,
            "subjects": [_plain(subject) for subject in self.subjects],
            "checks": {check.name: check.shows for check in self.checks},
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
            **{
                status.replace(" ", "_"): self.count(status)
                for status in ("passed", "excluded", "failed", "not proven")
            },
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
        }


def _plain(subject: CheckSubject) -> dict[str, Any]:
    own = {name: getattr(subject, name) for name in ("variant", "causal", "dim", "num_heads", "compiler", "device")}
    parameters = subject.config.model_dump(mode="json")
    return {"name": str(subject), **own, "parameters": parameters, "facts": asdict(subject.facts)}


def certify(
    resolved: Resolved,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    done: Callable[[CheckOutcome], None] = lambda outcome: None,
    workers: CheckWorkers | None = None,
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
        options: further attributes of the subjects: dim, num_heads, compiler, device.

    Raises:
        ConfigError: parameters or names of checks are wrong.
    """
    start = time.perf_counter()
    checks, reasons = chosen_checks(only, exclude), dict(exclude or {})
    ways = tuple(check_subjects(resolved, params, **options))
    found = None
    if workers and len(ways) >= WORTH_A_PROCESS:
        found = workers.check(resolved, params, ways, checks, reasons, options)
    if found is None:
        found = (run_check(check, subject, reasons) for subject in ways for check in checks)
    outcomes = tuple(_told(found, done))
    seconds = time.perf_counter() - start
    return Certificate(resolved=resolved, subjects=ways, checks=checks, outcomes=outcomes, seconds=seconds)


def _told(outcomes: Iterable[CheckOutcome], done: Callable[[CheckOutcome], None]) -> Iterator[CheckOutcome]:
    for outcome in outcomes:
        done(outcome)
        yield outcome


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


@dataclass(frozen=True)
class CheckCase:
    """One check of one way of building a mixer. Call it to run it.

    Attributes:
        check: the property.
        subject: the mixer with its parameters.
        exclude: reasons by check name.
    """

    check: Check
    subject: CheckSubject
    exclude: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        built = f"{self.subject.variant}+causal" if self.subject.causal else self.subject.variant
        return f"{self.subject.resolved.found.name}/{built}/{self.check.name}"

    def __call__(self) -> Finding:
        """Run the check; an excluded one is skipped with its reason.

        Raises:
            CheckFailed: the mixer lacks the property; the message says what was seen and what is allowed.
            NotProven: neither shown nor refuted.
        """
        try:
            return perform(self.check, self.subject, self.exclude)
        except NotApplicable as reason:
            import pytest  # only here: a certificate needs none

            pytest.skip(str(reason))


def check_mixer(
    target: str | type | MixerPlugin | Resolved,
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
        options: further attributes of `CheckSubject`: dim, num_heads, compiler.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
        ConfigError: parameters or names of checks are wrong.
    """
    checks, reasons = chosen_checks(only, exclude), dict(exclude or {})
    ways = check_subjects(resolve_mixer(target), params, **options)
    return [CheckCase(check, subject, reasons) for subject in ways for check in checks]
