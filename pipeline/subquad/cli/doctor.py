"""`subquad doctor`: probe every plugin in a process of its own, and compare versions with known security floors."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from subquad.cli.tables import kind_of, print_json, print_line, print_table
from subquad.registry.health import PluginHealth, VersionCheck, check_versions, environment_warnings, examine


@click.command("doctor", short_help="Probe every plugin in a process of its own and check versions.")
@click.argument("kind", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one plugin's imports may take.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at a time; default: the number of cores.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str | None, timeout: float, jobs: int | None, as_json: bool) -> int:
    """Probe each installed plugin, of one KIND or all, in a child process. Exit code 1 where any is broken, else 0."""
    chosen = kind_of(kind) if kind else None
    reports = examine(timeout, kind=chosen, jobs=jobs, done=None if as_json else _progress)
    warnings, versions = environment_warnings(), check_versions()
    if as_json:
        print_json(
            {
                "plugins": [_as_row(report) for report in reports],
                "warnings": warnings,
                "versions": [asdict(check) for check in versions],
            }
        )
    else:
        _print(reports, warnings, versions)
    return int(any(report.status == "broken" for report in reports))


def _progress(report: PluginHealth) -> None:
    if sys.stderr.isatty():
        click.echo(f"{report.found}: {report.status}", err=True)


def _as_row(report: PluginHealth) -> dict[str, Any]:
    return {**asdict(report.found), "status": report.status, "reason": report.reason, "warnings": report.warnings}


def _print(reports: list[PluginHealth], warnings: list[str], versions: list[VersionCheck]) -> None:
    cells = [(report.status, report.found.kind, report.found.name, report.found.owner) for report in reports]
    print_table(("status", "kind", "name", "distribution"), cells)
    for report in reports:
        if report.reason:
            print_line(f"{report.status}: {report.reason}" if report.status == "broken" else _blocked(report))
        for warning in report.warnings:
            print_line(f"warning: {report.found}: {warning}")
    for warning in warnings:
        print_line(f"warning: {warning}")
    for check in versions:
        if not check.ok:
            print_line(f"warning: {check.package} {check.installed} is older than {check.floor}: {check.why}")
    broken = sum(report.status == "broken" for report in reports)
    print_line(f"{len(reports)} plugins, {broken} broken")


def _blocked(report: PluginHealth) -> str:
    return f"blocked: {report.found}: {report.reason}"
