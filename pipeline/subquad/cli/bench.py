"""`subquad bench`."""

from __future__ import annotations

import json

import click


@click.command("bench")
@click.argument("what", type=click.Choice(["engine", "ray"]))
@click.option("--rounds", type=click.IntRange(min=3), default=15, show_default=True, help="Blocks of each kind.")
@click.option("--steps", type=click.IntRange(min=64), default=2048, show_default=True, help="Steps in a block.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--debug", is_flag=True, hidden=True)
def command(what: str, rounds: int, steps: int, as_json: bool, debug: bool) -> int:
    """Measure what subquad adds to a training step, in CPU milliseconds.

    \b
    engine  the engine's loop against a bare torch loop
    ray     a Ray Train worker's hooks against none, in the same worker
    """
    if what == "engine":
        from subquad.bench.engine import measure

        found, names = measure(rounds, steps), ("engine", "bare torch loop")
    else:
        from subquad.ray.bench import measure as measure_ray

        found, names = measure_ray(rounds, steps), ("with Ray's hooks", "without")
    if as_json:
        click.echo(json.dumps({"what": what, **vars(found)}))
        return 0
    click.echo(f"{names[0]:<18}{found.with_it:.4f} ms per step")
    click.echo(f"{names[1]:<18}{found.without_it:.4f} ms per step")
    click.echo(
        f"added             {found.added:.4f} ms per step (median of {found.rounds} blocks of {found.steps} steps)"
    )
    return 0
