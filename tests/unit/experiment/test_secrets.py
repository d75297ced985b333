"""Experiments are written to disk, so they take no secrets."""

import pytest
from pydantic import ValidationError

from subquad.experiment.schema import Tracking


@pytest.mark.parametrize(
    "uri", ["https://me:secret@host/x", "http://token@host", "postgresql://u:p@host/db"]
)
def test_an_address_with_a_password_is_refused(uri):
    with pytest.raises(ValidationError, match="must not hold a user name, password or token"):
        Tracking(uri=uri)


@pytest.mark.parametrize(
    "uri", ["https://host:5000/x", "sqlite:////data/a@b.db", "http://127.0.0.1:5000"]
)
def test_other_addresses_are_taken(uri):
    assert Tracking(uri=uri).uri == uri
