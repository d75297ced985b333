"""`subquad bench kernels`."""

from __future__ import annotations

from typing import Any

import click

from subquad.reach import Reach
from subquad_tools.bench.mixers_command import (
    check_options,
    formatted,
    notes_of,
    print_measured,
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

    Every operation that a mixer calls is timed with the arguments of that call, after all
    implementations have given the same numbers. Without names, all installed mixers are looked at.

    \b
    subquad bench kernels                         every operation of every mixer
    subquad bench kernels agf --lengths 512,4096
    """
    from subquad_tools.bench.kernels import time_kernels
    from subquad_tools.bench.rows import SpeedSettings, choose_mixers

    check_options(dim, heads, as_json, as_markdown)
    chosen, skipped = choose_mixers(rows)
    used = SpeedSettings(dim=dim, heads=heads, **settings)
    found = time_kernels(chosen, used, skipped=skipped, strict=bool(rows))
    records = []
    calls = {}
    for kernel in found["kernels"]:
        records.append({**kernel, "star": "*" if kernel["chosen"] else ""})
        shape = tuple(kernel["shape"])
        call = f"{kernel['operation']} of {kernel['mixer']} at length {kernel['length']}"
        calls[f"{call}: first argument {shape}"] = None
    print_measured(
        {"what": "kernels", **found},
        formatted(_COLUMNS, records),
        notes_of("kernels_notes.txt.j2", found, calls=calls),
        as_json=as_json,
        as_markdown=as_markdown,
    )
    return 0
