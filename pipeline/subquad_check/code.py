"""Which code a certificate depends on, so that an earlier one holds as long as it is the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from subquad.registry import Resolved


def code_digest(resolved: Resolved) -> str:
    """sha256 of all Python files of subquad, of the certificate, and of the package that an
    installed mixer is in. Data files and other packages are not among them.
    """
    packages = {"subquad", "subquad_check"}
    found = resolved.found
    if found.distribution and not resolved.source:
        packages.add(found.target.strip().partition(":")[0].partition(".")[0])
    return hashlib.sha256("\n".join(map(_digest, sorted(packages))).encode()).hexdigest()


@cache
def _digest(package: str) -> str:
    """Of a package's files, or of the one file of a module."""
    spec = find_spec(package)
    assert spec
    files = [Path(spec.origin or "")]
    for folder in spec.submodule_search_locations or ():
        files += sorted(Path(folder).rglob("*.py"))
    found = hashlib.sha256()
    for file in files:
        if file.is_file():  # a folder without code has no file of its own
            found.update(file.read_bytes())
    return found.hexdigest()
