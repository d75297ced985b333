"""The certificate: checks that a token mixer keeps the contract and is what it claims to be.

For the tests of a package of mixers:

    import pytest
    from subquad.testing import check_mixer

    @pytest.mark.parametrize("case", check_mixer("my-mixer"), ids=str)
    def test_contract(case):
        case()
"""

from subquad.testing.certificate import Certificate, certify, check_mixer
from subquad.testing.check import Check, CheckCase, CheckFailed, CheckOutcome, Finding, NotApplicable, NotProven
from subquad.testing.subject import CheckSubject

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
