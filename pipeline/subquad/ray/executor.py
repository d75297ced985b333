"""The executor that goes through Ray: Ray Train for a study's runs, Ray Tune for a search's trials."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from subquad.drivers.executor import Ended, Executor, NextRun
from subquad.engine.loop import Judge
from subquad.errors import UserError
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.ray.search import run_trials
from subquad.ray.train import run_ray

_NEEDED = ("ray", "fsspec", "pandas", "pyarrow", "requests")
"""Ray, and what `ray.train` and `ray.tune` import of other packages."""


class RayExecutor(Executor):
    """Workers of a Ray cluster of our own on this machine."""

    words = "through Ray, which takes some seconds to start"
    reserves = True

    def check(self) -> None:
        # Told without importing Ray: its settings are read when it is.
        lacking = [name for name in _NEEDED if find_spec(name) is None]
        if lacking:
            what = "Ray is not installed" if "ray" in lacking else f"Ray needs {', '.join(lacking)}"
            raise UserError(f"{what}: pip install 'subquad[ray]', or go without Ray by --local")

    def train(self, runs: Sequence[Run], resources: Resources, folder: Path, *, system: bool) -> int:
        return run_ray([one.plain() for one in runs], resources, folder, system=system)

    def search(self, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
        return run_trials(next_run, judge, ended)
