"""`subquad list`: what is installed, from metadata alone; no plugin is imported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from subquad.cli.tables import kind_of, print_json, print_line, print_table
from subquad.registry.files import FileKind, folder_faults, yaml_files
from subquad.registry.found import Found, Kind, ambiguous, blocked, find_plugins, metadata_faults, namesakes

_FILES: tuple[FileKind, ...] = ("recipe", "space")


@click.command("list", short_help="List the plugins and recipes that are installed.")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str | None, as_json: bool) -> None:
    """List installed plugins and recipes, of one KIND or all. Nothing is imported."""
    chosen = kind_of(kind) if kind else None
    rows = [row for row in (*_plugins(), *_files()) if chosen in (None, row["kind"])]
    faults = [*metadata_faults(), *(fault for one in _FILES if chosen in (None, one) for fault in folder_faults(one))]
    if as_json:
        print_json({"plugins": rows, "faults": faults})
    else:
        _print(rows, faults)


def _plugins() -> list[dict[str, Any]]:
    return [_row(found, found.name, _note(found)) for found in find_plugins() if found.kind not in _FILES]


def _note(found: Found) -> str | None:
    if reason := blocked(found.distribution):
        return f"blocked: {reason}"
    others = namesakes(found)
    return ambiguous([found, *others]) if others else None


def _files() -> list[dict[str, Any]]:
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


def _print(rows: list[dict[str, Any]], faults: list[str]) -> None:
    print_table(("kind", "name", "distribution", "what it is", ""), [_cells(row) for row in rows])
    for note in dict.fromkeys(_footnote(row) for row in rows if row["note"]):
        print_line(f"† {note}")
    for fault in faults:
        print_line(f"† {fault}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    owner = f"{row['distribution']} {row['version']}"
    return (row["kind"], row["name"], owner, row["summary"] or row["target"], "†" if row["note"] else "")


def _footnote(row: dict[str, Any]) -> str:
    kind: Kind = row["kind"]
    return (
        row["note"]
        if " is offered by " in row["note"]
        else f"{kind} {row['name']} ({row['distribution']}): {row['note']}"
    )
