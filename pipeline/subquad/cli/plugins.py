"""`subquad list`, `subquad show` and `subquad doctor`: what is installed, one plugin, and
whether all of them work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from subquad.cli.options import JSON
from subquad.completion import kinds, plugins
from subquad.errors import PluginError, escaped
from subquad.output.terminal import print_json, print_line, print_table
from subquad.registry import (
    Found,
    Kind,
    ParameterRow,
    Resolved,
    blocked,
    clash,
    describe_config,
    find_plugins,
    plugin_facts,
    recipe,
    recipes,
    resolve,
    stdout_to_stderr,
)
from subquad.registry.declared import declared_constants
from subquad.registry.found import check_environment, environment_warnings, kind_of, metadata_faults
from subquad.registry.health import PluginHealth, examine, wrong_versions
from subquad.registry.shipped import FileKind, folder_faults, yaml_files
from subquad.suggest import did_you_mean, to_paste

if TYPE_CHECKING:
    from subquad.plugin import Plugin

_FILES: tuple[FileKind, ...] = get_args(FileKind)


@click.command("list")
@click.argument("kind", required=False, shell_complete=kinds)
@JSON
def list_command(kind: str | None, as_json: bool) -> None:
    """List what is installed: all of it, or one KIND.

    KIND is mixer, backbone, task, dataset, recipe, space or published. What a plugin is, and how
    its cost grows with the length L, is read from its text. No plugin is imported.

    \b
    subquad list
    subquad list mixers
    """
    chosen = kind_of(kind) if kind else None
    rows = [row for row in _rows() if chosen in (None, row["kind"])]
    faults = [*metadata_faults()]
    for file in _FILES:
        if chosen in (None, file):
            faults += folder_faults(file)
    if as_json:
        return print_json({"plugins": rows, "faults": faults})
    columns = ["kind", "name", "what it is", "grows", "from"]
    if chosen is not None:
        columns.remove("kind")
    if chosen not in (None, "mixer"):
        columns.remove("grows")
    cells: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        note = row["note"]
        texts = {
            **row,
            "name": f"{row['name']} †" if note else row["name"],
            "what it is": row["summary"] or row["target"],
            "from": f"{row['distribution']} {row['version']}",
        }
        cells.append([texts[column] for column in columns])
        if note:
            says_whose = " is offered by " in note
            whose = "" if says_whose else f"{row['kind']} {row['name']} ({row['distribution']}): "
            notes.append(f"{whose}{note}")
    print_table(columns, cells, cut="what it is")
    for note in dict.fromkeys([*notes, *faults]):
        print_line(f"† {note}")


def _rows() -> Iterator[dict[str, Any]]:
    for found in find_plugins():
        if found.kind not in _FILES:
            reason = blocked(found.distribution)
            note = f"blocked: {reason}" if reason else clash(found)
            said = declared_constants(found)
            yield _row(found, note, str(said.get("summary", "")), said.get("complexity") or "")
    for kind in _FILES:
        unique = recipes(kind)
        for file in yaml_files(kind):
            note = None if file.name in unique else f"write {file.full_name}"
            yield _row(file, note, file.summary)


def _row(found: Found, note: str | None, summary: str, grows: str = "") -> dict[str, Any]:
    return {key: getattr(found, key) for key in ("kind", "name", "distribution", "version")} | {
        "target": found.target,
        "summary": summary,
        "grows": grows,
        "note": note,
    }


@click.command("show")
@click.argument("kind", metavar="[KIND]", shell_complete=plugins)
@click.argument("name", required=False, metavar="NAME", shell_complete=plugins)
@JSON
def show_command(kind: str, name: str | None, as_json: bool) -> None:
    """Show one plugin: its parameters, what it claims, its paper.

    KIND may be left out. A recipe, a space or a published table is shown as its text, and
    `experiment` as the keys of an experiment file.

    \b
    subquad show agf
    subquad show ./mine.py:MyMixer
    subquad show mixer agf
    subquad show recipe quickstart
    subquad show experiment
    """
    others = list[str]()
    try:
        chosen: str = kind_of(kind, also=("experiment",))
    except PluginError:
        if name is not None:
            raise
        name, (chosen, *others) = kind, _kinds_with(kind)
    if chosen == "experiment":
        return _show_experiment(name, as_json)
    if name is None:
        raise PluginError(f"which {chosen}? `{to_paste('list', chosen)}` shows what is installed")
    if chosen in _FILES:
        _show_file(chosen, name, as_json)
    else:
        with stdout_to_stderr():
            resolved = resolve(kind_of(chosen), name)
        _show_plugin(resolved, as_json)
    if not as_json:
        for other in others:
            print_line(f"there is also a {other} of this name: {to_paste('show', other, name)}")
    return None


def _kinds_with(name: str) -> list[str]:
    """The kinds of which something is called so, files last.

    Raises:
        PluginError: nothing is.
    """
    if ".py:" in name:
        return ["mixer"]
    rows = [found for found in find_plugins() if found.kind not in (*_FILES, "command")]
    for kind in _FILES:
        rows += yaml_files(kind)
    kinds = dict.fromkeys(row.kind for row in rows if name in (row.name, row.full_name))
    if kinds:
        return [*kinds]
    hint = did_you_mean(name, [*[row.name for row in rows], *get_args(Kind), "experiment"])
    raise PluginError(
        escaped(f"nothing is called {name!r}{hint} (`subquad list` shows what is installed)")
    )


def _show_experiment(name: str | None, as_json: bool) -> None:
    from subquad.experiment.schema import Experiment, decides_numbers

    if name is not None:
        raise PluginError(
            "`subquad show experiment` takes no name: it lists the keys an experiment file may hold"
        )
    rows = describe_config(Experiment)
    free = [row.name for row in rows if not decides_numbers(row.name)]
    if as_json:
        return print_json(
            {
                "parameters": [
                    {**asdict(row), "decides_numbers": row.name not in free} for row in rows
                ]
            }
        )
    _print_parameters(rows)
    print_line()
    return print_line(f"These decide no numbers: {', '.join(free)}")


def _show_file(kind: FileKind, name: str, as_json: bool) -> None:
    file = recipe(name, kind)
    if as_json:
        own = {key: getattr(file, key) for key in ("name", "distribution", "version")}
        return print_json({"kind": kind, **own, "path": str(file.path), "text": file.text()})
    print_line(f"# {kind} {file.name}, {file.owner}, {file.path}")
    for line in file.text().splitlines():
        print_line(line)


def _show_plugin(resolved: Resolved, as_json: bool) -> None:
    plugin = resolved.plugin
    facts = _facts(plugin)
    origin = plugin_facts(resolved)
    parameters = describe_config(plugin.config)
    if as_json:
        return print_json(
            {
                **origin,
                "summary": plugin.summary,
                "paper": plugin.paper,
                "facts": facts,
                "parameters": [asdict(row) for row in parameters],
            }
        )
    print_line(f"{origin['kind']} {origin['name']}: {plugin.summary}")
    owner = "this file" if resolved.source else f"{origin['distribution']} {origin['version']}"
    rows = {
        "distribution": owner,
        "plugin API": origin["api"],
        "sha256": origin["sha256"] or "not recorded",
        **({"paper": plugin.paper} if plugin.paper else {}),
        **{key.replace("_", " "): _words(key, value) for key, value in facts.items()},
    }
    for name, params in getattr(plugin, "variants", {}).items():
        rows[f"variant {name}"] = ", ".join([f"{key}={value}" for key, value in params.items()])
    print_table(("", ""), rows.items())
    if not parameters:
        return print_line("no parameters")
    print_line()
    return _print_parameters(parameters)


def _facts(plugin: Plugin) -> dict[str, Any]:
    """What this kind of plugin says beyond what every plugin says; of a mixer, what holds with
    the defaults.
    """
    from subquad.plugin import MixerPlugin, Plugin

    if isinstance(plugin, MixerPlugin):
        needed = any(field.is_required() for field in plugin.config.model_fields.values())
        return asdict(plugin.facts if needed else plugin.facts_of(plugin.config()))
    common = {field.name for field in fields(Plugin)}
    names = [field.name for field in fields(plugin)]
    return {name: getattr(plugin, name) for name in names if name not in common}


def _words(key: str, value: Any) -> str:
    if value is None and key in ("permutation_equivariant", "complexity"):
        return "not claimed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "any" if value is None else str(value)


def _print_parameters(rows: list[ParameterRow]) -> None:
    print_table(
        ("name", "symbol", "value", "default", "search", "when", "meaning"),
        [
            (
                row.name,
                row.symbol,
                row.value,
                row.default_text,
                row.search_text,
                row.when,
                f"{row.meaning} [{row.unit}]" if row.unit else row.meaning,
            )
            for row in rows
        ],
    )


@click.command("doctor")
@click.argument("kind", required=False, shell_complete=kinds)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one plugin's imports may take.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes at a time. Default: the number of cores."
)
@JSON
def doctor_command(kind: str | None, timeout: float, jobs: int | None, as_json: bool) -> int:
    """Import every installed plugin, or those of one KIND, each in a process of its own.

    Packages in a version that subquad does not ask for are named too. The exit code is 1 where a
    plugin is broken.

    \b
    subquad doctor
    subquad doctor mixers --timeout 30
    """
    chosen = kind_of(kind) if kind else None
    check_environment()
    reports = [
        _read(report)
        for report in examine(timeout, kind=chosen, jobs=jobs, done=None if as_json else _progress)
    ]
    warnings = [*environment_warnings(), *wrong_versions()]
    if as_json:
        plugins: list[dict[str, Any]] = []
        for plugin in map(asdict, reports):
            plugins.append(plugin.pop("found") | plugin)
        print_json({"plugins": plugins, "warnings": warnings})
    else:
        _print_health(reports, warnings)
    return int(any(report.status == "broken" for report in reports))


def _read(report: PluginHealth) -> PluginHealth:
    """The same of a published table, once its files were read too."""
    if report.found.kind != "published" or report.status != "ok":
        return report
    from subquad.reports.published import published_faults

    faults = published_faults(report.found)
    return replace(report, status="broken", reason="; ".join(faults)) if faults else report


def _progress(report: PluginHealth) -> None:
    if sys.stderr.isatty():
        print_line(f"{report.found}: {report.status}", err=True)


def _print_health(reports: list[PluginHealth], warnings: list[str]) -> None:
    print_table(
        ("status", "kind", "name", "distribution"),
        [
            (report.status, report.found.kind, report.found.name, report.found.owner)
            for report in reports
        ],
    )
    for report in reports:
        if report.reason:
            # a broken plugin's reason names it
            where = "" if report.status == "broken" else f"{report.found}: "
            print_line(f"{report.status}: {where}{report.reason}")
        for warning in report.warnings:
            print_line(f"warning: {report.found}: {warning}")
    for warning in warnings:
        print_line(f"warning: {warning}")
    broken = sum(report.status == "broken" for report in reports)
    print_line(f"{len(reports)} plugins, {broken} broken")
