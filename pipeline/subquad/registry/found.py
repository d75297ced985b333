"""Find and choose: the installed plugins, from metadata alone, and the one a name stands for. Imports none of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from typing import Literal

from subquad.errors import PluginError, plain
from subquad.suggest import did_you_mean

Kind = Literal["mixer", "backbone", "task", "dataset", "space", "recipe", "published", "command"]

GROUPS: dict[Kind, str] = {
    "mixer": "subquad.mixers",
    "backbone": "subquad.backbones",
    "task": "subquad.tasks",
    "dataset": "subquad.datasets",
    "space": "subquad.spaces",
    "recipe": "subquad.recipes",
    "published": "subquad.published",
    "command": "subquad.commands",
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
        target: "module:attribute", of a command a `click.Command`; for recipes and spaces the package that holds the
            YAML files.
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


def canonical(name: str) -> str:
    """A distribution's name in the one form that is compared: `My_Plugins` and `my.plugins` are `my-plugins`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_plugins(kind: Kind | None = None) -> tuple[Found, ...]:
    """All installed plugins, or those of one kind, sorted by kind, name and distribution."""
    return tuple(found for found in _scan(_path_state())[0] if kind in (None, found.kind))


def metadata_faults() -> tuple[str, ...]:
    """Distributions whose metadata offer a plugin but cannot be read, one line each."""
    return _scan(_path_state())[1]


def check_environment() -> None:
    """Refuse an environment in which nothing that asks for entry points can be imported, torch among it.

    Raises:
        PluginError: the first distribution whose entry_points.txt is no UTF-8.
    """
    for candidate in distributions():
        try:
            candidate.read_text("entry_points.txt")
        except UnicodeDecodeError as error:
            path = getattr(candidate, "_path", candidate.locate_file(""))
            raise PluginError(
                f"{path}/entry_points.txt: not UTF-8 ({error.reason} at byte {error.start}); torch and others cannot "
                "be imported beside it: repair or remove that distribution"
            ) from error


def _path_state() -> tuple[tuple[str, int], ...]:
    """What tells that something was installed or removed: sys.path, and when each folder on it changed."""
    return tuple((entry, _changed(entry)) for entry in sys.path)


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _scan(path_state: tuple[tuple[str, int], ...]) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """The plugins and the faults of one reading of all metadata; kept, since a study resolves thousands of names."""
    found: set[Found] = set()
    faults: list[str] = []
    for offering in _offering(faults):
        try:
            owner, version = canonical(offering.metadata["Name"]), offering.metadata["Version"] or "?"
            entries = [entry for entry in offering.entry_points if entry.group in _KINDS]
            found.update(Found(_KINDS[one.group], one.name, owner, version, one.value) for one in entries)
        except Exception as error:  # malformed metadata of one distribution must not hide the others
            faults.append(plain(f"{offering.locate_file('')}: entry points cannot be read ({error})"))
    kinds = list(GROUPS)
    ranked = sorted(found, key=lambda item: (kinds.index(item.kind), item.name, item.distribution, item.target))
    return tuple(ranked), tuple(faults)


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
            faults.append(plain(f"{where}: metadata cannot be read ({type(error).__name__}: {error})"))
            continue
        if name not in seen:
            seen.add(name)
            try:
                yield distribution(name)
            except PackageNotFoundError:  # its folder has another name than its metadata
                yield candidate


_ALLOWED, _DISABLED = "SUBQUAD_PLUGINS", "SUBQUAD_DISABLE_PLUGINS"
_SWITCH = {"": False, "0": False, "false": False, "1": True, "true": True}


def blocked(distribution: str) -> str | None:
    """Why the environment blocks a distribution; None where it does not. subquad's own plugins never are.

    SUBQUAD_DISABLE_PLUGINS=1 blocks all others; SUBQUAD_PLUGINS=a,b all but those named.

    Raises:
        PluginError: SUBQUAD_DISABLE_PLUGINS is neither on nor off.
    """
    switch = os.environ.get(_DISABLED, "")
    if switch.lower() not in _SWITCH:
        raise PluginError(f"{_DISABLED}={switch}: write 1 or 0")
    if canonical(distribution) == "subquad":
        return None
    if _SWITCH[switch.lower()]:
        return f"{_DISABLED}={switch}"
    allowed = os.environ.get(_ALLOWED, "")
    if allowed.strip() and canonical(distribution) not in _allowed():
        return plain(f"not in {_ALLOWED}={allowed}")
    return None


def _allowed() -> list[str]:
    """Distributions that SUBQUAD_PLUGINS names; none where it is not set."""
    return [canonical(name.strip()) for name in os.environ.get(_ALLOWED, "").split(",") if name.strip()]


def environment_warnings() -> list[str]:
    """What is wrong outside any plugin: unreadable metadata, allowed distributions that offer nothing."""
    offering = {found.distribution for found in find_plugins()}
    absent = [name for name in _allowed() if name not in offering]
    return [*metadata_faults(), *(plain(f"{_ALLOWED} names {name!r}, which offers no plugin") for name in absent)]


def choose_plugin(kind: Kind, name: str) -> Found:
    """The plugin that `name` or `distribution:name` stands for.

    Raises:
        PluginError: no plugin or more than one has this name, or the environment blocks it.
    """
    everything = find_plugins(kind)
    owner, colon, short = name.partition(":")
    rows = [row for row in everything if row.name == name]
    rows = rows or [row for row in everything if colon and (row.distribution, row.name) == (canonical(owner), short)]
    usable = [row for row in rows if not blocked(row.distribution)]
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise PluginError(_ambiguous(usable))
    if rows:
        raise PluginError(f"{rows[0]} is blocked by the environment: {blocked(rows[0].distribution)}")
    raise PluginError(_unknown(kind, name))


def clash(found: Found) -> str | None:
    """Who else offers a usable plugin of the same kind and name, and what to write; None where nobody does."""
    same = [row for row in find_plugins(found.kind) if row.name == found.name and row != found]
    others = [row for row in same if not blocked(row.distribution)]
    return _ambiguous([found, *others]) if others else None


def _ambiguous(rows: Sequence[Found]) -> str:
    """One line about plugins that share a name: who offers it, and what to write instead."""
    first, owners = rows[0], sorted({row.distribution for row in rows})
    if len(owners) == 1:
        targets = " and ".join(row.target for row in rows)
        return f"{first} is declared more than once, as {targets}: its distribution must be repaired"
    offered = " and ".join(sorted({row.owner for row in rows}))
    choices = " or ".join(sorted({row.full_name for row in rows}))
    return plain(f"{first.kind} {first.name!r} is offered by {offered}: write {choices}")


def _unknown(kind: Kind, name: str) -> str:
    usable = [row for row in find_plugins() if not blocked(row.distribution)]
    known = [row.full_name if ":" in name else row.name for row in usable if row.kind == kind]
    elsewhere = sorted(f"; it is a {row.kind}" for row in usable if row.name == name)
    hint = did_you_mean(name, known) or "".join(elsewhere[:1])
    if name.endswith(".py") or "/" in name:
        hint = f"; a {kind} in a file is written ./file.py:Class"
    return f"unknown {kind} {name!r}{hint} (`subquad list {kind}` shows what is installed)"
