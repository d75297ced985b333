"""`subquad new`: the package of a new plugin, complete and working, from the folder `templates` of this package."""

from __future__ import annotations

import importlib.util
import keyword
import re
import tempfile
from importlib.metadata import distributions, version
from pathlib import Path

import click
from jinja2 import Environment, StrictUndefined

from subquad.cli.tables import kind_of, print_line
from subquad.errors import PluginError
from subquad.plugin import API_VERSION
from subquad.reach import Reach
from subquad.registry import GROUPS, Kind, find_plugins
from subquad.registry.files import yaml_files

_TEMPLATES = Path(__file__).parents[1] / "templates"
"""A folder for each kind, and `every` for what all kinds have. Paths are templates too."""


@click.command("new")
@click.argument("kind")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Where the package's folder is made. Default: this folder.",
)
@Reach(reads="nothing", writes="a new folder in --into")
def new_command(kind: str, name: str, into: Path) -> None:
    """Write a package with a new plugin: code, tests, experiment, README, pyproject.toml and CI file.

    KIND is mixer, dataset, task, backbone or space. NAME is the plugin's. The package works as it is, so that you can
    change it step by step.

    \b
    subquad new mixer my-mixer
    subquad new dataset waves --into ~/plugins
    """
    chosen, known = kind_of(kind), sorted(one.name for one in _TEMPLATES.iterdir() if one.name != "every")
    if chosen not in known:
        raise PluginError(f"KIND: got {kind!r}, must be one of {', '.join(known)}")
    if problem := _name_problem(chosen, name):
        raise PluginError(f"NAME: got {name!r}, {problem}")
    folder = into / name
    if folder.exists() or folder.is_symlink():
        raise PluginError(f"{folder}: is there already; choose another NAME, or another folder with --into")
    written = package_files(chosen, name)
    with tempfile.TemporaryDirectory(dir=into, prefix=".new-") as scratch:
        for path, text in written.items():
            target = Path(scratch, name, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        Path(scratch, name).rename(folder)
    print_line(f"{folder}: {len(written)} files. Next:")
    for line in (f"cd {folder}", *written["README.md"].split("```")[1].strip().splitlines()):
        print_line(f"  {line}")


def package_files(kind: Kind, name: str) -> dict[str, str]:
    """The text of each file of a new package, by its path."""
    module, cls = name.replace("-", "_"), _class_name(name)
    words = {"kind": kind, "name": name, "module": module, "cls": cls, "group": GROUPS[kind]}
    words |= {"version": version("subquad"), "api": str(API_VERSION)}
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    render = lambda text: environment.from_string(text).render(words)  # noqa: E731
    return {
        render(path.relative_to(root).as_posix().removesuffix(".j2")): render(path.read_text(encoding="utf-8"))
        for root in (_TEMPLATES / "every", _TEMPLATES / kind)
        for path in sorted(root.rglob("*.j2"))
    }


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in re.split("[-_]", name))


def _name_problem(kind: Kind, name: str) -> str:
    """Why a plugin, and its package and module, cannot be called so; "" where they can."""
    if not re.fullmatch("[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        return f"write lower case letters, digits, - and _, a letter first, such as my-{kind}"
    owners = {found.name: found.owner for found in find_plugins(kind)}
    if kind == "space":  # `auto` is one without a file
        owners = {"auto": "subquad"} | {file.name: file.found.owner for file in yaml_files(kind)}
    if name in owners:
        return f"a {kind} of {owners[name]}; choose another name, such as my-{name}"
    module, cls = name.replace("-", "_"), _class_name(name)
    if keyword.iskeyword(module) or keyword.iskeyword(cls):
        return f"a word of Python; choose another, such as my-{name}"
    if next(iter(distributions(name=name)), None) or getattr(importlib.util.find_spec(module), "origin", None):
        return f"a package or module that is installed; choose another name, such as my-{name}"
    code = "".join(path.read_text(encoding="utf-8") for path in (_TEMPLATES / kind).rglob("*.py.j2"))
    if re.search(rf"(import .*|class )\b{cls}\b", code):
        return f"a name that the new package's code needs; choose another, such as my-{name}"
    return ""
