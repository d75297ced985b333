"""`subquad bench mixers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from subquad.reach import Reach
from subquad.terminal import LocalPath, print_line, print_table, print_text

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


_SHARED = (
    click.argument("rows", nargs=-1, metavar="[NAME[:key=value,...]]..."),
    click.option("--dim", type=_POSITIVE, default=128, show_default=True, help="Model width."),
    click.option("--heads", type=_POSITIVE, default=2, show_default=True, help="Heads."),
    click.option(
        "--tokens", type=_POSITIVE, default=8192, show_default=True, help="Batch size times length."
    ),
    click.option(
        "--rounds",
        type=_POSITIVE,
        default=5,
        show_default=True,
        help="How often each is timed at a length.",
    ),
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        help="bf16 and fp16 by autocast, as in training.",
    ),
    click.option("--causal", is_flag=True, help="Time causal attention and causal mixers."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table."),
)


def speed_options(lengths: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options of everything that times mixers; `lengths` is the default of one."""
    option = click.option(
        "--lengths",
        metavar="L,L,...",
        callback=_lengths,
        default=lengths,
        show_default=True,
        help="Sequence lengths.",
    )

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for decorate in reversed((_SHARED[0], option, *_SHARED[1:])):
            command = decorate(command)
        return command

    return add


def check_options(dim: int, heads: int, as_json: bool, as_markdown: bool) -> None:
    """Refuse what cannot be together.

    Raises:
        click.UsageError: why.
    """
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown: give one of them")
    if dim % heads:
        raise click.UsageError(f"--dim {dim} is not divisible by --heads {heads}")


@click.command("mixers")
@speed_options("512,1024,2048,4096")
@click.option(
    "--protocol",
    metavar="NAME|FILE",
    help="Mixers and settings of a paper; other options go before it.",
)
@click.option("--core", is_flag=True, help="Also time attention without its projections.")
@click.option(
    "--published/--no-published", default=True, show_default=True, help="Also time published forms."
)
@click.option(
    "--out",
    type=LocalPath(path_type=Path, file_okay=False),
    help="Write bench.json, .csv, .md and .png to a folder.",
)
@click.pass_context
@Reach(reads="a file in NAME, --protocol", runs="a file in NAME", writes="--out")
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
    subquad bench mixers --protocol cur-paper --tokens 8192
    """
    from subquad_tools.bench.mixers import time_mixers
    from subquad_tools.bench.rows import SpeedSettings, choose_mixers

    if protocol:
        rows, settings = _with_protocol(ctx, protocol, rows, settings)
    check_options(settings["dim"], settings["heads"], as_json, as_markdown)
    chosen, skipped = choose_mixers(rows)
    if out:  # before minutes of measuring
        out.mkdir(parents=True, exist_ok=True)
    measured = time_mixers(chosen, SpeedSettings(**settings), skipped=skipped, strict=bool(rows))
    found = {"what": "mixers", **measured}
    table = _table(found)
    notes = _notes(found, chosen)
    if out:
        _write(found, as_markdown_text(table, notes), out)
    print_measured(found, table, notes, as_json=as_json, as_markdown=as_markdown)
    return 0


def print_measured(
    found: Measured, table: TextTable, notes: Sequence[str], *, as_json: bool, as_markdown: bool
) -> None:
    """Print what was measured: as JSON, or as a table with notes."""
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    elif as_markdown:
        print_text(as_markdown_text(table, notes))
    else:
        print_table(*table)
        for note in notes:
            print_line(note)


def _with_protocol(
    ctx: click.Context, name: str, rows: tuple[str, ...], settings: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Rows and settings of a protocol, but for what was given on the command line."""
    from subquad_tools.bench.protocol import Protocol

    protocol = Protocol.read(name)
    of_protocol = protocol.settings()
    for key in settings:
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            of_protocol.pop(key, None)
            if key == "tokens":
                of_protocol.pop("batch", None)
    return rows or tuple(protocol.mixers), settings | of_protocol


def _write(found: Measured, markdown: str, out: Path) -> None:
    """The four files."""
    from subquad.markup import as_csv
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


_COLUMNS = (
    ("mixer", "{mixer}"),
    ("L", "{length}"),
    ("us/token\nfwd", "{forward_us:.3g}"),
    ("\nfwd+bwd", "{both_us:.3g}"),
    ("/ attention\nfwd", "{forward_ratio:.3f}"),
    ("\nfwd+bwd", "{both_ratio:.3f}"),
    ("/ core\nfwd", "{core_forward_ratio:.3f}"),
    ("\nfwd+bwd", "{core_both_ratio:.3f}"),
    ("GFLOP", "{gflop:.3g}{plus}"),
    ("MB", "{mbytes:.0f}{plus}"),
    ("roof", "{roof:.0%}"),
    ("peak\nMiB", "{peak_mib:.1f}"),
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
    columns = _COLUMNS
    if not found["settings"]["core"]:
        columns = [column for column in _COLUMNS if "{core" not in column[1]]
    return formatted(columns, records)


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
    from subquad.markup import fill_template, one_line

    return fill_template(_PACKAGE, template, one_line, **found, **values).splitlines()


def as_markdown_text(table: TextTable, notes: Iterable[str]) -> str:
    """A table with its notes as a list below."""
    from subquad.markup import fill_template, in_markdown

    titles, rows = table
    return fill_template(
        _PACKAGE, "table.md.j2", in_markdown, titles=titles, rows=rows, notes=notes
    )
