"""`subquad bench`: training steps, mixers, and the implementations of what mixers compute."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from subquad.output.markup import as_csv, fill_template, in_markdown, one_line
from subquad.output.terminal import LocalPath, print_line, print_table, print_text

if TYPE_CHECKING:
    from subquad_tools.bench.rows import Measured

_option = partial(click.option, show_default=True)
_POSITIVE = click.IntRange(1)
_ROUNDS = _option("--rounds", type=_POSITIVE, default=5, help="How often each is timed.")
_DEVICE = _option("--device", default="cpu", help="cpu or cuda.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_PACKAGE = "subquad_tools.bench"
"""Where the templates are."""


@click.group("bench")
def bench_command() -> None:
    """Measure speed on this machine. Nothing here passes or fails."""


@bench_command.command("step")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@_ROUNDS
@_DEVICE
@_JSON
def _step(target: str, overrides: tuple[str, ...], rounds: int, device: str, as_json: bool) -> None:
    """Measure what whole training steps cost: forward, backward, optimiser.

    TARGET and KEY=VALUE are those of `subquad train`. The runs of a study are timed in turn, in one
    process; of those that differ in their seed alone the first. Each is compared with the first one
    on the same data.

    \b
    subquad bench step quickstart
    subquad bench step lra-agf-small 'matrix.dataset=[listops]' train.precision=bf16
    """
    from subquad.experiment import load_given

    study = load_given(target, overrides)
    from subquad_tools.bench.step import measure_steps

    found = {"what": "step", **measure_steps(study.runs, rounds, device)}
    clock = "CPU time, one thread" if device == "cpu" else "CUDA event times"
    note = (
        f"{device}: {clock}, medians over {rounds} rounds; GFLOP is counted, MiB what a step adds "
        "at its peak"
    )
    _print(found, [_formatted(_STEP_COLUMNS, found["steps"])], [note], as_json, False)


def _lengths(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\s*0*[1-9]\d*\s*(,(?!$)|$))+", text, re.ASCII):
        raise click.BadParameter(f"{text!r} is not a list of lengths, such as 512,1024")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def _speed_options(lengths: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of everything that times mixers; `lengths` is the default of one."""
    options = (
        click.argument("rows", nargs=-1, metavar="[NAME[:key=value,...]]..."),
        _option(
            "--lengths",
            metavar="L,L,...",
            callback=_lengths,
            default=lengths,
            help="Sequence lengths.",
        ),
        _option("--dim", type=_POSITIVE, default=128, help="Model width."),
        _option("--heads", type=_POSITIVE, default=2, help="Heads."),
        _option("--tokens", type=_POSITIVE, default=8192, help="Batch size times length."),
        _ROUNDS,
        _DEVICE,
        _option(
            "--precision",
            type=click.Choice(["fp32", "bf16", "fp16"]),
            default="fp32",
            help="bf16 and fp16 by autocast, as in training.",
        ),
        click.option("--causal", is_flag=True, help="Time causal attention and causal mixers."),
        _JSON,
        click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table."),
    )

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add


@bench_command.command("mixers")
@_speed_options("512,1024,2048,4096")
@click.option(
    "--protocol",
    metavar="NAME|FILE",
    help="Mixers and settings of a paper; other options go before it.",
)
@click.option("--core", is_flag=True, help="Time attention alone, without its projections.")
@_option("--published/--no-published", default=True, help="Also time published forms.")
@click.option(
    "--out",
    type=LocalPath(path_type=Path, file_okay=False),
    help="Write bench.json, .csv, .md and .png to a folder.",
)
@click.pass_context
def _mixers(
    ctx: click.Context,
    rows: tuple[str, ...],
    protocol: str | None,
    out: Path | None,
    as_json: bool,
    as_markdown: bool,
    **settings: Any,
) -> None:
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
    from subquad_tools.bench.rows import LeftOut, Protocol, SpeedSettings, choose_mixers

    _refuse_two_forms(as_json, as_markdown)
    paper = Protocol.of(protocol) if protocol else Protocol()
    used = {
        **settings,
        **paper.model_dump(include=settings.keys() & paper.model_fields_set),
        "batch": paper.batch,
    }
    for key in settings:
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            used[key] = settings[key]
            if key == "tokens" or (key == "lengths" and isinstance(paper.batch, list)):
                used["batch"] = None
    if rows or not paper.mixers:
        chosen, left_out = choose_mixers(rows)
    else:
        chosen, left_out = paper.chosen(), LeftOut()
    if out:  # before minutes of measuring
        out.mkdir(parents=True, exist_ok=True)
    measured = time_mixers(chosen, SpeedSettings.read(used, "options"), left_out)
    found = {"what": "mixers", "protocol": protocol, **measured, "table": paper.table(measured)}
    tables = [mixers_table(found)]
    if found["table"]:
        tables.append(_formatted(_PAPER, found["table"]))
    notes = notes_of("mixers", found, chosen=chosen)
    if out:
        _write(found, as_markdown_text(tables, notes), out)
    _print(found, tables, notes, as_json, as_markdown)


@bench_command.command("kernels")
@_speed_options("2048")
def _kernels(rows: tuple[str, ...], as_json: bool, as_markdown: bool, **settings: Any) -> None:
    """Compare the implementations of what mixers compute with their references.

    Every operation that a mixer calls is timed with the arguments of that call, after all
    implementations have given the same numbers. Without names, all installed mixers are looked at.

    \b
    subquad bench kernels                         every operation of every mixer
    subquad bench kernels agf --lengths 512,4096
    """
    from subquad_tools.bench.kernels import time_kernels
    from subquad_tools.bench.rows import SpeedSettings, choose_mixers

    _refuse_two_forms(as_json, as_markdown)
    chosen, left_out = choose_mixers(rows)
    found = {
        "what": "kernels",
        **time_kernels(chosen, SpeedSettings.read(settings, "options"), left_out),
    }
    records = [{**row, "star": "*" if row["chosen"] else ""} for row in found["kernels"]]
    _print(
        found,
        [_formatted(_KERNEL_COLUMNS, records)],
        notes_of("kernels", found),
        as_json,
        as_markdown,
    )


def _refuse_two_forms(as_json: bool, as_markdown: bool) -> None:
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown: give one of them")


def _print(
    found: Measured,
    tables: Sequence[TextTable],
    notes: Sequence[str],
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
    from subquad_tools.bench.draw import draw_speeds

    speeds = found["speeds"]
    records = [{**speed, "uncounted": "; ".join(speed["uncounted"])} for speed in speeds]
    for name, text in {
        "bench.json": json.dumps(found, allow_nan=False) + "\n",
        "bench.md": markdown,
        "bench.csv": as_csv(records, [*speeds[0]] if speeds else ["mixer"], line_end="\r\n"),
    }.items():
        (out / name).write_text(text, encoding="utf-8", newline="")
    draw_speeds(speeds, out / "bench.png")


_STEP_COLUMNS = (
    ("run", "{run}"),
    ("data", "{dataset}"),
    ("forward ms", "{forward_ms:,.1f}"),
    ("backward", "{backward_ms:,.1f}"),
    ("optimiser", "{optimizer_ms:,.1f}"),
    ("whole", "{whole_ms:,.1f}"),
    ("/ first", "{ratio:.3f}"),
    ("samples/s", "{samples_per_second:,.0f}"),
    ("tokens/s", "{tokens_per_second:,.0f}"),
    ("MiB", "{peak_mib:,.1f}"),
    ("GFLOP", "{gflop:.3g}"),
    ("parameters", "{parameters:,}"),
)

_ROOFS = (
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
    *_ROOFS,
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

_KERNEL_COLUMNS = (
    ("operation", "{operation}"),
    ("by", "{implementation}{star}"),
    ("L", "{length}"),
    ("us\nfwd", "{forward_us:.0f}"),
    ("\nfwd+bwd", "{both_us:.0f}"),
    ("/ reference\nfwd", "{forward_ratio:.2f}"),
    ("\nfwd+bwd", "{both_ratio:.2f}"),
    ("/ attention\nfwd+bwd", "{attention_ratio:.2f}"),
    *_ROOFS,
)


class _Missing:
    """What was not measured, in any format a dash."""

    def __format__(self, spec: str) -> str:
        return "-"


TextTable = tuple[list[str], list[list[str]]]
"""Titles and rows."""


def _formatted(columns: Sequence[tuple[str, str]], records: Iterable[Measured]) -> TextTable:
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


def mixers_table(found: Measured) -> TextTable:
    """Titles and rows, the lengths of a mixer together."""
    by_mixer: dict[str, list[Measured]] = {}
    for speed in found["speeds"]:
        by_mixer.setdefault(speed["mixer"], []).append(
            {**speed, "plus": "+" if speed["uncounted"] else ""}
        )
    return _formatted(_COLUMNS, chain.from_iterable(by_mixer.values()))


def notes_of(what: str, found: Measured, **values: Any) -> list[str]:
    """How it was measured, and what was found besides, by a template."""
    return fill_template(_PACKAGE, f"{what}_notes.txt.j2", one_line, **found, **values).splitlines()


def as_markdown_text(tables: Iterable[TextTable], notes: Iterable[str]) -> str:
    """Tables with notes as a list below."""
    return fill_template(_PACKAGE, "table.md.j2", in_markdown, tables=tables, notes=notes)
