"""Packages in versions that subquad does not ask for."""

from importlib.metadata import PackageNotFoundError

import pytest

from subquad.registry import health


@pytest.mark.parametrize(
    ("installed", "is_wrong"),
    [
        ("2.10.9", True),
        ("2.11.0", False),
        ("2.11", False),
        ("2.13.0+cpu", False),
        ("2.11.0rc1", True),
        ("10.0", False),
    ],
)
def test_a_package_below_its_floor_is_named(monkeypatch, installed, is_wrong):
    requirements = [
        "torch>=2.11",
        "ray[tune]>=2.59; extra == 'tune'",
        "torch>=2.11; extra == 'all'",
    ]

    def version(name):
        if name == "torch":
            return installed
        raise PackageNotFoundError(name)

    monkeypatch.setattr(health, "requires", lambda name: requirements)
    monkeypatch.setattr(health, "version", version)
    faults = [f"torch {installed} is installed, and subquad asks for >=2.11"]
    assert health.wrong_versions() == (faults if is_wrong else [])


def test_this_environment_has_what_is_asked_for():
    assert health.wrong_versions() == []
