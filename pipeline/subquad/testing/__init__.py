"""The certificate: checks that a token mixer keeps the contract and is what it claims to be.

For the tests of a package of mixers:

    import pytest
    from subquad.testing import check_mixer

    @pytest.mark.parametrize("case", check_mixer("my-mixer"), ids=str)
    def test_contract(case):
        case()
"""

from subquad.testing.cases import Check, CheckCase, CheckOutcome
from subquad.testing.certificate import Certificate, certify
from subquad.testing.meter import CheckFailed, Finding, NotApplicable, NotProven
from subquad.testing.subject import CheckSubject
from subquad.testing.suite import check_mixer

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
