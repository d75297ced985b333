"""Versions with publicly known security faults: the floors `subquad doctor` warns below. Looked up offline."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

# Package, first version without the fault, why.
FLOORS = {
    "ray": ("2.59.1", "CVE-2025-62593, CVE-2026-27482, CVE-2026-41486, CVE-2026-57516 and a stale CA bundle"),
    "torch": ("2.11.0", "CVE-2025-32434, CVE-2026-24747, CVE-2026-4538: code runs while weights load"),
    "mlflow": ("3.17.2", "CVE-2026-53995 path traversal, CVE-2026-115886 request forgery"),
    "pillow": ("13.0.0", "CVE-2026-112393 and others: memory faults while images are decoded"),
}
_PYTHON = {(3, 11): 14, (3, 12): 12, (3, 13): 13, (3, 14): 4}
_PYTHON_WHY = "CVE-2025-4517, CVE-2025-8194: tar extraction"


@dataclass(frozen=True)
class VersionCheck:
    """An installed package against its floor."""

    package: str
    installed: str
    floor: str
    ok: bool
    why: str


def check_versions() -> list[VersionCheck]:
    """Python and each installed package that has a floor."""
    return [check_python(sys.version_info[:3]), *filter(None, map(_check_package, FLOORS))]


def check_python(running: tuple[int, int, int]) -> VersionCheck:
    """The interpreter against the floor of its own series; a series newer than all known ones passes."""
    minor, micro = running[:2], running[2]
    floor = _PYTHON.get(minor, 0)
    text = ".".join(map(str, running))
    return VersionCheck("python", text, f"{minor[0]}.{minor[1]}.{floor}", micro >= floor, _PYTHON_WHY)


def _check_package(package: str) -> VersionCheck | None:
    try:
        installed = version(package)
    except PackageNotFoundError:
        return None
    floor, why = FLOORS[package]
    return VersionCheck(package, installed, floor, release(installed) >= release(floor), why)


def release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros, pre-release and local parts: "2.13.0+cpu" is (2, 13)."""
    match = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", text)
    numbers = [int(part) for part in match.group(1).split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
