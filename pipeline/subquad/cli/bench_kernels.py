"""`subquad bench kernels`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from subquad.cli.bench_mixers import (
    MISSING,
    as_markdown_lines,
    check_options,
    how_measured,
    progress,
    reached,
    speed_options,
)
from subquad.cli.tables import print_line, print_table, print_text
from subquad.reach import Reach

_COLUMNS = (
    ("operation", "{operation}"),
    ("by", "{implementation}{star}"),
    ("L", "{length}"),
    ("us\nfwd", "{forward_us:.0f}"),
    ("\nfwd+bwd", "{both_us:.0f}"),
    ("/ reference\nfwd", "{forward_ratio:.2f}"),
    ("\nfwd+bwd", "{both_ratio:.2f}"),
    ("/ attention\nfwd+bwd", "{both_attention:.2f}"),
    ("GB/s\nfwd", "{gbytes:.1f}"),
    ("peak\nMiB", "{peak_mib:.1f}"),
)


@click.command("kernels")
@speed_options("2048")
@Reach(reads="a file in NAME", runs="a file in NAME")
def kernels_command(
    rows: tuple[str, ...], as_json: bool, as_markdown: bool, dim: int, heads: int, **settings: Any
) -> int:
    """Compare the implementations of what mixers compute with their references.

    Every operation that a mixer calls is timed with the arguments of that call, after all implementations have given
    the same numbers. Without names, all installed mixers are looked at.

    \b
    subquad bench kernels                         every operation of every mixer
    subquad bench kernels agf --lengths 512,4096
    """
    from subquad.bench.kernels import time_kernels
    from subquad.bench.rows import SpeedSettings, choose_mixers

    check_options(dim, heads, as_json, as_markdown)
    chosen, skipped = choose_mixers(rows)
    used = SpeedSettings(dim=dim, heads=heads, **settings)
    found = time_kernels(chosen, used, skipped=skipped, strict=bool(rows), done=progress)
    if as_json:
        click.echo(json.dumps({"what": "kernels", **found}, allow_nan=False))
    elif as_markdown:
        print_text("\n".join(as_markdown_lines(*_table(found), _notes(found))) + "\n")
    else:
        print_table(*_table(found))
        for note in _notes(found):
            print_line(note)
    return 0


def _table(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    shown = [{key: MISSING if value is None else value for key, value in one.items()} for one in found["kernels"]]
    shown = [{**one, "star": "*" if one["chosen"] else ""} for one in shown]
    return [title for title, _ in _COLUMNS], [[cell.format(**one) for _, cell in _COLUMNS] for one in shown]


def _notes(found: dict[str, Any]) -> Iterator[str]:
    yield how_measured(found)
    yield (
        f"{reached(found)}; * runs by itself; attention: torch's, without projections, of as many tokens and heads; "
        "GB/s: arguments and results, each once"
    )
    calls = [(one["operation"], one["mixer"], one["length"], tuple(one["shape"])) for one in found["kernels"]]
    for operation, mixer, length, shape in dict.fromkeys(calls):
        yield f"{operation} of {mixer} at length {length}: first argument {shape}"
    for reason in found["skipped"]:
        yield f"skipped: {reason}"
