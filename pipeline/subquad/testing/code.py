"""Which code a certificate depends on, so that an earlier one holds as long as it is the same."""

from __future__ import annotations

import hashlib
from functools import cache
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from subquad.registry import Resolved

_CHECKS = "subquad.testing"


def code_digest(resolved: Resolved) -> str:
    """sha256 of the Python files that a certificate depends on: the module of an installed mixer,
    the checks, and whatever of their own packages these import, directly or not.

    Imports are read from the code, so modules that are imported by a computed name are not among
    them, nor are data files and other packages.
    """
    digests = set(_digests(_CHECKS))
    found = resolved.found
    if found.distribution and not resolved.source:
        module, _, _ = found.target.partition(":")
        digests |= _digests(module.strip())
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


@cache
def _digests(module: str) -> frozenset[str]:
    """Of the files of a module and of all that it imports from its own package and from this one,
    each with the packages around it.
    """
    finder = _Own(module)
    finder.import_hook(module)
    digests = []
    for found in finder.modules.values():
        file = getattr(found, "__file__", None)  # of a folder without code there is none
        if file:
            digests.append(hashlib.sha256(Path(file).read_bytes()).hexdigest())
    return frozenset(digests)


class _Own(ModuleFinder):
    """Finds modules of two packages."""

    def __init__(self, module: str):
        super().__init__()
        self.tops = {name.split(".")[0] for name in (module, _CHECKS)}

    def import_module(self, partname: str, fqname: str, parent: Any) -> Any:
        if fqname.split(".")[0] in self.tops:
            return super().import_module(partname, fqname, parent)
        return None
