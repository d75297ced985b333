"""`subquad list`, `subquad show` and `subquad doctor`: what is installed, one plugin, and whether all of them work."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import click

from subquad.cli.tables import kind_of, print_json, print_line, print_table
from subquad.errors import PluginError
from subquad.registry import (
    Found,
    ParameterRow,
    Resolved,
    blocked,
    clash,
    describe_config,
    find_plugins,
    plugin_facts,
    recipe,
    resolve,
    stdout_to_stderr,
)
from subquad.registry.files import FileKind, folder_faults, yaml_files
from subquad.registry.found import environment_warnings, metadata_faults
from subquad.registry.health import PluginHealth, VersionCheck, check_versions, examine

_FILES: tuple[FileKind, ...] = get_args(FileKind)


@click.command("list")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(kind: str | None, as_json: bool) -> None:
    """List what is installed: all of it, or one KIND.

    KIND is mixer, backbone, task, dataset, recipe, space or published. No plugin is imported.

    \b
    subquad list
    subquad list mixers
    """
    chosen = kind_of(kind) if kind else None
    rows = [row for row in (*_plugin_rows(), *_file_rows()) if chosen in (None, row["kind"])]
    faults = [*metadata_faults(), *(fault for one in _FILES if chosen in (None, one) for fault in folder_faults(one))]
    if as_json:
        print_json({"plugins": rows, "faults": faults})
        return
    print_table(("kind", "name", "distribution", "what it is", ""), [_list_cells(row) for row in rows])
    for note in dict.fromkeys(_footnote(row) for row in rows if row["note"]):
        print_line(f"† {note}")
    for fault in faults:
        print_line(f"† {fault}")


def _plugin_rows() -> list[dict[str, Any]]:
    return [_row(found, found.name, _note(found)) for found in find_plugins() if found.kind not in _FILES]


def _note(found: Found) -> str | None:
    if reason := blocked(found.distribution):
        return f"blocked: {reason}"
    return clash(found)


def _file_rows() -> list[dict[str, Any]]:
    rows = [(kind, file) for kind in _FILES for file in yaml_files(kind)]
    count = Counter((kind, file.name) for kind, file in rows)
    return [
        _row(file.found, file.name, f"write {file.full_name}" if count[kind, file.name] > 1 else None, file.summary)
        for kind, file in rows
    ]


def _row(found: Found, name: str, note: str | None, summary: str = "") -> dict[str, Any]:
    return {
        "kind": found.kind,
        "name": name,
        "distribution": found.distribution,
        "version": found.version,
        "target": found.target,
        "summary": summary,
        "note": note,
    }


def _list_cells(row: dict[str, Any]) -> tuple[str, ...]:
    owner = f"{row['distribution']} {row['version']}"
    return (row["kind"], row["name"], owner, row["summary"] or row["target"], "†" if row["note"] else "")


def _footnote(row: dict[str, Any]) -> str:
    note = row["note"]
    return note if " is offered by " in note else f"{row['kind']} {row['name']} ({row['distribution']}): {note}"


@click.command("show")
@click.argument("kind")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_command(kind: str, name: str | None, as_json: bool) -> None:
    """Show one plugin: its parameters, what it claims, its paper.

    A recipe, a space or a published table is shown as its text, and `experiment` as the keys of an experiment file.

    \b
    subquad show mixer agf
    subquad show mixer ./mine.py:MyMixer
    subquad show recipe quickstart
    subquad show experiment
    """
    chosen: str = kind_of(kind, also=("experiment",))
    if chosen == "experiment":
        return _show_experiment(name, as_json)
    if name is None:
        raise PluginError(f"which {chosen}? `subquad list {chosen}` shows what is installed")
    if chosen in _FILES:
        return _show_file(chosen, name, as_json)
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
    print_table(
        ("name", "symbol", "type", "range", "default", "search", "meaning"),
        [(row.name, row.symbol, row.type, row.range, row.default_text, row.search_text, _meaning(row)) for row in rows],
    )


def _meaning(row: ParameterRow) -> str:
    return f"{row.meaning} [{row.unit}]" if row.unit else row.meaning


@click.command("doctor")
@click.argument("kind", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one plugin's imports may take.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at a time. Default: the number of cores.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(kind: str | None, timeout: float, jobs: int | None, as_json: bool) -> int:
    """Import every installed plugin, or those of one KIND, each in a process of its own.

    Installed packages with known security faults are named too. The exit code is 1 where a plugin is broken.

    \b
    subquad doctor
    subquad doctor mixers --timeout 30
    """
    chosen = kind_of(kind) if kind else None
    reports = [_read(one) for one in examine(timeout, kind=chosen, jobs=jobs, done=None if as_json else _progress)]
    warnings, versions = environment_warnings(), check_versions()
    if as_json:
        plugins = [{**asdict(one.found), "status": one.status, **_reasons(one)} for one in reports]
        print_json({"plugins": plugins, "warnings": warnings, "versions": [asdict(check) for check in versions]})
    else:
        _print_health(reports, warnings, versions)
    return int(any(report.status == "broken" for report in reports))


def _read(report: PluginHealth) -> PluginHealth:
    """The same of a published table, once its files were read too."""
    if report.found.kind != "published" or report.status != "ok":
        return report
    from subquad.report.published import published_faults

    faults = published_faults(report.found)
    return replace(report, status="broken", reason="; ".join(faults)) if faults else report


def _progress(report: PluginHealth) -> None:
    if sys.stderr.isatty():
        click.echo(f"{report.found}: {report.status}", err=True)


def _reasons(report: PluginHealth) -> dict[str, Any]:
    return {"reason": report.reason, "warnings": report.warnings}


def _print_health(reports: list[PluginHealth], warnings: list[str], versions: list[VersionCheck]) -> None:
    cells = [(report.status, report.found.kind, report.found.name, report.found.owner) for report in reports]
    print_table(("status", "kind", "name", "distribution"), cells)
    for report in reports:
        if report.reason:
            where = "" if report.status == "broken" else f"{report.found}: "  # a broken plugin's reason names it
            print_line(f"{report.status}: {where}{report.reason}")
        for warning in report.warnings:
            print_line(f"warning: {report.found}: {warning}")
    for warning in warnings:
        print_line(f"warning: {warning}")
    for check in versions:
        if not check.ok:
            print_line(f"warning: {check.package} {check.installed} is older than {check.floor}: {check.why}")
    broken = sum(report.status == "broken" for report in reports)
    print_line(f"{len(reports)} plugins, {broken} broken")
