"""`subquad bench`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from subquad.cli.bench_kernels import kernels_command
from subquad.cli.bench_mixers import mixers_command
from subquad.cli.tables import print_line, print_table
from subquad.reach import Reach

_POSITIVE = click.IntRange(1)
_BLOCKS = click.option(
    "--rounds", type=click.IntRange(3), default=15, show_default=True, help="How often each is timed."
)
_STEPS = click.option(
    "--steps", type=click.IntRange(64), default=2048, show_default=True, help="Steps that are timed at once."
)
_ROUNDS = click.option("--rounds", type=_POSITIVE, default=5, show_default=True, help="How often each is timed.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("bench")
def bench_command() -> None:
    """Measure speed on this machine. Nothing here passes or fails."""


@bench_command.command("overhead")
@click.argument("of", nargs=-1, type=click.Choice(["engine", "ray"]), metavar="[engine|ray]...")
@_BLOCKS
@_STEPS
@_JSON
@Reach(reads="nothing")
def _overhead(of: tuple[str, ...], rounds: int, steps: int, as_json: bool) -> int:
    """Measure what the engine and Ray add to a training step.

    The engine's loop is timed in turn with a bare torch loop. Steps with and without Ray's hooks are timed in turn, in
    one Ray Train worker. In CPU milliseconds.

    \b
    subquad bench overhead
    subquad bench overhead engine
    """
    found = {what: _OVERHEADS[what](rounds, steps) for what in of or _OVERHEADS}
    if as_json:
        click.echo(json.dumps({"what": "overhead", **found}))
        return 0
    figures = ("with_it", "without_it", "added")
    rows = [[f"{what} over {_OVER[what]}", *(f"{one[key]:.4f}" for key in figures)] for what, one in found.items()]
    print_table(("ms per step", "with", "without", "added"), rows)
    print_line(f"CPU time, medians of {rounds} blocks of {steps} steps")
    return 0


def _engine(rounds: int, steps: int) -> dict[str, float]:
    from subquad.bench.engine import measure_engine

    return measure_engine(rounds, steps)


def _ray(rounds: int, steps: int) -> dict[str, float]:
    from subquad.ray.train import call_in_worker

    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        return call_in_worker(_hooks, {"rounds": rounds, "steps": steps, "stop": f"{folder}/stop"})


_OVERHEADS = {"engine": _engine, "ray": _ray}
_OVER = {"engine": "a bare torch loop", "ray": "the engine without Ray's hooks"}


def _hooks(config: dict[str, Any]) -> dict[str, float]:
    """What a look at the driver's stop file in each step costs; runs in a Ray Train worker."""
    from subquad.bench.engine import measure_engine
    from subquad.drivers.signals import stop_file_watch

    return measure_engine(config["rounds"], config["steps"], stop_file_watch(Path(config["stop"])))


@bench_command.command("data")
@click.argument("names", nargs=-1, metavar="[DATASET]...")
@_ROUNDS
@_JSON
@Reach(reads="nothing")
def _data(names: tuple[str, ...], rounds: int, as_json: bool) -> int:
    """Measure how fast data sets read their files, beside the usual code.

    Without names, all installed data sets that have something to compare. In one thread of the CPU.

    \b
    subquad bench data
    subquad bench data lra-listops uea
    """
    from subquad.bench.data import measure_readings
    from subquad.registry import blocked, find_plugins, resolve

    installed = [one.name for one in find_plugins("dataset") if not blocked(one.distribution)]
    found = measure_readings([resolve("dataset", name) for name in names or installed], rounds)
    if as_json:
        click.echo(json.dumps({"what": "data", "readings": found}))
        return 0
    rows = [[*(one[key] for key in ("dataset", "what", "way")), *map(_figure, _rates(one))] for one in found]
    print_table(("data set", "what", "way", "samples/s", "/ usual"), rows)
    print_line(f"CPU time, medians over {rounds} rounds, one thread; all ways of a data set read the same")
    return 0


def _rates(reading: dict[str, Any]) -> tuple[float, float]:
    return reading["per_second"], reading["ratio"]


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


@bench_command.command("step")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@_ROUNDS
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--input", "with_input", is_flag=True, help="Also how fast the first run's batches come, on the CPU.")
@_JSON
@Reach(reads="TARGET, its data", writes="prepared data", sends="requests to addresses of data")
def _step(target: str, overrides: tuple[str, ...], rounds: int, device: str, with_input: bool, as_json: bool) -> int:
    """Measure what whole training steps cost: forward, backward, optimiser.

    TARGET and KEY=VALUE are those of `subquad train`. The runs of a study are timed in turn, in one process; of those
    that differ in their seed alone the first. Each is compared with the first one on the same data.

    \b
    subquad bench step quickstart --input
    subquad bench step lra-agf-small 'matrix.dataset=[listops]' train.precision=bf16
    """
    from subquad.bench.input import measure_input
    from subquad.bench.step import measure_steps
    from subquad.experiment import load_study

    runs = load_study(target, overrides).runs
    found = measure_steps(runs, rounds, device)
    batches = measure_input(runs[0], rounds) if with_input else None
    if as_json:
        click.echo(json.dumps({"what": "step", **found, "input": batches}, allow_nan=False))
        return 0
    print_table([title for title, _ in _STEP_COLUMNS], [_step_row(one) for one in found["steps"]])
    clock = "CPU time, one thread" if device == "cpu" else "CUDA event times"
    print_line(f"{device}: {clock}, medians over {rounds} rounds; GFLOP is counted, MiB what a step adds at its peak")
    if batches:
        print_line()
        _print_input(runs[0].label, batches)
    return 0


_STEP_COLUMNS = (
    ("run", "run"),
    ("data", "dataset"),
    ("forward ms", "forward_ms"),
    ("backward", "backward_ms"),
    ("optimiser", "optimizer_ms"),
    ("whole", "whole_ms"),
    ("/ first", "ratio"),
    ("samples/s", "samples_per_second"),
    ("tokens/s", "tokens_per_second"),
    ("MiB", "peak_mib"),
    ("GFLOP", "gflop"),
    ("parameters", "parameters"),
)


def _step_row(found: dict[str, Any]) -> list[str]:
    cells = [found[key] for _, key in _STEP_COLUMNS]
    return [one if isinstance(one, str) else "-" if one is None else _figure(one) for one in cells]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


bench_command.add_command(mixers_command)
bench_command.add_command(kernels_command)
