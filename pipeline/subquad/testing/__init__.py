"""The certificate: checks that a token mixer keeps the contract and is what it claims to be.

@pytest.mark.parametrize("case", subquad.testing.check_mixer("my-mixer"), ids=str)
def test_contract(case):
    case()
"""
