"""`subquad bench`."""

from __future__ import annotations

import json

import click

from subquad.output.terminal import print_line, print_table
from subquad_tools.bench.kernels_command import kernels_command
from subquad_tools.bench.mixers_command import formatted, mixers_command


@click.group("bench")
def bench_command() -> None:
    """Measure speed on this machine. Nothing here passes or fails."""


@bench_command.command("step")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How often each is timed.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def _step(target: str, overrides: tuple[str, ...], rounds: int, device: str, as_json: bool) -> int:
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

    found = measure_steps(study.runs, rounds, device)
    if as_json:
        click.echo(json.dumps({"what": "step", **found}, allow_nan=False))
        return 0
    print_table(*formatted(_STEP_COLUMNS, found["steps"]))
    clock = "CPU time, one thread" if device == "cpu" else "CUDA event times"
    print_line(
        f"{device}: {clock}, medians over {rounds} rounds; GFLOP is counted, MiB "
        "what a step adds at its peak"
    )
    return 0


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


bench_command.add_command(mixers_command)
bench_command.add_command(kernels_command)
