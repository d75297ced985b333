"""Find and choose: the installed plugins, from metadata alone, and the one a name stands for.
Imports none of them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, distribution, distributions
from os.path import getmtime
from typing import Literal, TypeVar, cast

from subquad.errors import PluginError
from subquad.suggest import did_you_mean, to_paste

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
_OWN = "subquad"
FILE_KINDS: tuple[Kind, ...] = ("recipe", "space", "published")
"""Kinds whose packages hold YAML files and no code that runs."""


def kind_of(word: str, also: Sequence[str] = ()) -> Kind:
    """The kind that a user's word means, also in the plural; `also` are further words that are
    allowed.

    Raises:
        PluginError: no kind is called so.
    """
    known = [*GROUPS, *also]
    for ending in ("", "es", "s"):
        singular = word.removesuffix(ending)
        if singular in known:
            return cast(Kind, singular)
    hint = did_you_mean(word, known)
    kinds = ", ".join(known)
    raise PluginError(f"no kind {word!r}{hint}; kinds: {kinds}")


@dataclass(frozen=True)
class Found:
    """A plugin that is installed and not loaded.

    Attributes:
        kind: what it is a plugin for.
        name: the entry point's name.
        distribution: who offers it, as a canonical name (`canonical`).
        version: the distribution's version.
        target: "module:attribute", of a command a `click.Command`; for recipes and spaces the
            package that holds the YAML files.
    """

    kind: Kind
    name: str
    distribution: str
    version: str
    target: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} ({self.owner})"

    @property
    def owner(self) -> str:
        """Distribution and version."""
        return f"{self.distribution} {self.version}"

    @property
    def is_built_in(self) -> bool:
        """Whether it comes with subquad."""
        return self.distribution == _OWN

    @property
    def full_name(self) -> str:
        """The name that picks it among plugins of one name."""
        return f"{self.distribution}:{self.name}"


_Row = TypeVar("_Row", bound=Found)


def canonical(name: str) -> str:
    """A distribution's name in the one form that is compared: `My_Plugins` and `my.plugins` are
    `my-plugins`.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def find_plugins(kind: Kind | None = None) -> tuple[Found, ...]:
    """All installed plugins, or those of one kind, sorted by kind, name and distribution."""
    plugins, _ = _scan(_path_state())
    return tuple(found for found in plugins if kind in (None, found.kind))


def metadata_faults() -> tuple[str, ...]:
    """Distributions whose metadata offer a plugin but cannot be read, one line each."""
    _, faults = _scan(_path_state())
    return faults


def check_environment() -> None:
    """Refuse an environment in which nothing that asks for entry points can be imported, torch
    among it.

    Raises:
        PluginError: the first distribution whose entry_points.txt is no UTF-8.
    """
    for candidate in distributions():
        try:
            candidate.read_text("entry_points.txt")
        except UnicodeDecodeError as error:
            raise PluginError(
                f"{_place_of(candidate)}/entry_points.txt: not UTF-8 ({error.reason} at byte "
                f"{error.start}); torch and others cannot "
                "be imported beside it: repair or remove that distribution"
            ) from error


def _place_of(candidate: Distribution) -> object:
    return getattr(candidate, "_path", candidate.locate_file(""))


def _path_state() -> tuple[tuple[str, float], ...]:
    """What tells that something was installed or removed: sys.path, and when each folder on it
    changed.
    """
    folders = [entry or "." for entry in sys.path]
    return tuple((folder, os.path.exists(folder) and getmtime(folder)) for folder in folders)


@lru_cache(maxsize=4)
def _scan(path_state: tuple[tuple[str, float], ...]) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """The plugins and the faults of one reading of all metadata; kept, since a study resolves
    thousands of names.

    Of several copies of a distribution the one counts that `import` takes, first on sys.path.
    """
    found: dict[str, set[Found]] = {}
    faults: list[str] = []
    for candidate in distributions():
        what = "metadata"
        try:
            if "[subquad." not in (candidate.read_text("entry_points.txt") or ""):
                continue
            owner = canonical(candidate.metadata["Name"])
            if owner and owner not in found:
                what = "entry points"
                found[owner] = set(_entries(distribution(owner), owner))
        except Exception as error:  # one distribution's must not hide the others
            faults.append(
                f"{_place_of(candidate)}: {what} cannot be read ({type(error).__name__}: {error})"
            )
    kinds = list(GROUPS)
    ranked = sorted(
        set[Found]().union(*found.values()),
        key=lambda item: (kinds.index(item.kind), item.name, item.distribution, item.target),
    )
    return tuple(ranked), tuple(faults)


def _entries(offering: Distribution, owner: str) -> Iterator[Found]:
    version = offering.metadata["Version"] or "?"
    for kind, group in GROUPS.items():
        for entry in offering.entry_points.select(group=group):
            yield Found(kind, entry.name, owner, version, entry.value)


_ALLOWED, _DISABLED = "SUBQUAD_PLUGINS", "SUBQUAD_DISABLE_PLUGINS"
_SWITCH = {"": False, "0": False, "false": False, "1": True, "true": True}


def blocked(distribution: str) -> str | None:
    """Why the environment blocks a distribution; None where it does not. subquad's own plugins
    never are.

    SUBQUAD_DISABLE_PLUGINS=1 blocks all others; SUBQUAD_PLUGINS=a,b all but those named.

    Raises:
        PluginError: SUBQUAD_DISABLE_PLUGINS is neither on nor off.
    """
    switch = os.environ.get(_DISABLED, "")
    disabled = _SWITCH.get(switch.lower())
    if disabled is None:
        raise PluginError(f"{_DISABLED}={switch}: write 1 or 0")
    name = canonical(distribution)
    if name == _OWN:
        return None
    if disabled:
        return f"{_DISABLED}={switch}"
    allowed = os.environ.get(_ALLOWED, "")
    return f"not in {_ALLOWED}={allowed}" if allowed.strip() and name not in _allowed() else None


def _allowed() -> list[str]:
    """Distributions that SUBQUAD_PLUGINS names; none where it is not set."""
    return [
        canonical(name) for name in map(str.strip, os.environ.get(_ALLOWED, "").split(",")) if name
    ]


def environment_warnings() -> list[str]:
    """What is wrong outside any plugin: unreadable metadata, allowed distributions that offer
    nothing.
    """
    plugins, faults = _scan(_path_state())
    offering = {found.distribution for found in plugins}
    unknown = [name for name in _allowed() if name not in offering]
    return [*faults, *(f"{_ALLOWED} names {name!r}, which offers no plugin" for name in unknown)]


def choose_plugin(kind: Kind, name: str) -> Found:
    """The plugin that `name` or `distribution:name` stands for.

    Raises:
        PluginError: no plugin or more than one has this name, or the environment blocks it.
    """
    return choose(kind, name, find_plugins(kind))


def choose(kind: Kind, name: str, rows: Sequence[_Row], faults: Sequence[str] = ()) -> _Row:
    """The one of `rows` that a name stands for; `faults` are told where there is none."""
    named = [row for row in rows if row.name == name]
    if not named:
        owner, colon, short = name.partition(":")
        full_name = f"{canonical(owner)}{colon}{short}"
        named = [row for row in rows if row.full_name == full_name]
    allowed = usable(named)
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        raise PluginError(_ambiguous(allowed))
    if named:
        first = named[0]
        raise PluginError(f"{first} is blocked by the environment: {blocked(first.distribution)}")
    unknown = (
        f"unknown {kind} {name!r}{_hint(kind, name, rows)} "
        f"(`{to_paste('list', kind)}` shows what is installed)"
    )
    raise PluginError("; ".join([unknown, *faults]))


def usable(rows: Iterable[_Row]) -> list[_Row]:
    """Those that the environment does not block."""
    return [row for row in rows if not blocked(row.distribution)]


def clash(found: Found) -> str | None:
    """Who else offers a usable plugin of the same kind and name, and what to write; None where
    nobody does.
    """
    same = [row for row in find_plugins(found.kind) if row.name == found.name]
    others = [row for row in usable(same) if row != found]
    return _ambiguous([found, *others]) if others else None


def _ambiguous(rows: Sequence[Found]) -> str:
    """One line about plugins that share a name: who offers it, and what to write instead."""
    first = rows[0]
    choices = sorted({row.full_name for row in rows})
    if len(choices) == 1:
        targets = " and ".join(row.target for row in rows)
        return (
            f"{first} is declared more than once, as {targets}: its distribution must be repaired"
        )
    offered = " and ".join(sorted({row.owner for row in rows}))
    return f"{first.kind} {first.name!r} is offered by {offered}: write {' or '.join(choices)}"


def _hint(kind: Kind, name: str, rows: Sequence[Found]) -> str:
    """What may be meant by a name that nothing has."""
    if kind not in FILE_KINDS and (name.endswith(".py") or "/" in name):
        return f"; a {kind} in a file is written ./file.py:Class"
    if kind == "mixer" and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Z]\w*", name):
        module, _, cls = name.partition(":")
        return f"; put `from {module} import {cls}` into a file, and write ./file.py:{cls}"
    hint = did_you_mean(name, [row.full_name if ":" in name else row.name for row in usable(rows)])
    if hint:
        return hint
    for row in find_plugins():
        if row.name == name:
            return f"; it is a {row.kind}"
    return ""
