"""`subquad bench mixers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from subquad.output.terminal import LocalPath, print_line, print_table, print_text

if TYPE_CHECKING:
    from subquad_tools.bench.rows import Measured, MixerChoice

_POSITIVE = click.IntRange(1)
_PACKAGE = "subquad_tools.bench"
"""Where the templates are."""


def _lengths(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    lengths: dict[int, None] = {}
    for part in text.split(","):
        if not part.strip().isdecimal() or not int(part):
            raise click.BadParameter(f"{text!r} is not a list of lengths, such as 512,1024")
        lengths[int(part)] = None
    return tuple(lengths)


def speed_options(lengths: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options of everything that times mixers; `lengths` is the default of one."""
    option = partial(click.option, show_default=True)
    options = (
        click.argument("rows", nargs=-1, metavar="[NAME[:key=value,...]]..."),
        option(
            "--lengths",
            metavar="L,L,...",
            callback=_lengths,
            default=lengths,
            help="Sequence lengths.",
        ),
        option("--dim", type=_POSITIVE, default=128, help="Model width."),
        option("--heads", type=_POSITIVE, default=2, help="Heads."),
        option("--tokens", type=_POSITIVE, default=8192, help="Batch size times length."),
        option("--rounds", type=_POSITIVE, default=5, help="How often each is timed at a length."),
        option("--device", default="cpu", help="cpu or cuda."),
        option(
            "--precision",
            type=click.Choice(["fp32", "bf16", "fp16"]),
            default="fp32",
            help="bf16 and fp16 by autocast, as in training.",
        ),
        click.option("--causal", is_flag=True, help="Time causal attention and causal mixers."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table."),
    )

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add


@click.command("mixers")
@speed_options("512,1024,2048,4096")
@click.option(
    "--protocol",
    metavar="NAME|FILE",
    help="Mixers and settings of a paper; other options go before it.",
)
@click.option("--core", is_flag=True, help="Time attention alone, without its projections.")
@click.option(
    "--published/--no-published", default=True, show_default=True, help="Also time published forms."
)
@click.option(
    "--out",
    type=LocalPath(path_type=Path, file_okay=False),
    help="Write bench.json, .csv, .md and .png to a folder.",
)
@click.pass_context
def mixers_command(
    ctx: click.Context,
    rows: tuple[str, ...],
    protocol: str | None,
    out: Path | None,
    as_json: bool,
    as_markdown: bool,
    **settings: Any,
) -> int:
    """Compare the speed of mixers with torch's own attention.

    Forward and backward passes are timed in turn, in one process, with memory, counted operations
    and the growth with the length. A mixer's published form stands beside it. Without names, all
    installed mixers are timed.

    \b
    subquad bench mixers                          all installed mixers
    subquad bench mixers agf agf:order=5          these two
    subquad bench mixers cur:num_indices=32 --lengths 1024,4096 --out curves
    subquad bench mixers --protocol cur-table2
    """
    from subquad_tools.bench.mixers import time_mixers
    from subquad_tools.bench.protocol import Protocol
    from subquad_tools.bench.rows import LeftOut, SpeedSettings, choose_mixers

    refuse_two_forms(as_json, as_markdown)
    paper = Protocol.of(protocol) if protocol else Protocol()
    used = {**settings, **paper.model_dump(include=settings.keys() & paper.model_fields_set)}
    used["batch"] = paper.batch
    for key in settings:
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            used[key] = settings[key]
            if key == "tokens" or (key == "lengths" and isinstance(paper.batch, list)):
                used["batch"] = None
    if rows or not paper.mixers:
        chosen, left_out = choose_mixers(rows)
    else:
        chosen = paper.chosen()
        left_out = LeftOut()
    if out:  # before minutes of measuring
        out.mkdir(parents=True, exist_ok=True)
    measured = time_mixers(chosen, SpeedSettings.read(used, "options"), left_out)
    found = {"what": "mixers", "protocol": protocol, **measured, "table": paper.table(measured)}
    tables = [_table(found)]
    if found["table"]:
        tables.append(formatted(_PAPER, found["table"]))
    notes = _notes(found, chosen)
    if out:
        _write(found, as_markdown_text(tables, notes), out)
    print_measured(found, tables, notes, as_json=as_json, as_markdown=as_markdown)
    return 0


def refuse_two_forms(as_json: bool, as_markdown: bool) -> None:
    """Refuse what cannot be together.

    Raises:
        click.UsageError: why.
    """
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown: give one of them")


def print_measured(
    found: Measured,
    tables: Sequence[TextTable],
    notes: Sequence[str],
    *,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """Print what was measured: as JSON, or as tables with notes."""
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    elif as_markdown:
        print_text(as_markdown_text(tables, notes))
    else:
        for table in tables:
            print_table(*table)
        for note in notes:
            print_line(note)


def _write(found: Measured, markdown: str, out: Path) -> None:
    """The four files."""
    from subquad.output.markup import as_csv
    from subquad_tools.bench.draw import draw_speeds

    speeds = found["speeds"]
    columns = list(speeds[0]) if speeds else ["mixer"]
    records = [{**speed, "uncounted": "; ".join(speed["uncounted"])} for speed in speeds]
    texts = {
        "bench.json": json.dumps(found, allow_nan=False) + "\n",
        "bench.md": markdown,
        "bench.csv": as_csv(records, columns, line_end="\r\n"),
    }
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8", newline="")
    draw_speeds(speeds, out / "bench.png")


ROOFS = (
    ("of the roofs\nbytes", "{bytes_share:.0%}"),
    ("\nproduct", "{product_share:.0%}"),
    ("peak\nMiB", "{peak_mib:.1f}"),
)
"""Columns of what a time is held against."""

_COLUMNS = (
    ("mixer", "{mixer}"),
    ("L", "{length}"),
    ("us/token\nfwd", "{forward_us:.3g}"),
    ("\nfwd+bwd", "{both_us:.3g}"),
    ("/ attention\nfwd", "{forward_ratio:.3f}"),
    ("\nfwd+bwd", "{both_ratio:.3f}"),
    ("GFLOP", "{gflop:.3g}{plus}"),
    ("MB", "{mbytes:.0f}{plus}"),
    *ROOFS,
)

_PAPER = (
    ("the paper's table", "{mixer}"),
    ("", "{column}"),
    ("times as fast", "{speed:.2f}"),
    ("printed", "{printed_speed:.2f}"),
    ("memory", "{memory:.2f}"),
    ("printed", "{printed_memory:.2f}"),
    ("over torch today\ntimes as fast", "{now_speed:.2f}"),
    ("\nmemory", "{now_memory:.2f}"),
)


class _Missing:
    """What was not measured, in any format a dash."""

    def __format__(self, spec: str) -> str:
        return "-"


TextTable = tuple[list[str], list[list[str]]]
"""Titles and rows."""


def formatted(columns: Sequence[tuple[str, str]], records: Sequence[Measured]) -> TextTable:
    """Titles and rows of a table; what was not measured is a dash.

    Args:
        columns: title and format of each.
        records: values by the names that the formats have.
    """
    rows = []
    for record in records:
        values = {key: _Missing() if value is None else value for key, value in record.items()}
        rows.append([cell.format(**values) for _, cell in columns])
    return [title for title, _ in columns], rows


def _table(found: Measured) -> TextTable:
    """Titles and rows, the lengths of a mixer together."""
    speeds = found["speeds"]
    names = list(dict.fromkeys(speed["mixer"] for speed in speeds))
    in_order = sorted(speeds, key=lambda speed: names.index(speed["mixer"]))
    records = [{**speed, "plus": "+" if speed["uncounted"] else ""} for speed in in_order]
    return formatted(_COLUMNS, records)


def _notes(found: Measured, chosen: Sequence[MixerChoice]) -> list[str]:
    """How it was measured, what the mixers' parameters are, how they grow, and what was left
    out.
    """
    uncounted = {
        speed["mixer"]: ", ".join(speed["uncounted"])
        for speed in found["speeds"]
        if speed["uncounted"]
    }
    return notes_of("mixers_notes.txt.j2", found, chosen=chosen, uncounted=uncounted)


def notes_of(template: str, found: Measured, **values: Any) -> list[str]:
    """The lines of a template, on what was measured and other values."""
    from subquad.output.markup import fill_template, one_line

    return fill_template(_PACKAGE, template, one_line, **found, **values).splitlines()


def as_markdown_text(tables: Iterable[TextTable], notes: Iterable[str]) -> str:
    """Tables with notes as a list below."""
    from subquad.output.markup import fill_template, in_markdown

    return fill_template(_PACKAGE, "table.md.j2", in_markdown, tables=tables, notes=notes)
