"""Recipes and spaces: YAML files that packages offer. Found by looking into their folders; no
code of theirs runs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Literal

from subquad.errors import PluginError
from subquad.registry.faults import cause
from subquad.registry.found import Found, choose, find_plugins, usable

FileKind = Literal["recipe", "space", "published"]


@dataclass(frozen=True)
class Recipe(Found):
    """A YAML file that a distribution ships, under its name without `.yaml`.

    Attributes:
        path: the file.
    """

    path: Path

    def text(self) -> str:
        """The file's content, or a PluginError where it cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PluginError(f"{self}: {cause(error)}") from None

    @property
    def summary(self) -> str:
        """The first sentence of the comment that the file begins with; "" where there is none."""
        comment = takewhile(lambda line: line.startswith("#"), self.text().lstrip().splitlines())
        words = " ".join(line.removeprefix("#").strip() for line in comment)
        return re.split(r"(?<=[.]) (?=[A-Z])", words, maxsplit=1)[0]


def recipes(kind: FileKind = "recipe", below: str = ".") -> dict[str, Recipe]:
    """All usable recipes (or spaces) by name; by `distribution:name` where several distributions
    offer one name.

    Args:
        below: folder in the packages' own.
    """
    rows = yaml_files(kind, below)
    count = Counter(row.name for row in rows)
    return {row.name if count[row.name] == 1 else row.full_name: row for row in rows}


def recipe(name: str, kind: FileKind = "recipe") -> Recipe:
    """The recipe that `name` or `distribution:name` stands for.

    Raises:
        PluginError: there is none, or several distributions offer it.
    """
    return choose(kind, name, yaml_files(kind), folder_faults(kind))


def yaml_files(kind: FileKind = "recipe", below: str = ".") -> list[Recipe]:
    """Every usable file of a kind, sorted; packages that cannot be found are left out
    (`folder_faults`).

    Args:
        below: folder in the packages' own.
    """
    rows = []
    for found, folder in folders(kind):
        known = (found.distribution, found.version, found.target)
        rows += [Recipe(kind, file.stem, *known, file) for file in (folder / below).glob("*.yaml")]
    return sorted(rows, key=lambda row: (row.name, row.distribution, row.path))


def folder_faults(kind: FileKind) -> list[str]:
    """Entry points whose package cannot be found, one line each."""
    return [
        f"{found}: no package {found.target}"
        for found in usable(find_plugins(kind))
        if package_folder(found.target) is None
    ]


def folders(kind: FileKind) -> list[tuple[Found, Path]]:
    """The usable entry points of a kind whose package can be found, with its folder."""
    rows = usable(find_plugins(kind))
    return [(found, folder) for found in rows if (folder := package_folder(found.target))]


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, found without running its `__init__`; None where there
    is none.
    """
    name, _, _ = package.partition(":")
    return next(filter(Path.is_dir, places_of(name.strip())), None)


def places_of(module: str) -> list[Path]:
    """Where a package may lie, or the file of a module without its ending; nothing is imported."""
    top, *below = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    places = spec.submodule_search_locations
    if places is None:
        places = [Path(spec.origin or "").with_suffix("")]
    return [Path(place, *below) for place in places]
