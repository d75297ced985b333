"""`subquad bench mixers`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from subquad.cli.tables import LocalPath, print_line, print_table, print_text
from subquad.markup import as_csv, in_markdown
from subquad.reach import Reach

if TYPE_CHECKING:
    from subquad.bench.rows import MixerChoice

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
    click.option("--tokens", type=_POSITIVE, default=8192, show_default=True, help="Batch size times length."),
    click.option("--rounds", type=_POSITIVE, default=5, show_default=True, help="How often each is timed at a length."),
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
        "--lengths", metavar="L,L,...", callback=_lengths, default=lengths, show_default=True, help="Sequence lengths."
    )

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for one in reversed((_SHARED[0], option, *_SHARED[1:])):
            command = one(command)
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
@click.option("--protocol", metavar="NAME|FILE", help="Mixers and settings of a paper; other options go before it.")
@click.option("--core", is_flag=True, help="Also time attention without its projections.")
@click.option("--published/--no-published", default=True, show_default=True, help="Also time published forms.")
@click.option(
    "--out", type=LocalPath(path_type=Path, file_okay=False), help="Write bench.json, .csv, .md and .png to a folder."
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

    Forward and backward passes are timed in turn, in one process, with memory, counted operations and the growth with
    the length. A mixer's published form stands beside it. Without names, all installed mixers are timed.

    \b
    subquad bench mixers                          all installed mixers
    subquad bench mixers agf agf:order=5          these two
    subquad bench mixers cur:num_indices=32 --lengths 1024,4096 --out curves
    subquad bench mixers --protocol cur-paper --tokens 8192
    """
    from subquad.bench.mixers import time_mixers
    from subquad.bench.rows import SpeedSettings, choose_mixers

    if protocol:
        rows, settings = _with_protocol(ctx, protocol, rows, settings)
    check_options(settings["dim"], settings["heads"], as_json, as_markdown)
    chosen, skipped = choose_mixers(rows)
    if out:  # before minutes of measuring
        out.mkdir(parents=True, exist_ok=True)
    found = time_mixers(chosen, SpeedSettings(**settings), skipped=skipped, strict=bool(rows), done=progress)
    if out:
        _write(found, chosen, out)
    if as_json:
        click.echo(_as_json(found))
    elif as_markdown:
        print_text("\n".join(_as_markdown(found, chosen)) + "\n")
    else:
        print_table(*_table(found))
        for note in _notes(found, chosen):
            print_line(note)
    return 0


def _with_protocol(
    ctx: click.Context, name: str, rows: tuple[str, ...], settings: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Rows and settings of a protocol, but for what was given on the command line."""
    from subquad.bench.protocol import Protocol

    protocol = Protocol.read(name)
    given = {key for key in settings if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE}
    given |= {"batch"} if "tokens" in given else set()
    kept = {key: value for key, value in protocol.settings().items() if key not in given}
    return rows or tuple(protocol.mixers), settings | kept


def progress(length: int) -> None:
    """One line for whoever waits at a terminal."""
    if sys.stderr.isatty():
        click.echo(f"length {length}: done", err=True)


def _write(found: dict[str, Any], chosen: Sequence[MixerChoice], out: Path) -> None:
    """The four files."""
    from subquad.bench.draw import draw_speeds

    (out / "bench.json").write_text(_as_json(found) + "\n", encoding="utf-8")
    (out / "bench.md").write_text("\n".join(_as_markdown(found, chosen)) + "\n", encoding="utf-8")
    columns = list(found["speeds"][0]) if found["speeds"] else ["mixer"]
    records = [{**one, "uncounted": "; ".join(one["uncounted"])} for one in found["speeds"]]
    (out / "bench.csv").write_text(as_csv(records, columns, line_end="\r\n"), encoding="utf-8", newline="")
    draw_speeds(found["speeds"], out / "bench.png")


def _as_json(found: dict[str, Any]) -> str:
    return json.dumps({"what": "mixers", **found}, allow_nan=False)


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


def _table(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows, the lengths of a mixer together."""
    names = [speed["mixer"] for speed in found["speeds"]]
    speeds = sorted(found["speeds"], key=lambda speed: names.index(speed["mixer"]))
    columns = [one for one in _COLUMNS if found["settings"]["core"] or "{core" not in one[1]]
    shown = [{key: MISSING if value is None else value for key, value in one.items()} for one in speeds]
    shown = [{**one, "plus": "+" if one["uncounted"] else ""} for one in shown]
    return [title for title, _ in columns], [[cell.format(**one) for _, cell in columns] for one in shown]


def how_measured(found: dict[str, Any]) -> str:
    """Shapes, clock and rounds."""
    used = found["settings"]
    clock = "medians of process CPU time, one thread" if used["device"] == "cpu" else "medians of CUDA event times"
    batch = used["batch"]
    listed = ", ".join(f"{one} at {length}" for length, one in batch.items()) if isinstance(batch, dict) else batch
    samples = f"{used['tokens']} tokens" if batch is None else f"batches of {listed}"
    return (
        f"D = {used['dim']}, H = {used['heads']}, {samples}, {used['precision']}, {used['device']}, {clock} over "
        f"{used['rounds']} rounds, {'causal' if used['causal'] else 'not causal'}"
    )


def reached(found: dict[str, Any]) -> str:
    """This process's own rates."""
    best, precision = found["best"], found["settings"]["precision"]
    return (
        f"this process at best: {best['gflops']:.1f} GFLOP/s ({best['size']}^3 product, {precision}), "
        f"{best['gbytes']:.1f} GB/s (copy)"
    )


def _notes(found: dict[str, Any], chosen: Sequence[MixerChoice]) -> Iterator[str]:
    """How it was measured, what the mixers' parameters are, how they grow, and what was left out."""
    used = found["settings"]
    yield f"{how_measured(found)}; counts and memory are of forward and backward"
    yield f"{reached(found)}; roof: the least time these allow over the time taken"
    for mixer in chosen:
        alone = " [always causal]" if mixer.facts.causal == "always" and not used["causal"] else ""
        params = ", ".join(f"{key}={value}" for key, value in mixer.params.items())
        yield f"{mixer.text}{alone}: {params or 'no parameters'}"
    yield from map(_grown, found["growth"])
    yield from map(_over_published, found["published"])
    for name, unknown in {one["mixer"]: one["uncounted"] for one in found["speeds"] if one["uncounted"]}.items():
        yield f"{name}: not in its counts: {', '.join(unknown)}"
    for reason in found["skipped"]:
        yield f"skipped: {reason}"


def _grown(one: dict[str, Any]) -> str:
    powers = {key: "-" if one[key] is None else f"L^{one[key]:.2f}" for key in ("forward", "both", "flops", "bytes")}
    return (
        f"{one['mixer']} grows: time {powers['forward']} forward, {powers['both']} with backward, FLOPs "
        f"{powers['flops']}, bytes {powers['bytes']}; declared {one['declared']}"
    )


def _over_published(one: dict[str, Any]) -> str:
    name = one["mixer"]
    if one["measured"] is None:
        return f"{name} published: reference not calibrated: nothing is known of the authors' code here"
    told = f"{one['measured']:.3f} of attention at L = {one['length']}, {one['known']:.3f} by the authors' code"
    if not one["calibrated"]:
        return f"{name} published: reference not calibrated: {told}"
    times = ", ".join(f"{at['forward']:.2f} and {at['both']:.2f} (L = {at['length']})" for at in one["times"])
    return f"{name} published over {name}: forward and with backward {times}; calibrated: {told}"


def _as_markdown(found: dict[str, Any], chosen: Sequence[MixerChoice]) -> list[str]:
    """The table, then the notes as a list."""
    return as_markdown_lines(*_table(found), _notes(found, chosen))


def as_markdown_lines(titles: Sequence[str], rows: Sequence[Sequence[str]], notes: Iterable[str]) -> list[str]:
    """A table with its notes as a list below."""
    lines = [[title.replace("\n", " ").strip() for title in titles], ["---", *["---:"] * (len(titles) - 1)]]
    lines += [list(map(in_markdown, row)) for row in rows]
    table = [f"| {' | '.join(line)} |" for line in lines]
    return [*table, "", *(f"- {in_markdown(note)}" for note in notes)]
