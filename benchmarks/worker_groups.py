"""Seconds that many short runs take side by side, through Ray and without, from the first one's
start to the last one's result.

    python benchmarks/worker_groups.py [--trials 20] [--steps 4] [--jobs N]

Ray's own start is not in it. Both ways end with the same results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = """
name: small
dataset:
  name: recall
  params: {num_pairs: 4, num_keys: 6, num_values: 5,
    train_size: 203, validation_size: 40, test_size: 60}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2, head: last}}
mixer: agf
tracking: {uri: off}
"""
WAYS = {"local": ["--local"], "ray": []}


def seconds(way: str, trials: int, steps: int, jobs: list[str]) -> dict[str, float]:
    """From the first start to the last result, and of the whole command."""
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        root = Path(folder)
        (root / "small.yaml").write_text(SMALL)
        (root / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")
        settings = ["train.epochs=null", f"train.steps={steps}", "train.eval_every_epochs=null"]
        options = ["--space", "./space.yaml", "--budget", f"{trials}-trials", "final.seeds=1"]
        command = [sys.executable, "-m", "subquad.cli.main", "tune", "small.yaml", *settings]
        begun = time.time()
        subprocess.run(
            [*command, *options, *WAYS[way], *jobs], cwd=root, check=True, capture_output=True
        )
        ended = time.time()
        found = list(root.glob("runs/*/*/trials/*/*"))
        first = min(
            json.loads((trial / "attempts.jsonl").read_text().splitlines()[0])["time"]
            for trial in found
        )
        last = max((trial / "result.json").stat().st_mtime for trial in found)
        return {"trials": last - first, "whole": ended - begun}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--jobs", help="runs at once; default: as many as fit")
    given = parser.parse_args()
    jobs = ["--jobs", given.jobs] if given.jobs else []
    for way in WAYS:
        found = seconds(way, given.trials, given.steps, jobs)
        print(f"{way}: {found['trials']:.1f} s, the whole command {found['whole']:.1f} s")


if __name__ == "__main__":
    main()
