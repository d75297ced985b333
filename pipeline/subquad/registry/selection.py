"""Choose: the one installed plugin that a name stands for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from subquad.errors import PluginError
from subquad.registry.found import Found, Kind, canonical, find
from subquad.registry.text import plain
from subquad.suggest import did_you_mean

ALLOWED, DISABLED = "SUBQUAD_PLUGINS", "SUBQUAD_DISABLE_PLUGINS"
_OWN = "subquad"
_SWITCH = {"": False, "0": False, "false": False, "1": True, "true": True}


def blocked(distribution: str) -> str | None:
    """Why the environment blocks a distribution; None where it does not. subquad's own plugins never are.

    SUBQUAD_DISABLE_PLUGINS=1 blocks all others; SUBQUAD_PLUGINS=a,b all but those named.

    Raises:
        PluginError: SUBQUAD_DISABLE_PLUGINS is neither on nor off.
    """
    switch = os.environ.get(DISABLED, "")
    if switch.lower() not in _SWITCH:
        raise PluginError(f"{DISABLED}={plain(switch)}: write 1 or 0")
    if canonical(distribution) == _OWN:
        return None
    if _SWITCH[switch.lower()]:
        return f"{DISABLED}={switch}"
    allowed = os.environ.get(ALLOWED, "")
    if allowed.strip() and canonical(distribution) not in allowed_distributions():
        return plain(f"not in {ALLOWED}={allowed}")
    return None


def allowed_distributions() -> list[str]:
    """Distributions that SUBQUAD_PLUGINS names."""
    return [canonical(name.strip()) for name in os.environ.get(ALLOWED, "").split(",") if name.strip()]


def choose(kind: Kind, name: str) -> Found:
    """The plugin that `name` or `distribution:name` stands for.

    Raises:
        PluginError: no plugin or more than one has this name, or the environment blocks it.
    """
    rows = _named(find(kind), name)
    usable = [row for row in rows if not blocked(row.distribution)]
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise PluginError(ambiguous(usable))
    if rows:
        raise PluginError(f"{rows[0]} is blocked by the environment: {blocked(rows[0].distribution)}")
    raise PluginError(_unknown(kind, name))


def namesakes(found: Found) -> list[Found]:
    """Other usable plugins of the same kind and name."""
    same = [row for row in find(found.kind) if row.name == found.name and row != found]
    return [row for row in same if not blocked(row.distribution)]


def ambiguous(rows: Sequence[Found]) -> str:
    """One line about plugins that share a name: who offers it, and what to write instead."""
    first, owners = rows[0], sorted({row.distribution for row in rows})
    if len(owners) == 1:
        targets = " and ".join(plain(row.target) for row in rows)
        return f"{first} is declared more than once, as {targets}: its distribution must be repaired"
    offered = " and ".join(sorted({row.owner for row in rows}))
    choices = " or ".join(sorted({plain(row.full_name) for row in rows}))
    return plain(f"{first.kind} {first.name!r} is offered by {offered}: write {choices}")


def _named(rows: Sequence[Found], name: str) -> list[Found]:
    exact = [row for row in rows if row.name == name]
    if exact or ":" not in name:
        return exact
    owner, _, short = name.partition(":")
    return [row for row in rows if row.name == short and row.distribution == canonical(owner)]


def _unknown(kind: Kind, name: str) -> str:
    usable = [row for row in find() if not blocked(row.distribution)]
    known = [row for row in usable if row.kind == kind]
    names = [row.full_name if ":" in name else row.name for row in known]
    elsewhere = sorted({row.kind for row in usable if row.name == name})
    hint = did_you_mean(name, names)
    if not hint and elsewhere:
        hint = f"; it is a {elsewhere[0]}"
    if kind == "mixer" and (name.endswith(".py") or "/" in name):
        hint = "; a mixer in a file is written ./file.py:Class"
    return plain(f"unknown {kind} {name!r}{hint} (`subquad list {kind}` shows what is installed)")
