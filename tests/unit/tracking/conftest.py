"""Run directories as the engine writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from result_file import ended

from subquad.record.files import write_json
from subquad.record.metrics import Record, metrics_file
from subquad.record.names import RESULT


class RunFolder:
    """A run directory under construction."""

    def __init__(self, path: Path, label: str):
        self.path, self.label = path, label
        path.mkdir(parents=True, exist_ok=True)
        (path / "experiment.yaml").write_text(
            f"name: demo\ntask: {{name: classification}}\nmixer: {{name: {label}}}\n"
        )

    def record(
        self,
        step: int,
        metrics: Mapping[str, float],
        kind: str = "train",
        split: str = "",
        attempt: int = 1,
    ):
        self.append(
            attempt=attempt,
            text=Record(
                kind=kind,  # type: ignore[arg-type]
                step=step,
                epoch=step / 10,
                seconds=float(step),
                time=1_700_000_000.0 + step + 1000 * attempt,
                attempt=attempt,
                split=split,
                metrics=metrics,
            ).line(),
        )

    def append(self, text: str, attempt: int = 1):
        with metrics_file(self.path, attempt).open("a", encoding="utf-8") as stream:
            stream.write(text)

    def train(self, steps: range, attempt: int = 1, system_every: int = 0):
        for step in steps:
            self.record(step, {"loss": 2.0 / (1 + step), "lr": 1e-3}, attempt=attempt)
            if system_every and step % system_every == 0:
                self.record(
                    step, {"cpu_utilization_percentage": 50.0}, kind="system", attempt=attempt
                )

    def result(self, status: str = "finished", **more):
        data = {
            **ended(status),
            "format": 1,
            "reason": None,
            "name": "demo",
            "label": self.label,
            "mixer": self.label,
            "protocol_label": "checkpoint chosen on a validation part of TRAIN",
            "metric": "accuracy",
            "steps": 20,
            "test": {
                "metrics": {"accuracy": 0.75, "loss": 0.5},
                "samples": 8,
                "checkpoint": "best",
                "step": 15,
            },
        }
        write_json(self.path / RESULT, {**data, **more})


@pytest.fixture
def make_run() -> Callable[[Path], RunFolder]:
    """Makes a run directory named like its label."""
    return lambda path: RunFolder(path, path.name)


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "demo" / "20260101-000000-abcdef01", "agf")
