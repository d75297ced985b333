"""The certificate: checks that a token mixer keeps the contract and is what it claims to be.

For the tests of a package of mixers:

    import pytest
    from subquad_check import check_mixer

    @pytest.mark.parametrize("case", check_mixer("my-mixer"), ids=str)
    def test_contract(case):
        case()

Names are imported when they are used, as the help of `subquad check` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subquad_check.cases import Check, CheckCase, CheckOutcome
    from subquad_check.certificate import Certificate, certify
    from subquad_check.meter import CheckFailed, Finding, NotApplicable, NotProven
    from subquad_check.subject import CheckSubject
    from subquad_check.suite import check_mixer

__all__ = [
    "Certificate",
    "Check",
    "CheckCase",
    "CheckFailed",
    "CheckOutcome",
    "CheckSubject",
    "Finding",
    "NotApplicable",
    "NotProven",
    "certify",
    "check_mixer",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("meter", "subject", "cases", "suite", "certificate"):
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
