"""`subquad show`: one plugin's parameters, facts and origin; a recipe's text; or the keys of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import click

from subquad.cli.tables import kind_of, print_json, print_line, print_table
from subquad.errors import PluginError
from subquad.registry import describe_config, plugin_facts, recipe, resolve, stdout_to_stderr
from subquad.registry.files import FileKind
from subquad.registry.loaded import Resolved
from subquad.registry.parameters import ParameterRow


@click.command("show", short_help="Show one plugin: parameters, facts, paper.")
@click.argument("kind")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str, name: str | None, as_json: bool) -> None:
    """Show the plugin NAME of a KIND, `show mixer ./file.py:Class`, `show recipe NAME`, or `show experiment`."""
    chosen: str = kind_of(kind, also=("experiment",))
    if chosen == "experiment":
        return _show_experiment(name, as_json)
    if name is None:
        raise PluginError(f"which {chosen}? `subquad list {chosen}` shows what is installed")
    if chosen in ("recipe", "space"):
        return _show_file(chosen, name, as_json)  # pyright: ignore[reportArgumentType]
    with stdout_to_stderr():
        resolved = resolve(kind_of(chosen), name)
    return _show_plugin(resolved, as_json)


def _show_experiment(name: str | None, as_json: bool) -> None:
    from subquad.experiment.schema import Experiment

    if name is not None:
        raise PluginError("`subquad show experiment` takes no name: it lists the keys an experiment file may hold")
    rows = describe_config(Experiment)
    if as_json:
        print_json({"parameters": [asdict(row) for row in rows]})
    else:
        _print_parameters(rows)


def _show_file(kind: FileKind, name: str, as_json: bool) -> None:
    file = recipe(name, kind)
    if as_json:
        owner = {"distribution": file.distribution, "version": file.found.version, "path": str(file.path)}
        print_json({"kind": kind, "name": file.name, **owner, "text": file.text()})
        return
    print_line(f"# {kind} {file.name}, {file.found.owner}, {file.path}")
    for line in file.text().splitlines():
        print_line(line)


def _show_plugin(resolved: Resolved, as_json: bool) -> None:
    plugin, rows = resolved.plugin, describe_config(resolved.plugin.config)
    origin = plugin_facts(resolved)
    if as_json:
        said = {"summary": plugin.summary, "paper": plugin.paper, "facts": _facts(resolved)}
        print_json({**origin, **said, "parameters": [asdict(row) for row in rows]})
        return
    print_line(f"{origin['kind']} {origin['name']}: {plugin.summary}")
    print_table(("", ""), _origin_rows(resolved, origin))
    if rows:
        print_line()
        _print_parameters(rows)
    else:
        print_line("no parameters")


def _origin_rows(resolved: Resolved, origin: dict[str, Any]) -> list[tuple[str, Any]]:
    owner = "this file" if resolved.source else f"{origin['distribution']} {origin['version']}"
    rows = [("distribution", owner), ("plugin API", origin["api"]), ("sha256", origin["sha256"] or "not recorded")]
    if resolved.plugin.paper:
        rows.append(("paper", resolved.plugin.paper))
    rows += [(key.replace("_", " "), _words(key, value)) for key, value in _facts(resolved).items()]
    variants = getattr(resolved.plugin, "variants", {})
    return rows + [(f"variant {name}", _settings(params)) for name, params in variants.items()]


def _facts(resolved: Resolved) -> dict[str, Any]:
    """What this kind of plugin says beyond what every plugin says; of a mixer, what holds with the defaults."""
    from subquad.plugin import MixerPlugin, Plugin

    plugin = resolved.plugin
    if isinstance(plugin, MixerPlugin):
        needed = any(field.is_required() for field in plugin.config.model_fields.values())
        return asdict(plugin.facts if needed else plugin.facts_of(plugin.config()))
    common = {field.name for field in fields(Plugin)}
    return {field.name: getattr(plugin, field.name) for field in fields(plugin) if field.name not in common}


def _settings(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())


def _words(key: str, value: Any) -> str:
    if value is None and key == "permutation_equivariant":
        return "not claimed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "any" if value is None else str(value)


def _print_parameters(rows: list[ParameterRow]) -> None:
    columns = ("name", "symbol", "type", "range", "default", "search", "meaning")
    print_table(columns, [_cells(row) for row in rows])


def _cells(row: ParameterRow) -> tuple[str, ...]:
    meaning = f"{row.meaning} [{row.unit}]" if row.unit else row.meaning
    return (row.name, row.symbol, row.type, row.range, row.default_text, row.search_text, meaning)
