"""Names that a reader would take for one."""

from __future__ import annotations

import pytest

from subquad_datasets.class_names import first_alike


@pytest.mark.parametrize(
    ("names", "alike"),
    [
        (["1", "2", "01"], ("1", "01")),
        (["1.0", "1"], ("1.0", "1")),
        (["+3", "3.00"], ("+3", "3.00")),
        (["0", "-0"], ("0", "-0")),
        (["Walk", "run", "walk"], ("Walk", "walk")),
        (["true", "True"], ("true", "True")),
        (["caf\u00e9", "cafe\u0301"], ("caf\u00e9", "cafe\u0301")),
        (["1", "-1", "10", "100", "0.1", "1e1"], None),
        (["walk", "walks", "x1", "x01"], None),
        ([], None),
    ],
)
def test_names_that_look_alike(names: list[str], alike: tuple[str, str] | None):
    assert first_alike(names) == alike


def test_names_of_series_may_differ_in_case():
    assert first_alike(["aB", "ab"], numbers_only=True) is None
    assert first_alike(["7", "007"], numbers_only=True) == ("7", "007")
