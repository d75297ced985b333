"""Floors of known security faults."""

import pytest

from subquad.registry import health as versions


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.13.0+cpu", (2, 13)),
        ("2.11.0rc1", (2, 11)),
        ("13", (13,)),
        ("1!2.3", (2, 3)),
        ("", ()),
        ("10.0.1", (10, 0, 1)),
    ],
)
def test_release_numbers(text, numbers):
    assert versions._release(text) == numbers


@pytest.mark.parametrize(
    ("running", "ok"),
    [((3, 11, 13), False), ((3, 11, 14), True), ((3, 12, 11), False), ((3, 13, 13), True), ((3, 15, 0), True)],
)
def test_python_is_measured_against_its_own_series(running, ok):
    assert versions._check_python(running).ok is ok


@pytest.mark.parametrize(("installed", "ok"), [("2.10.9", False), ("2.11.0", True), ("2.11", True), ("10.0", True)])
def test_a_package_below_its_floor_is_reported(monkeypatch, installed, ok):
    monkeypatch.setattr(versions, "FAULTS", {"torch": "why"})
    monkeypatch.setattr(versions, "requires", lambda name: ["click>=8.2", "torch>=2.11", "ray[tune]>=2 ; extra == 'a'"])
    monkeypatch.setattr(versions, "version", lambda name: installed)
    (_, check) = versions.check_versions()
    assert (check.package, check.installed, check.floor, check.ok) == ("torch", installed, "2.11", ok)


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(versions, "FAULTS", {"no-such-package": "why"})
    assert [check.package for check in versions.check_versions()] == ["python"]


def test_whatever_has_known_faults_has_a_floor():
    assert versions.FAULTS.keys() <= versions.floors().keys()
    assert all(versions._release(floor) for floor in versions.floors().values())
