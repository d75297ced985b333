"""A certificate: every check of every way of building one mixer; as text, plain values, and
cases for pytest.
"""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, get_args

import torch

from subquad.errors import escaped
from subquad.output.markup import fill_template
from subquad.plugin import Role
from subquad.registry import Resolved, SourceFile, plugin_facts
from subquad_check.calls import MODES
from subquad_check.cases import Check, CheckOutcome, Status
from subquad_check.checks import CHECKS
from subquad_check.claims import Claims, claims_nothing, found_claims, refuse_unfit
from subquad_check.code import code_digest
from subquad_check.meter import ROUNDING
from subquad_check.subject import ROUNDING_SINGLE, CheckSubject, Target
from subquad_check.suite import check_mixer
from subquad_check.workers import CheckWorkers, Done, ignore_outcome, outcomes_of

_MARKUP = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "&lt;", "`": "'"})
_COUNTED: tuple[Status, ...] = ("passed", "excluded", "failed", "not proven")
_MARKS: dict[Status, str] = {
    "passed": "yes",
    "failed": "**no**",
    "excluded": "-",
    "not proven": "**?**",
}


_PLACES: dict[str, tuple[str, ...]] = {
    "mode": tuple(MODES),
    "format": ("float64", "float32", "bf16 autocast"),
    "role": get_args(Role),
}
"""Where a mixer may be called; a check notes where it did."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is known of one mixer.

    Attributes:
        subjects: the ways it was built.
        checks: what was asked.
        outcomes: one for each subject and check.
        seconds: how long it took.
        could_claim: what a module that claims nothing could claim; None for others.
    """

    subjects: tuple[CheckSubject, ...]
    checks: tuple[Check, ...]
    outcomes: tuple[CheckOutcome, ...]
    seconds: float
    could_claim: Claims | None = None

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
        """`agf: passed (46 passed, 3 excluded)`."""
        counts = {status: self.count(status) for status in _COUNTED}
        reached = [status for status in ("failed", "not proven") if counts[status]]
        words = [f"{count} {status}" for status, count in counts.items() if count]
        return f"{self.name}: {(*reached, 'passed')[0]} ({', '.join(words)})"

    def _repr_markdown_(self) -> str:
        return certificates_markdown([self])

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

    @property
    def unchecked(self) -> list[str]:
        """Where no check has looked, in words."""
        covered = defaultdict[str, set[Any]](set)
        for outcome in self.outcomes:
            for name, values in outcome.looked.items():
                covered[name].update(values)
        if not covered["length"]:
            return ["any call of the mixer"]
        first = self.subjects[0]
        words = [f"more than {max(covered['length']):,} tokens, but for growth"]
        if first.is_single_alone:
            words.insert(
                0, f"anything finer than float32: {ROUNDING_SINGLE:g} is allowed for {ROUNDING:g}"
            )
        for name, known in _PLACES.items():
            missing = [value for value in known if value not in covered[name]]
            if missing:
                words.append(f"{name} {' and '.join(missing)}")
        if covered["skipped"]:
            words.append("training where two lengths are compared, as it draws random numbers")
        words.append(f"sizes but width {first.dim} and {first.num_heads} heads")
        words.append("a GPU" if first.device == "cpu" else f"{first.device}, but for kernels")
        return words

    def table(self, marks: Mapping[Status, str]) -> Iterator[tuple[Check, list[str], str]]:
        """Each check that applies, a mark for its outcome with each subject, and what was seen
        nearest to the limit.
        """
        for check in self.checks:
            found = [outcome for outcome in self.outcomes if outcome.check == check.name]
            if all(outcome.status == "excluded" for outcome in found):
                continue
            nearest = max(
                [outcome for outcome in found if outcome.status == "passed"],
                key=lambda outcome: outcome.figures.get("worst") or 0.0,
                default=None,
            )
            shown = [marks[outcome.status] for outcome in found]
            yield check, shown, nearest.detail if nearest else ""

    def notes(self, status: Status) -> list[tuple[str, str]]:
        """Outcomes with a status in words, those that say the same of the same subjects together;
        and what repeats it.

        The second is "" for what passed, is excluded, or has to wait for something else.
        """
        alike = defaultdict[tuple[str, str], list[CheckOutcome]](list)
        for outcome in self.outcomes:
            if outcome.status == status:
                alike[outcome.check, outcome.detail].append(outcome)
        together = defaultdict[tuple[str, str], list[CheckOutcome]](list)
        for (_, detail), (first, *others) in alike.items():
            where = ""
            # one cause is told once, whichever ways it keeps from being tested
            waits = status == "not proven" and not first.again
            if not waits and 1 + len(others) < len(self.subjects):
                where = f" ({'; '.join(outcome.subject for outcome in (first, *others))})"
            together[where, detail].append(first)
        by_name = {str(subject): subject for subject in self.subjects}
        notes = []
        for (where, detail), outcomes in together.items():
            checks = [outcome.check for outcome in outcomes]
            again = outcomes[0].again and by_name[outcomes[0].subject].again(checks)
            notes.append((f"{', '.join(checks)}{where}: {detail}", again))
        return notes

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        resolved = self.subjects[0].resolved
        return {
            "plugin": plugin_facts(resolved),
            "code": code_digest(resolved),
            "summary": resolved.plugin.summary,
            "paper": resolved.plugin.paper,
            "subjects": [
                {
                    "name": str(subject),
                    **{name: getattr(subject, name) for name in _BUILT_WITH},
                    "parameters": subject.config.model_dump(mode="json"),
                    "facts": subject.claims,
                }
                for subject in self.subjects
            ],
            "checks": {check.name: check.shows for check in self.checks},
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
            **{status.replace(" ", "_"): self.count(status) for status in _COUNTED},
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
            "not_looked_at": self.unchecked,
            "could_claim": self.could_claim and asdict(self.could_claim),
        }


_BUILT_WITH = ("variant", "causal", "dim", "num_heads", "compiler", "device", "seed")


def certificates_markdown(certificates: Sequence[Certificate]) -> str:
    """One document, for a repository or a paper's appendix; a section for each mixer."""
    return fill_template(
        "subquad_check",
        "certificate.md.j2",
        _safe,
        certificates=certificates,
        here=Certificate.environment(),
        checks=CHECKS,
        marks=_MARKS,
        words=lambda values: ", ".join(f"{key} {value}" for key, value in values.items()),
    )


def _safe(text: object) -> str:
    """Text of others that can neither end a table's cell nor start markup."""
    return escaped(text, 2000).translate(_MARKUP)


def certify(
    target: Target,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    done: Done = ignore_outcome,
    workers: CheckWorkers | None = None,
    **options: Any,
) -> Certificate:
    """Check a mixer in every way it can be built; arguments and errors are those of `check_mixer`.

    Args:
        done: told of each outcome, in the process that found it.
        workers: check the ways side by side; in this process, one by one, where None.
    """
    start = time.perf_counter()
    arguments = {"params": params, "exclude": exclude, "only": list(only or ()), **options}
    cases = check_mixer(target, **arguments)
    first = cases[0].subject
    refuse_unfit(first)
    subjects = tuple(dict.fromkeys(case.subject for case in cases))
    origin = _sendable(first.resolved)
    if workers and origin and len(subjects) > 1:
        outcomes = list(workers.outcomes(cases, origin, arguments, done))
    else:
        outcomes = outcomes_of(cases, done)
    return Certificate(
        subjects=subjects,
        checks=tuple(dict.fromkeys(case.check for case in cases)),
        outcomes=tuple(outcomes),
        could_claim=found_claims(first) if claims_nothing(first) and not only else None,
        seconds=time.perf_counter() - start,
    )


def _sendable(resolved: Resolved) -> str | SourceFile | None:
    """What another process finds a plugin by; None for a class that was handed over."""
    if resolved.source:
        return resolved.source
    found = resolved.found
    return found.full_name if found.distribution else None
