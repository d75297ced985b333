"""The certificate as test cases for pytest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from subquad.plugin import MixerPlugin
from subquad.registry import Resolved
from subquad.testing.certificate import chosen_checks
from subquad.testing.check import Check, Finding, NotApplicable, perform
from subquad.testing.subject import CheckSubject, check_subjects, resolve_mixer


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
