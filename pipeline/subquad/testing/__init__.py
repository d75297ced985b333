"""The certificate: checks that a token mixer keeps the contract and is what it claims to be.

For the tests of a package of mixers:

    import pytest
    from subquad.testing import check_mixer

    @pytest.mark.parametrize("case", check_mixer("my-mixer"), ids=str)
    def test_contract(case):
        case()
"""

from subquad.testing.cases import Case, check_mixer
from subquad.testing.certificate import Certificate, certify
from subquad.testing.check import Check, CheckFailed, Finding, NotApplicable, NotProven, Outcome
from subquad.testing.subject import Subject

__all__ = [
    "Case",
    "Certificate",
    "Check",
    "CheckFailed",
    "Finding",
    "NotApplicable",
    "NotProven",
    "Outcome",
    "Subject",
    "certify",
    "check_mixer",
]
