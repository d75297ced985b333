"""Which code a certificate depends on, so that an earlier one holds as long as it is the same."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path

from subquad.registry import Resolved

_CHECKS = "subquad.testing"


def code_digest(resolved: Resolved) -> str:
    """sha256 of the Python files that a certificate depends on: the module of an installed mixer,
    the checks, and whatever of their own packages these import, directly or not.

    Imports are read from the text, so modules that are imported by a computed name are not among
    them, nor are data files and other packages.
    """
    files = set(_with_imports(_CHECKS))
    found = resolved.found
    if found.distribution and not resolved.source:
        module, _, _ = found.target.partition(":")
        files |= _with_imports(module.strip())
    digests = []
    for file in files:
        digests.append(hashlib.sha256(file.read_bytes()).hexdigest())
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


@cache
def _with_imports(module: str) -> set[Path]:
    """Files of a module and of all that it imports from its own package and from this one."""
    top, _, _ = module.partition(".")
    own, _, _ = _CHECKS.partition(".")
    files = set[Path]()
    waiting = [module]
    known = {module}
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if file is None:
            continue
        files.add(file)
        imported = _imports(name, file) - known
        known |= imported
        for found in imported:
            package, _, _ = found.partition(".")
            if package in (top, own):
                waiting.append(found)
    return files


@cache
def _file(module: str) -> Path | None:
    """Where a module of an imported package stands; None where it is no module in Python."""
    top, *parts = module.split(".")
    spec = find_spec(top)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    return path if path.suffix == ".py" else None


@cache
def _imports(module: str, file: Path) -> frozenset[str]:
    """Names that may be modules: those of import statements wherever they stand, and the packages
    around each.
    """
    package = module
    if file.name != "__init__.py":
        package, _, _ = module.rpartition(".")
    tree = ast.parse(file.read_bytes())
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            start = resolve_name(dots + (node.module or ""), package)
            imported += [f"{start}.{alias.name}" for alias in node.names]
    names = set[str]()
    for name in imported:
        while name:
            names.add(name)
            name, _, _ = name.rpartition(".")
    return frozenset(names)
