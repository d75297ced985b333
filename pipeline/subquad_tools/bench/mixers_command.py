"""`subquad bench mixers`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from subquad.reach import Reach
from subquad.terminal import LocalPath, print_line, print_table, print_text

if TYPE_CHECKING:
    from subquad_tools.bench.rows import Measured, MixerChoice

_POSITIVE = click.IntRange(1)


def _lengths(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of lengths, such as 512,1024")
    return tuple(dict.fromkeys(map(int, parts)))


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
    found = time_mixers(
        chosen, SpeedSettings(**settings), skipped=skipped, strict=bool(rows), done=progress
    )
    table, notes = _table(found), list(_notes(found, chosen))
    if out:
        _write(found, as_markdown_text(table, notes), out)
    print_measured(
        {"what": "mixers", **found}, table, notes, as_json=as_json, as_markdown=as_markdown
    )
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


def progress(length: int) -> None:
    """One line for whoever waits at a terminal."""
    if sys.stderr.isatty():
        click.echo(f"length {length}: done", err=True)


def _write(found: Measured, markdown: str, out: Path) -> None:
    """The four files."""
    from subquad.markup import as_csv
    from subquad_tools.bench.draw import draw_speeds

    text = json.dumps({"what": "mixers", **found}, allow_nan=False)
    (out / "bench.json").write_text(f"{text}\n", encoding="utf-8")
    (out / "bench.md").write_text(markdown, encoding="utf-8")
    speeds = found["speeds"]
    columns = list(speeds[0]) if speeds else ["mixer"]
    records = [{**speed, "uncounted": "; ".join(speed["uncounted"])} for speed in speeds]
    sheet = as_csv(records, columns, line_end="\r\n")
    (out / "bench.csv").write_text(sheet, encoding="utf-8", newline="")
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


MISSING = _Missing()


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
        values = {key: MISSING if value is None else value for key, value in record.items()}
        rows.append([cell.format(**values) for _, cell in columns])
    return [title for title, _ in columns], rows


def _table(found: Measured) -> TextTable:
    """Titles and rows, the lengths of a mixer together."""
    rows: dict[str, list[Measured]] = {}
    for speed in found["speeds"]:
        plus = "+" if speed["uncounted"] else ""
        rows.setdefault(speed["mixer"], []).append({**speed, "plus": plus})
    columns = _COLUMNS
    if not found["settings"]["core"]:
        columns = [column for column in _COLUMNS if "{core" not in column[1]]
    return formatted(columns, list(chain.from_iterable(rows.values())))


def how_measured(found: Measured) -> str:
    """Shapes, clock and rounds."""
    used = found["settings"]
    clock = "medians of CUDA event times"
    if used["device"] == "cpu":
        clock = "medians of process CPU time, one thread"
    batch = used["batch"]
    if isinstance(batch, dict):
        batch = ", ".join(f"{size} at {length}" for length, size in batch.items())
    samples = f"{used['tokens']} tokens" if batch is None else f"batches of {batch}"
    return (
        f"D = {used['dim']}, H = {used['heads']}, {samples}, {used['precision']}, "
        f"{used['device']}, {clock} over "
        f"{used['rounds']} rounds, {'causal' if used['causal'] else 'not causal'}"
    )


def reached(found: Measured) -> str:
    """This process's own rates."""
    best, precision = found["best"], found["settings"]["precision"]
    return (
        f"this process at best: {best['gflops']:.1f} GFLOP/s ({best['size']}^3 "
        f"product, {precision}), "
        f"{best['gbytes']:.1f} GB/s (copy)"
    )


def _notes(found: Measured, chosen: Sequence[MixerChoice]) -> Iterator[str]:
    """How it was measured, what the mixers' parameters are, how they grow, and what was left
    out.
    """
    used = found["settings"]
    yield f"{how_measured(found)}; counts and memory are of forward and backward"
    yield f"{reached(found)}; roof: the least time these allow over the time taken"
    for mixer in chosen:
        alone = " [always causal]" if mixer.facts.causal == "always" and not used["causal"] else ""
        params = ", ".join(f"{key}={value}" for key, value in mixer.params.items())
        yield f"{mixer.text}{alone}: {params or 'no parameters'}"
    yield from map(_grown, found["growth"])
    yield from _over_another(found)
    yield from map(_over_published, found["published"])
    uncounted: dict[str, str] = {}
    for speed in found["speeds"]:
        if speed["uncounted"]:
            uncounted[speed["mixer"]] = ", ".join(speed["uncounted"])
    for name, operations in uncounted.items():
        yield f"{name}: not in its counts: {operations}"
    for reason in found["skipped"]:
        yield f"skipped: {reason}"


def _grown(speed: Measured) -> str:
    powers = {
        key: "-" if speed[key] is None else f"L^{speed[key]:.2f}"
        for key in ("forward", "both", "flops", "bytes")
    }
    return (
        f"{speed['mixer']} grows: time {powers['forward']} forward, {powers['both']} "
        "with backward, FLOPs "
        f"{powers['flops']}, bytes {powers['bytes']}; declared {speed['declared']}"
    )


def _over_another(found: Measured) -> Iterator[str]:
    """Speed and memory over those of the row that a protocol names, a line for each row."""
    texts: dict[str, list[str]] = {}
    for row in found["over"]:
        speed = f"{row['speed']:.2f}x as fast with {row['memory']:.2f}x the memory"
        texts.setdefault(row["mixer"], []).append(f"{speed} at L = {row['length']}")
    for name, parts in texts.items():
        yield f"{name} over {found['settings']['over']}: {', '.join(parts)}"


def _over_published(speed: Measured) -> str:
    name = speed["mixer"]
    if speed["measured"] is None:
        return (
            f"{name} published: reference not calibrated: nothing is known of the "
            "authors' code here"
        )
    compared = (
        f"{speed['measured']:.3f} of attention at L = {speed['length']}, "
        f"{speed['known']:.3f} by the authors' code"
    )
    if not speed["calibrated"]:
        return f"{name} published: reference not calibrated: {compared}"
    times = []
    for at in speed["times"]:
        times.append(f"{at['forward']:.2f} and {at['both']:.2f} (L = {at['length']})")
    ratios = f"forward and with backward {', '.join(times)}"
    return f"{name} published over {name}: {ratios}; calibrated: {compared}"


def as_markdown_text(table: TextTable, notes: Iterable[str]) -> str:
    """A table with its notes as a list below."""
    from subquad.markup import in_markdown

    titles, rows = table
    cells = [[title.replace("\n", " ").strip() for title in titles]]
    cells.append(["---", *["---:"] * (len(titles) - 1)])
    cells += [list(map(in_markdown, row)) for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    lines.append("")
    lines += [f"- {in_markdown(note)}" for note in notes]
    return "\n".join(lines) + "\n"
