"""What the shell completes beside commands and options: recipes, settings, plugins, kinds, files.

Click calls these with the words of a command that is being typed. Nothing is imported of plugins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

Offered = list[CompletionItem]


@add_completion_class
class _Bash(BashComplete):
    """With files where nothing else fits, and with settings, which Bash takes apart at `=`."""

    source_template = BashComplete.source_template.replace(
        "-o nosort -F", "-o nosort -o default -F"
    ).replace("    return 0", "    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n    return 0")
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, begun = super().get_completion_args()
        joined: list[str] = []
        for word in (*words, begun):
            if joined and (word == "=" or joined[-1].endswith("=")):
                joined[-1] += word
            else:
                joined.append(word)
        self._typed = joined.pop()
        return joined, self._typed

    def format_completion(self, item: CompletionItem) -> str:
        if "=" in self._typed and item.type == "plain":
            _, _, value = str(item.value).partition("=")
            return f"plain,{value}"
        return super().format_completion(item)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Recipes and files."""
    from subquad.registry import recipes

    return [_file(incomplete), *_beginning(recipes(), incomplete)]


def run_folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    return [CompletionItem(incomplete, type="dir")]


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Paths of an experiment's settings; after `mixer=` and the like names of plugins."""
    paths, parts = _paths()
    key, equals, _ = incomplete.partition("=")
    words: list[str] = []
    if not equals:
        words = [f"{path}=" for path in paths]
    elif key in parts:
        words = [f"{key}={name}" for name in _names(key)]
    return _beginning(words, incomplete)


def mixers(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Names of mixers, and files."""
    return [_file(incomplete), *_beginning(_names("mixer"), incomplete)]


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Kinds of plugins."""
    from subquad.registry import Kind

    return _beginning(get_args(Kind), incomplete)


def plugins(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Kinds and names of all that is installed; after a kind the names of that kind."""
    kind = ctx.params.get("kind") if param.name != "kind" else None
    names = _beginning(_names(kind), incomplete)
    if kind:
        return names
    return [*kinds(ctx, param, incomplete), *names]


def spaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Names of search spaces, which may be joined by `+`; and files."""
    from subquad.registry import recipes

    before = incomplete[: incomplete.rfind("+") + 1]
    names = [f"{before}{name}" for name in recipes("space")]
    return [_file(incomplete), *_beginning(names, incomplete)]


def _file(incomplete: str) -> CompletionItem:
    """Lets the shell complete a file. It comes first: Bash forgets what stands before it."""
    return CompletionItem(incomplete, type="file")


def _beginning(words: Iterable[str], incomplete: str) -> Offered:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _names(kind: str | None) -> list[str]:
    """Of the plugins and files of a kind, or of all."""
    from subquad.errors import PluginError
    from subquad.registry import find_plugins, recipes
    from subquad.registry.found import kind_of
    from subquad.registry.shipped import FileKind

    try:
        chosen = kind_of(kind) if kind else None
    except PluginError:
        return []
    files = get_args(FileKind)
    names = [plugin.name for plugin in find_plugins(chosen) if plugin.kind not in files]
    for file in files:
        if chosen in (None, file):
            names += recipes(file)
    return list(dict.fromkeys(names))


def _paths() -> tuple[list[str], list[str]]:
    """Dotted paths of the settings, those that name a plugin among them; and these alone."""
    from subquad.experiment.key_names import known_keys
    from subquad.experiment.schema import Component, Experiment
    from subquad.experiment.settings import dotted

    known = known_keys(Experiment)
    component = tuple(Component.model_fields)
    parts = [path for path, names in known.items() if names == component]
    settings: list[str] = []
    for above, names in known.items():
        if above in parts:
            continue
        for name in names:
            path = (*above, name)
            if path in parts or path not in known:
                settings.append(dotted(path))
    return settings, [dotted(path) for path in parts]
