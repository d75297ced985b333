"""`subquad bench`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import print_line, print_table

if TYPE_CHECKING:
    from subquad.bench.engine import Overhead
    from subquad.bench.input import InputSpeed
    from subquad.bench.mixers import Speed, Speeds


@click.group("bench")
def bench_command() -> None:
    """Measure speed on this machine. Nothing here passes or fails."""


def _overhead_options(function: Callable[..., int]) -> Callable[..., int]:
    options = (
        click.option(
            "--rounds", type=click.IntRange(min=3), default=15, show_default=True, help="Blocks of each kind."
        ),
        click.option("--steps", type=click.IntRange(min=64), default=2048, show_default=True, help="Steps in a block."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@bench_command.command("engine")
@_overhead_options
def _engine(rounds: int, steps: int, as_json: bool) -> int:
    """Measure what the engine adds to a training step.

    Its loop is timed in turn with a bare torch loop, in CPU milliseconds.

    \b
    subquad bench engine
    """
    from subquad.bench.engine import measure_engine

    return _print_overhead("engine", measure_engine(rounds, steps), ("engine", "bare torch loop"), as_json)


@bench_command.command("ray")
@_overhead_options
def _ray(rounds: int, steps: int, as_json: bool) -> int:
    """Measure what Ray adds to a training step.

    Steps with and without Ray's hooks are timed in turn, in one Ray Train worker, in CPU milliseconds.

    \b
    subquad bench ray
    """
    from subquad.bench.engine import Overhead
    from subquad.ray.worker import call_in_worker

    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        found = call_in_worker(_hooks, {"rounds": rounds, "steps": steps, "stop": f"{folder}/stop"})
    return _print_overhead("ray", Overhead(**found), ("with Ray's hooks", "without"), as_json)


def _hooks(config: dict[str, Any]) -> dict[str, Any]:
    """What a look at the driver's stop file in each step costs; runs in a Ray Train worker."""
    from subquad.bench.engine import measure_hooks
    from subquad.drivers.signals import stop_file_watch

    return vars(measure_hooks(stop_file_watch(Path(config["stop"])), config["rounds"], config["steps"]))


def _print_overhead(what: str, found: Overhead, names: tuple[str, str], as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"what": what, **vars(found)}))
        return 0
    click.echo(f"{names[0]:<18}{found.with_it:.4f} ms per step")
    click.echo(f"{names[1]:<18}{found.without_it:.4f} ms per step")
    click.echo(
        f"added             {found.added:.4f} ms per step (median of {found.rounds} blocks of {found.steps} steps)"
    )
    return 0


@bench_command.command("input")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Blocks of each way.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
        click.echo(json.dumps({"what": "input", "run": run.label, **asdict(found)}))
    else:
        _print_input(run.label, found)
    return 0


def _print_input(label: str, found: InputSpeed) -> None:
    columns = ("", "ms/batch", "CPU ms here", "batches/s", "/ training")
    rows = [
        (one.way, *map(_figure, (one.wall_ms, one.cpu_ms, one.per_second, one.over_training))) for one in found.rates
    ]
    print_table(columns, rows)
    arrays = ", ".join(f"{name} {what}" for name, what in found.arrays.items())
    print_line(f"{label}: batches of {found.batch_size}, {found.mbytes:.3g} MB: {arrays}")
    print_line(
        f"{found.parameters:,} parameters; medians of the wall clock over {found.rounds} rounds, one thread each"
    )
    print_line(
        f"the loader is a process beside this one; its first batch took {found.start_seconds:.1f} s, and "
        "CPU ms here are what a batch of its costs this process"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class _Lengths(click.ParamType):
    name = "L,L,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and int(part) for part in parts):
            self.fail(f"{value!r} is not a list of lengths, such as 512,1024", param, ctx)
        return tuple(dict.fromkeys(int(part) for part in parts))


_POSITIVE = click.IntRange(min=1)


@bench_command.command("mixers")
@click.argument("rows", nargs=-1, metavar="[NAME[:key=value,...]]...")
@click.option("--lengths", type=_Lengths(), default="512,1024,2048,4096", show_default=True, help="Sequence lengths.")
@click.option("--dim", type=_POSITIVE, default=128, show_default=True, help="Model width.")
@click.option("--heads", type=_POSITIVE, default=2, show_default=True, help="Heads.")
@click.option("--tokens", type=_POSITIVE, default=8192, show_default=True, help="Batch times length.")
@click.option("--rounds", type=_POSITIVE, default=5, show_default=True, help="Blocks of each mixer at each length.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--causal", is_flag=True, help="Time causal attention and causal mixers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
        click.echo(json.dumps(_speeds_as_json(found), allow_nan=False))
    elif as_markdown:
        click.echo("\n".join(_speeds_as_markdown(found)))
    else:
        print_table(_COLUMNS, map(_cells, _by_mixer(found)))
        for note in _notes(found):
            print_line(note)
    return 0


def _progress(length: int) -> None:
    click.echo(f"length {length}: done", err=True)


_COLUMNS = ("mixer", "L", "us/token fwd", "fwd+bwd", "/ attention fwd", "fwd+bwd", "GFLOP", "MB", "GFLOP/s")


def _by_mixer(found: Speeds) -> list[Speed]:
    """The lengths of a mixer together."""
    names = list(dict.fromkeys(speed.mixer for speed in found.speeds))
    return sorted(found.speeds, key=lambda speed: names.index(speed.mixer))


def _cells(speed: Speed) -> tuple[str, ...]:
    counted = "+" if speed.uncounted else ""
    return (
        speed.mixer,
        str(speed.length),
        f"{speed.forward_us:.3g}",
        f"{speed.both_us:.3g}",
        f"{speed.forward_ratio:.3f}",
        f"{speed.both_ratio:.3f}",
        f"{speed.gflop:.3g}{counted}",
        f"{speed.mbytes:.0f}{counted}",
        f"{speed.gflops:.1f}{counted}",
    )


def _notes(found: Speeds) -> Iterator[str]:
    """How it was measured, what the mixers' parameters are, and what was left out."""
    used, best = found.settings, found.best
    clock = "medians of process CPU time, one thread" if used.device == "cpu" else "medians of CUDA event times"
    yield (
        f"D = {used.dim}, H = {used.heads}, {used.tokens} tokens, fp32, {used.device}, {clock} over "
        f"{used.rounds} rounds, {'causal' if used.causal else 'not causal'}; counts are of forward and backward"
    )
    yield f"this process at best: {best.gflops:.1f} GFLOP/s (2048^3 product), {best.gbytes:.1f} GB/s (copy)"
    for mixer in found.mixers:
        alone = " [always causal]" if mixer.facts.causal == "always" and not used.causal else ""
        params = ", ".join(f"{key}={value}" for key, value in mixer.params.items())
        yield f"{mixer.text}{alone}: {params or 'no parameters'}"
    for name, unknown in {speed.mixer: speed.uncounted for speed in found.speeds if speed.uncounted}.items():
        yield f"{name}: not in its counts: {', '.join(unknown)}"
    for reason in found.skipped:
        yield f"skipped: {reason}"


def _speeds_as_markdown(found: Speeds) -> list[str]:
    """The table, then the notes as a list."""
    lines = [_COLUMNS, ("---",) + ("---:",) * (len(_COLUMNS) - 1), *map(_cells, _by_mixer(found))]
    return [*(f"| {' | '.join(line)} |" for line in lines), "", *(f"- {note}" for note in _notes(found))]


def _speeds_as_json(found: Speeds) -> dict[str, Any]:
    return {
        "what": "mixers",
        "settings": asdict(found.settings),
        "best": asdict(found.best),
        "mixers": [{"row": one.text, "mixer": one.resolved.found.name, "params": one.params} for one in found.mixers],
        "speeds": [asdict(speed) for speed in found.speeds],
        "skipped": list(found.skipped),
    }
