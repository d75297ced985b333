"""`subquad bench`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import print_line, print_table

if TYPE_CHECKING:
    from subquad.bench.mixers import MixerChoice

_POSITIVE = click.IntRange(1)
_BLOCKS = click.option(
    "--rounds", type=click.IntRange(3), default=15, show_default=True, help="How often each is timed."
)
_STEPS = click.option(
    "--steps", type=click.IntRange(64), default=2048, show_default=True, help="Steps that are timed at once."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("bench")
def bench_command() -> None:
    """Measure speed on this machine. Nothing here passes or fails."""


@bench_command.command("engine")
@_BLOCKS
@_STEPS
@_JSON
def _engine(rounds: int, steps: int, as_json: bool) -> int:
    """Measure what the engine adds to a training step.

    Its loop is timed in turn with a bare torch loop, in CPU milliseconds.

    \b
    subquad bench engine
    """
    from subquad.bench.engine import measure_engine

    return _print_overhead("engine", measure_engine(rounds, steps), ("engine", "bare torch loop"), as_json)


@bench_command.command("ray")
@_BLOCKS
@_STEPS
@_JSON
def _ray(rounds: int, steps: int, as_json: bool) -> int:
    """Measure what Ray adds to a training step.

    Steps with and without Ray's hooks are timed in turn, in one Ray Train worker, in CPU milliseconds.

    \b
    subquad bench ray
    """
    from subquad.ray.train import call_in_worker

    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        found = call_in_worker(_hooks, {"rounds": rounds, "steps": steps, "stop": f"{folder}/stop"})
    return _print_overhead("ray", found, ("with Ray's hooks", "without"), as_json)


def _hooks(config: dict[str, Any]) -> dict[str, float]:
    """What a look at the driver's stop file in each step costs; runs in a Ray Train worker."""
    from subquad.bench.engine import measure_engine
    from subquad.drivers.signals import stop_file_watch

    return measure_engine(config["rounds"], config["steps"], stop_file_watch(Path(config["stop"])))


def _print_overhead(what: str, found: dict[str, float], names: tuple[str, str], as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"what": what, **found}))
        return 0
    for name, key in zip((*names, "added"), ("with_it", "without_it", "added"), strict=True):
        median = f" (median of {found['rounds']} blocks of {found['steps']} steps)" if key == "added" else ""
        click.echo(f"{name:<18}{found[key]:.4f} ms per step{median}")
    return 0


@bench_command.command("input")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--rounds", type=_POSITIVE, default=5, show_default=True, help="How often each is timed.")
@_JSON
def _input(target: str, overrides: tuple[str, ...], rounds: int, as_json: bool) -> int:
    """Measure how fast batches come, and how fast a model trains on them.

    All runs on the CPU, with one thread in each process.

    TARGET and KEY=VALUE are those of `subquad train`. Of a study the first run is measured.

    \b
    subquad bench input quickstart
    subquad bench input lra-pathfinder dataset.params.train_size=2048
    """
    from subquad.bench.input import measure_input
    from subquad.experiment import load_study

    run = load_study(target, overrides).runs[0]
    found = measure_input(run, rounds)
    if as_json:
        click.echo(json.dumps({"what": "input", "run": run.label, **found}))
    else:
        _print_input(run.label, found)
    return 0


def _print_input(label: str, found: dict[str, Any]) -> None:
    columns = ("", "ms/batch", "CPU ms here", "batches/s", "/ training")
    print_table(columns, [[way, *map(_figure, figures)] for way, *figures in map(dict.values, found["rates"])])
    arrays = ", ".join(f"{name} {what}" for name, what in found["arrays"].items())
    print_line(f"{label}: batches of {found['batch_size']}, {found['mbytes']:.3g} MB: {arrays}")
    print_line(
        f"{found['parameters']:,} parameters; medians of the wall clock over {found['rounds']} rounds, one thread each"
    )
    print_line(
        f"the loader is a process beside this one; its first batch took {found['start_seconds']:.1f} s, and "
        "CPU ms here are what a batch of its costs this process"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _lengths(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of lengths, such as 512,1024")
    return tuple(dict.fromkeys(map(int, parts)))


@bench_command.command("mixers")
@click.argument("rows", nargs=-1, metavar="[NAME[:key=value,...]]...")
@click.option(
    "--lengths",
    metavar="L,L,...",
    callback=_lengths,
    default="512,1024,2048,4096",
    show_default=True,
    help="Sequence lengths.",
)
@click.option("--dim", type=_POSITIVE, default=128, show_default=True, help="Model width.")
@click.option("--heads", type=_POSITIVE, default=2, show_default=True, help="Heads.")
@click.option("--tokens", type=_POSITIVE, default=8192, show_default=True, help="Batch size times length.")
@click.option(
    "--rounds", type=_POSITIVE, default=5, show_default=True, help="How often each mixer is timed at each length."
)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--causal", is_flag=True, help="Time causal attention and causal mixers.")
@_JSON
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
def _mixers(rows: tuple[str, ...], as_json: bool, as_markdown: bool, dim: int, heads: int, **settings: Any) -> int:
    """Compare the speed of mixers with torch's own attention.

    Forward and backward passes are timed in turn, in one process. Without names, all installed mixers are timed.

    \b
    subquad bench mixers                          all installed mixers
    subquad bench mixers agf agf:order=5          these two
    subquad bench mixers cur:num_indices=32 --lengths 1024,4096
    """
    from subquad.bench.mixers import SpeedSettings, choose_mixers, time_mixers

    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown: give one of them")
    if dim % heads:
        raise click.UsageError(f"--dim {dim} is not divisible by --heads {heads}")
    chosen, skipped = choose_mixers(rows)
    chosen_settings = SpeedSettings(dim=dim, heads=heads, **settings)
    done = _progress if sys.stderr.isatty() else lambda length: None
    found = time_mixers(chosen, chosen_settings, skipped=skipped, strict=bool(rows), done=done)
    if as_json:
        click.echo(json.dumps({"what": "mixers", **found}, allow_nan=False))
    elif as_markdown:
        click.echo("\n".join(_as_markdown(found, chosen)))
    else:
        print_table(*_table(found))
        for note in _notes(found, chosen):
            print_line(note)
    return 0


def _progress(length: int) -> None:
    click.echo(f"length {length}: done", err=True)


_COLUMNS = (
    ("mixer", "{mixer}"),
    ("L", "{length}"),
    ("us/token fwd", "{forward_us:.3g}"),
    ("fwd+bwd", "{both_us:.3g}"),
    ("/ attention fwd", "{forward_ratio:.3f}"),
    ("fwd+bwd", "{both_ratio:.3f}"),
    ("GFLOP", "{gflop:.3g}{plus}"),
    ("MB", "{mbytes:.0f}{plus}"),
    ("GFLOP/s", "{gflops:.1f}{plus}"),
)


def _table(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows, the lengths of a mixer together."""
    names = [speed["mixer"] for speed in found["speeds"]]
    speeds = sorted(found["speeds"], key=lambda speed: names.index(speed["mixer"]))
    shown = [{**speed, "plus": "+" if speed["uncounted"] else ""} for speed in speeds]
    return [title for title, _ in _COLUMNS], [[cell.format(**one) for _, cell in _COLUMNS] for one in shown]


def _notes(found: dict[str, Any], chosen: Sequence[MixerChoice]) -> Iterator[str]:
    """How it was measured, what the mixers' parameters are, and what was left out."""
    used, best = found["settings"], found["best"]
    clock = "medians of process CPU time, one thread" if used["device"] == "cpu" else "medians of CUDA event times"
    yield (
        f"D = {used['dim']}, H = {used['heads']}, {used['tokens']} tokens, fp32, {used['device']}, {clock} over "
        f"{used['rounds']} rounds, {'causal' if used['causal'] else 'not causal'}; counts are of forward and backward"
    )
    yield f"this process at best: {best['gflops']:.1f} GFLOP/s (2048^3 product), {best['gbytes']:.1f} GB/s (copy)"
    for mixer in chosen:
        alone = " [always causal]" if mixer.facts.causal == "always" and not used["causal"] else ""
        params = ", ".join(f"{key}={value}" for key, value in mixer.params.items())
        yield f"{mixer.text}{alone}: {params or 'no parameters'}"
    for name, unknown in {one["mixer"]: one["uncounted"] for one in found["speeds"] if one["uncounted"]}.items():
        yield f"{name}: not in its counts: {', '.join(unknown)}"
    for reason in found["skipped"]:
        yield f"skipped: {reason}"


def _as_markdown(found: dict[str, Any], chosen: Sequence[MixerChoice]) -> list[str]:
    """The table, then the notes as a list."""
    titles, rows = _table(found)
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), "", *(f"- {note}" for note in _notes(found, chosen))]
