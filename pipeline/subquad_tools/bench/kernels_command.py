"""`subquad bench kernels`."""

from __future__ import annotations

from typing import Any

import click

from subquad_tools.bench.mixers_command import (
    ROOFS,
    formatted,
    notes_of,
    print_measured,
    refuse_two_forms,
    speed_options,
)

_COLUMNS = (
    ("operation", "{operation}"),
    ("by", "{implementation}{star}"),
    ("L", "{length}"),
    ("us\nfwd", "{forward_us:.0f}"),
    ("\nfwd+bwd", "{both_us:.0f}"),
    ("/ reference\nfwd", "{forward_ratio:.2f}"),
    ("\nfwd+bwd", "{both_ratio:.2f}"),
    ("/ attention\nfwd+bwd", "{attention_ratio:.2f}"),
    *ROOFS,
)


@click.command("kernels")
@speed_options("2048")
def kernels_command(
    rows: tuple[str, ...], as_json: bool, as_markdown: bool, **settings: Any
) -> int:
    """Compare the implementations of what mixers compute with their references.

    Every operation that a mixer calls is timed with the arguments of that call, after all
    implementations have given the same numbers. Without names, all installed mixers are looked at.

    \b
    subquad bench kernels                         every operation of every mixer
    subquad bench kernels agf --lengths 512,4096
    """
    from subquad_tools.bench.kernels import time_kernels
    from subquad_tools.bench.rows import SpeedSettings, choose_mixers

    refuse_two_forms(as_json, as_markdown)
    chosen, left_out = choose_mixers(rows)
    found = time_kernels(chosen, SpeedSettings.read(settings, "options"), left_out)
    records = [{**row, "star": "*" if row["chosen"] else ""} for row in found["kernels"]]
    print_measured(
        {"what": "kernels", **found},
        [formatted(_COLUMNS, records)],
        notes_of("kernels_notes.txt.j2", found),
        as_json=as_json,
        as_markdown=as_markdown,
    )
    return 0
