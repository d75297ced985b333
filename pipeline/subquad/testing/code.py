"""Which code a certificate depends on, so that an earlier one holds as long as it is the same."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
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
    if resolved.found.distribution and not resolved.source:
        files |= _with_imports(resolved.found.target.partition(":")[0].strip())
    rows = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


@cache
def _with_imports(module: str) -> set[Path]:
    """Files of a module and of all that it imports from its own package and from this one."""
    packages = {name.partition(".")[0] for name in (module, _CHECKS)}
    files, waiting = set[Path](), [module]
    known = set(waiting)
    while waiting:
        name = waiting.pop()
        if file := _file(name):
            files.add(file)
            own = {found for found in _imports(name, file) if found.split(".")[0] in packages}
            waiting += own - known
            known |= own
    return files


@cache
def _file(module: str) -> Path | None:
    """Where a module of an imported package stands; None where it is no module in Python."""
    top, *parts = module.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    folders = [Path(folder, *parts) for folder in spec.submodule_search_locations or ()]
    places = [place for folder in folders for place in (folder / "__init__.py", _sibling(folder))]
    if not parts and spec.origin:
        places.append(Path(spec.origin))
    return next((place for place in places if place.is_file()), None)


def _sibling(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.py"


@cache
def _imports(module: str, file: Path) -> frozenset[str]:
    """Names that may be modules: those of import statements wherever they stand, and the packages
    around each.
    """
    names = set[str]()
    for name in _imported(module, file):
        parts = name.split(".")
        names |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return frozenset(names)


def _imported(module: str, file: Path) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            yield from (start, *(f"{start}.{alias.name}" for alias in node.names))
