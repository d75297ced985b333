"""Find: which plugins are installed, from metadata alone. Imports none of them, so a broken one costs nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from typing import Literal

from subquad.registry.text import plain

Kind = Literal["mixer", "backbone", "task", "dataset", "space", "recipe"]

GROUPS: dict[Kind, str] = {
    "mixer": "subquad.mixers",
    "backbone": "subquad.backbones",
    "task": "subquad.tasks",
    "dataset": "subquad.datasets",
    "space": "subquad.spaces",
    "recipe": "subquad.recipes",
}
_KINDS: dict[str, Kind] = {group: kind for kind, group in GROUPS.items()}


@dataclass(frozen=True)
class Found:
    """A plugin that is installed and not loaded.

    Attributes:
        kind: what it is a plugin for.
        name: the entry point's name.
        distribution: who offers it, as a canonical name (`canonical`).
        version: the distribution's version.
        target: "module:attribute"; for recipes and spaces the package that holds the YAML files.
    """

    kind: Kind
    name: str
    distribution: str
    version: str
    target: str

    def __str__(self) -> str:
        return plain(f"{self.kind} {self.name!r} ({self.owner})")

    @property
    def owner(self) -> str:
        """Distribution and version."""
        return plain(f"{self.distribution} {self.version}")

    @property
    def full_name(self) -> str:
        """The name that picks it among plugins of one name."""
        return f"{self.distribution}:{self.name}"


@dataclass(frozen=True)
class _Scan:
    found: tuple[Found, ...]
    faults: tuple[str, ...]


def canonical(name: str) -> str:
    """A distribution's name in the one form that is compared: `My_Plugins` and `my.plugins` are `my-plugins`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find(kind: Kind | None = None) -> tuple[Found, ...]:
    """All installed plugins, or those of one kind, sorted by kind, name and distribution."""
    return tuple(found for found in _scan(_path_state()).found if kind in (None, found.kind))


def metadata_faults() -> tuple[str, ...]:
    """Distributions whose metadata offer a plugin but cannot be read, one line each."""
    return _scan(_path_state()).faults


def _path_state() -> tuple[tuple[str, int], ...]:
    """What tells that something was installed or removed: sys.path, and when each folder on it changed."""
    return tuple((entry, _changed(entry)) for entry in sys.path)


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _scan(path_state: tuple[tuple[str, int], ...]) -> _Scan:
    """One reading of all metadata; kept, since a study resolves thousands of names."""
    found: set[Found] = set()
    faults: list[str] = []
    for offering in _offering(faults):
        try:
            found.update(_entries(offering))
        except Exception as error:  # malformed metadata of one distribution must not hide the others
            faults.append(plain(f"{offering.locate_file('')}: entry points cannot be read ({error})"))
    order = {kind: number for number, kind in enumerate(GROUPS)}
    ranked = sorted(found, key=lambda item: (order[item.kind], item.name, item.distribution, item.target))
    return _Scan(tuple(ranked), tuple(faults))


def _offering(faults: list[str]) -> Iterator[Distribution]:
    """Each distribution that mentions one of our groups, once: the copy `import` takes, first on sys.path."""
    seen: set[str] = set()
    for candidate in distributions():
        try:
            if not any(group in (candidate.read_text("entry_points.txt") or "") for group in _KINDS):
                continue
            name = canonical(candidate.metadata["Name"])
        except Exception as error:  # a half-removed distribution: no METADATA, wrong encoding, no rights
            where = getattr(candidate, "_path", candidate.locate_file(""))
            faults.append(plain(f"{where}: METADATA cannot be read ({type(error).__name__}: {error})"))
            continue
        if name not in seen:
            seen.add(name)
            yield _first(name, candidate)


def _first(name: str, candidate: Distribution) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:  # its folder has another name than its metadata
        return candidate


def _entries(offering: Distribution) -> list[Found]:
    owner, version = canonical(offering.metadata["Name"]), offering.metadata["Version"] or "?"
    return [
        Found(_KINDS[entry.group], entry.name, owner, version, entry.value)
        for entry in offering.entry_points
        if entry.group in _KINDS
    ]
