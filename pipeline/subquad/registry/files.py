"""Recipes and spaces: YAML files that packages offer. Found by looking into their folders; no code of theirs runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from subquad.errors import PluginError
from subquad.registry.foreign import cause
from subquad.registry.found import Found, blocked, canonical, find_plugins
from subquad.suggest import did_you_mean

FileKind = Literal["recipe", "space", "published"]


@dataclass(frozen=True)
class Recipe:
    """A YAML file that a distribution ships.

    Attributes:
        name: the file's name without `.yaml`.
        distribution: who ships it.
        path: the file.
        found: the entry point it came from.
    """

    name: str
    distribution: str
    path: Path
    found: Found

    def text(self) -> str:
        """The file's content, or a PluginError where it cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PluginError(f"{self.found.kind} {self.name!r} ({self.found.owner}): {cause(error)}") from None

    @property
    def summary(self) -> str:
        """The comment the file begins with, its first line; "" where there is none."""
        first = self.text().lstrip().partition("\n")[0]
        return first.removeprefix("#").strip() if first.startswith("#") else ""

    @property
    def full_name(self) -> str:
        return f"{self.distribution}:{self.name}"


def recipes(kind: FileKind = "recipe") -> dict[str, Recipe]:
    """All usable recipes (or spaces) by name; by `distribution:name` where several distributions offer one name."""
    rows = yaml_files(kind)
    count = Counter(row.name for row in rows)
    return {row.name if count[row.name] == 1 else row.full_name: row for row in rows}


def recipe(name: str, kind: FileKind = "recipe") -> Recipe:
    """The recipe that `name` or `distribution:name` stands for.

    Raises:
        PluginError: there is none, or several distributions offer it.
    """
    rows = [row for row in yaml_files(kind) if name in (row.name, row.full_name) or _normal(name) == row.full_name]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        elsewhere = [f"; it is a {row.kind}" for row in find_plugins() if row.name == name and row.kind != kind]
        hint = did_you_mean(name, recipes(kind)) or "".join(elsewhere[:1])
        broken = "".join(f"; {problem}" for problem in folder_faults(kind))
        raise PluginError(f"unknown {kind} {name!r}{hint} (`subquad list {kind}` shows what is installed){broken}")
    choices = " or ".join(sorted({row.full_name for row in rows}))
    offered = " and ".join(sorted({row.found.owner for row in rows}))
    raise PluginError(f"{kind} {name!r} is offered by {offered}: write {choices}")


def yaml_files(kind: FileKind = "recipe", below: str = ".") -> list[Recipe]:
    """Every usable file of a kind, sorted; packages that cannot be found are left out (`folder_faults`).

    Args:
        below: folder in the packages' own.
    """
    folders = [(found, folder / below) for found, folder in _folders(kind) if folder]
    files = [(found, file) for found, folder in folders for file in folder.glob("*.yaml")]
    rows = [Recipe(file.stem, found.distribution, file, found) for found, file in files]
    return sorted(rows, key=lambda row: (row.name, row.distribution, str(row.path)))


def folder_faults(kind: FileKind) -> list[str]:
    """Entry points whose package cannot be found, one line each."""
    return [f"{found}: no package {found.target}" for found, folder in _folders(kind) if folder is None]


def _folders(kind: FileKind) -> list[tuple[Found, Path | None]]:
    return [(found, package_folder(found.target)) for found in find_plugins(kind) if not blocked(found.distribution)]


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, found without running its `__init__`; None where there is none."""
    top, *below = package.partition(":")[0].strip().split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location).joinpath(*below)
        if folder.is_dir():
            return folder
    return None


def _normal(name: str) -> str:
    owner, colon, short = name.partition(":")
    return f"{canonical(owner)}{colon}{short}"
