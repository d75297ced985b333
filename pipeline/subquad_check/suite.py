"""All checks of a mixer, in every way it can be built, as cases that are still to be run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from subquad.errors import ConfigError
from subquad.suggest import did_you_mean
from subquad_check.cases import SECONDS, Check, CheckCase
from subquad_check.checks import CHECKS
from subquad_check.subject import Target, check_subjects


def chosen_checks(
    only: Iterable[str] | None = None, exclude: Mapping[str, str] | None = None
) -> tuple[Check, ...]:
    """The checks that `only` names, all where it names none.

    Raises:
        ConfigError: a name in `only` or `exclude` is no check, or an exclusion has no reason.
    """
    names = [check.name for check in CHECKS]
    wanted = list(only or ())
    reasons = exclude or {}
    for name in (*wanted, *reasons):
        if name not in names:
            raise ConfigError(
                f"no check {name!r}{did_you_mean(name, names)}; checks: {', '.join(names)}"
            )
    for name, reason in reasons.items():
        if not reason.strip():
            raise ConfigError(
                f"exclude {name}: give a reason, as in {name}='why it does not apply'"
            )
    return tuple(check for check in CHECKS if check.name in (wanted or names))


def check_mixer(
    target: Target,
    params: Mapping[str, Any] | None = None,
    *,
    exclude: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    seconds: float = SECONDS,
    **options: Any,
) -> list[CheckCase]:
    """The certificate of a mixer as cases, one for each check and each way of building it.

        import pytest
        from subquad_check import check_mixer

        @pytest.mark.parametrize("case", check_mixer("my-mixer", {"order": 4}), ids=str)
        def test_contract(case):
            case()

    Args:
        target: a plugin's name, `./file.py:Class`, or a `TokenMixer` or `AttentionCore` class with
            `Config` and `facts`.
        params: its parameters; the defaults and all its variants where None.
        exclude: checks that are skipped, by name, each with the reason.
        only: checks to make; all where None.
        seconds: of CPU time for each check, which is not tested where it takes more.
        options: further attributes of `CheckSubject`: dim, num_heads, compiler, device, seed.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
        ConfigError: parameters or names of checks are wrong.
    """
    checks = chosen_checks(only, exclude)
    return [
        CheckCase(check, subject, dict(exclude or {}), seconds)
        for subject in check_subjects(target, params, **options)
        for check in checks
    ]
