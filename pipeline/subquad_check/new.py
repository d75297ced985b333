"""`subquad new`: the package of a new plugin, complete and working, from the folder `templates`
of this package.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import tempfile
from importlib.metadata import distributions, version
from pathlib import Path

import click

from subquad.completion import kinds
from subquad.errors import PluginError
from subquad.output.terminal import print_line
from subquad.registry import GROUPS, Kind, find_plugins, stdout_to_stderr
from subquad.registry.found import kind_of
from subquad.registry.shipped import yaml_files

_TEMPLATES = Path(__file__).parent / "templates"
"""A folder for each kind, and `every` for what all kinds have. Paths are templates too."""


_CLAIMING = """{text}


from subquad.plugin import Facts  # noqa: E402


class {cls}({base}):
    \"\"\"{summary}\"\"\"

    api = {api}
    # found by trying; `subquad check` tests these from now on
    {claims}
"""


@click.command("new")
@click.argument("kind", shell_complete=kinds)
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Where the package's folder is made. Default: this folder.",
)
@click.option(
    "--from",
    "origin",
    metavar="./FILE.py:CLASS",
    help="A mixer's package of this torch module, with the claims that hold for it.",
)
def new_command(kind: str, name: str, into: Path, origin: str | None) -> None:
    """Write a complete package with a plugin of your own, to start from.

    It has code, tests, experiment, README, pyproject.toml and CI file. KIND is mixer, dataset,
    task, backbone or space. NAME is the plugin's. The package works as it is, so that you can
    change it step by step.

    \b
    subquad new mixer my-mixer
    subquad new dataset waves --into ~/plugins
    subquad new mixer my-mixer --from ./my.py:MyModule
    """
    chosen = kind_of(kind)
    known = sorted(folder.name for folder in _TEMPLATES.iterdir())
    known.remove("every")
    if chosen not in known:
        raise PluginError(f"KIND: got {kind!r}, must be one of {', '.join(known)}")
    problem = _name_problem(chosen, name)
    if problem:
        raise PluginError(f"NAME: got {name!r}, {problem}")
    folder = into / name
    if folder.exists() or folder.is_symlink():
        raise PluginError(
            f"{folder}: is there already; choose another NAME, or another folder with --into"
        )
    written = package_files(chosen, name)
    if origin:
        written[f"{_module(name)}.py"] = _claiming(chosen, name, origin)
    with tempfile.TemporaryDirectory(dir=into, prefix=".new-") as scratch:
        package = Path(scratch, name)
        for path, text in written.items():
            target = package / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        package.rename(folder)
    print_line(f"{folder}: {len(written)} files. Next:")
    print_line(f"  cd {folder}")
    _, commands, *_ = written["README.md"].split("```")
    for line in commands.strip().splitlines():
        print_line(f"  {line}")


def package_files(kind: Kind, name: str) -> dict[str, str]:
    """The text of each file of a new package, by its path."""
    from jinja2 import Environment, StrictUndefined

    from subquad.plugin import API_VERSION

    words = {
        "kind": kind,
        "name": name,
        "module": _module(name),
        "cls": _class_name(name),
        "group": GROUPS[kind],
        "version": version("subquad"),
        "api": str(API_VERSION),
    }
    environment = Environment(
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    rendered: dict[str, str] = {}
    for root in (_TEMPLATES / "every", _TEMPLATES / kind):
        for template in sorted(root.rglob("*.j2")):
            path, text = (
                environment.from_string(text).render(words)
                for text in (
                    template.relative_to(root).as_posix().removesuffix(".j2"),
                    template.read_text(encoding="utf-8"),
                )
            )
            rendered[path] = text
    return rendered


def _claiming(kind: Kind, name: str, origin: str) -> str:
    """The text of a bare module's file, with a class at its end that claims what holds.

    Raises:
        PluginError: it is no bare module in a file, it makes claims itself, or it has the name of
            the package's class.
    """
    from subquad.plugin import API_VERSION
    from subquad_check.claims import claims_nothing, found_claims, refuse_unfit
    from subquad_check.subject import check_subjects

    if kind != "mixer" or ".py:" not in origin:
        raise PluginError(f"--from {origin}: only a mixer is made from ./FILE.py:CLASS")
    with stdout_to_stderr():
        subject, *_ = check_subjects(origin)
        refuse_unfit(subject)
        if not claims_nothing(subject):
            raise PluginError(f"--from {origin}: it says itself what it claims; use it as it is")
    source = subject.resolved.source
    assert source
    cls = _class_name(name)
    if re.search(rf"\b{cls}\b", source.text):
        raise PluginError(
            f"NAME: got {name!r}, whose class {cls} is in {source.path} already; choose another "
            f"name, such as {name}-mixer"
        )
    with stdout_to_stderr():
        claims = found_claims(subject)
    return _CLAIMING.format(
        text=source.text.removeprefix("\ufeff").rstrip(),
        cls=cls,
        base=source.attribute,
        summary=subject.resolved.plugin.summary.replace('"', "'") or f"{source.attribute}.",
        api=API_VERSION,
        claims=claims.code,
    )


def _module(name: str) -> str:
    return name.replace("-", "_")


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in re.split("[-_]", name))


def _name_problem(kind: Kind, name: str) -> str:
    """Why a plugin, and its package and module, cannot be called so; "" where they can."""
    if not re.fullmatch("[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        return f"write lower case letters, digits, - and _, a letter first, such as my-{kind}"
    known = yaml_files(kind) if kind == "space" else find_plugins(kind)
    owners = {found.name: found.owner for found in known}
    if kind == "space":
        owners.setdefault("auto", "subquad")  # which has no file
    if name in owners:
        return f"a {kind} of {owners[name]}; choose another name, such as my-{name}"
    module = _module(name)
    cls = _class_name(name)
    if keyword.iskeyword(module) or keyword.iskeyword(cls):
        return f"a word of Python; choose another, such as my-{name}"
    spec = importlib.util.find_spec(module)
    if any(distributions(name=name)) or (spec and spec.origin):
        return f"a package or module that is installed; choose another name, such as my-{name}"
    for template in (_TEMPLATES / kind).rglob("*.py.j2"):
        if re.search(rf"(import .*|class )\b{cls}\b", template.read_text(encoding="utf-8")):
            return f"a name that the new package's code needs; choose another, such as my-{name}"
    return ""
