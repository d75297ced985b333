"""Run directories as training leaves them, without training: configuration, records,
predictions, result.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from subquad.experiment.schema import Experiment
from subquad.plugin.metric import Metric
from subquad.record.files import write_json
from subquad.record.integrity import write_result
from subquad.record.metrics import Record
from subquad.record.names import ENVIRONMENT, EXPERIMENT, IDENTITY, METRICS, PREDICTIONS, STUDY
from subquad.registry import resolve
from subquad.reports import FORMATS, Report, document_of

TASKS = ("classification", "language-modeling", "summarization", "regression", "multilabel")
LABELS = {
    "honest": "checkpoint chosen on validation; test opened once",
    "paper": "best test accuracy over epochs",
}


class RunFactory:
    """Writes run directories below `root`; every argument of `run` is a fact of the run."""

    def __init__(self, root: Path):
        self.root = root

    def study(self, name: str = "study") -> Path:
        folder = self.root / name
        put(folder / STUDY, "name: study\n")
        return folder

    def run(self, folder: Path | str, **facts: Any) -> Path:
        path = Path(folder) if isinstance(folder, Path) else self.root / folder
        known = {**DEFAULTS, **facts}
        put(path / EXPERIMENT, yaml.safe_dump(experiment(known)))
        write_json(path / ENVIRONMENT, MACHINE)
        ended = result(known)
        write_json(path / IDENTITY, {name: ended[name] for name in NAMES})
        put(path / METRICS, "".join(record.line() for record in records(known)))
        kept = known["kept"] if known["correct"] is None else predictions(known["correct"])
        if kept and known["status"] == "finished":
            save_file(kept, path / PREDICTIONS)
        if known["status"] is not None:
            write_result(path, ended)
        return path

    def cell(self, study: Path, **facts: Any) -> Path:
        known = {**DEFAULTS, **facts}
        place = (
            f"{known['dataset']}-{known['mixer']}-{known['protocol']}-{known['seed']}-"
            f"{known['variant']}"
        )
        return self.run(study / "cells" / place.replace("/", "_"), **facts)


def render(report: Report, form: str) -> str:
    """The report as a file of this format has it."""
    return FORMATS[form](document_of(report))


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


NAMES = (
    *("name", "label", "axes", "mixer", "dataset", "task", "backbone", "protocol"),
    *("protocol_label", "seed", "metric", "tested", "metrics"),
)
"""Of what a run has said from its beginning on."""

DEFAULTS: dict[str, Any] = {
    "dataset": "JapaneseVowels", "mixer": "agf", "label": None, "seed": 0, "protocol": "honest",
    "status": "finished", "reason": None, "correct": None, "accuracy": None, "last": 0.9,
    "macro_f1": None, "metric": "accuracy", "mode": "max", "train": {}, "backbone": {},
    "params": {}, "notes": [], "flops": 1_234_000_000, "samples": None, "seconds": 61.5,
    "epochs": 4, "variant": "x", "format": 1, "published": None, "test": True, "axes": {},
    "reference_scores": None, "data": {}, "tested": None, "scores": {}, "kept": {}, "examples": [],
    "gpus": 0.0, "memory": None,
}  # fmt: skip

MACHINE = {
    "python": "3.11.9",
    "platform": "Linux",
    "packages": {"subquad": "0.1.0", "torch": "2.13.0"},
    "plugins": [
        {
            "kind": "mixer",
            "name": "agf",
            "distribution": "acme-mixers",
            "version": "1.2",
            "sha256": "0f3c" * 16,
        }
    ],
    "gpus": [],
    "git": {"commit": "1234567890abcdef", "dirty": True},
}


def experiment(known: dict[str, Any]) -> dict[str, Any]:
    train = {
        "epochs": known["epochs"],
        "batch_size": 16,
        "optimizer": "radam",
        "lr": 1e-3,
        "seed": known["seed"],
    }
    written = {
        "name": "quickstart",
        "protocol": known["protocol"],
        "dataset": {
            "name": "uea",
            "params": {
                "problem": known["dataset"],
                "normalize": True,
                "max_len": None,
                **known["data"],
            },
        },
        "task": {"name": "classification", "params": {"label_smoothing": 0.0}},
        "backbone": {
            "name": "encoder",
            "params": {"num_layers": 2, "dim": 128, "num_heads": 8, **known["backbone"]},
        },
        "mixer": {"name": known["mixer"], "params": known["params"]},
        "train": {**train, **known["train"]},
        "resources": {"gpus_per_worker": known["gpus"]},
    }
    return Experiment.model_validate(written).model_dump(mode="json")


def result(known: dict[str, Any]) -> dict[str, Any]:
    finished = known["status"] == "finished"
    accuracy = score(known)
    metrics = {"loss": 0.3, "macro_f1": known["macro_f1"] or accuracy, known["metric"]: accuracy}
    evaluated = {"step": 40, "epoch": 2.0, "split": "validation", "metrics": metrics}
    last = {**evaluated, "epoch": 4.0, "metrics": {known["metric"]: known["last"]}}
    last["split"] = "test" if known["protocol"] == "paper" else "validation"
    samples = known["samples"] or (len(known["correct"]) if known["correct"] is not None else 370)
    test = {
        "metrics": {**metrics, **known["scores"]},
        "samples": samples,
        "checkpoint": "best",
        "step": 40,
    }
    return {
        "format": known["format"],
        "status": known["status"],
        "reason": known["reason"],
        "name": "quickstart",
        "label": "cell",
        "axes": axes(known),
        "mixer": known["mixer"],
        "dataset": known["dataset"],
        "task": "classification",
        "backbone": "encoder",
        "protocol": known["protocol"],
        "protocol_label": LABELS.get(known["protocol"], ""),
        "seed": known["seed"],
        "metric": known["metric"],
        "tested": list(tested(known)),
        "metrics": metrics_of(known),
        "parameters": 6_970_899 if finished else None,
        "flops_per_step": known["flops"],
        "steps": 80,
        "epochs": 4.0,
        "seconds": known["seconds"],
        "peak_memory_bytes": known["memory"],
        "best": evaluated if finished else None,
        "last": last if finished else None,
        "test": test if finished and known["test"] else None,
        "attempts": 1,
        "skipped_steps": 0,
        "workers": 1,
        "notes": known["notes"],
        "examples": known["examples"],
        "experiment": "feedbeef",
        **(
            {"reference_scores": {"samples": samples, "scores": guessed(known["reference_scores"])}}
            if known["reference_scores"] is not None
            else {}
        ),
        **({"published_keys": {"benchmark": known["published"]}} if known["published"] else {}),
    }


def tested(known: dict[str, Any]) -> dict[str, str]:
    """As classification has it, for another metric alone."""
    return known["tested"] or {known["metric"]: known["mode"], "macro_f1": "max"}


def metrics_of(known: dict[str, Any]) -> dict[str, Any]:
    """As the task has them that reports a metric of the name."""
    declared = {
        name: report
        for task in TASKS
        for name, report in resolve("task", task).plugin.reports.items()
    }
    modes = {known["metric"]: known["mode"], **tested(known)}
    found = {
        name: declared.get(name, Metric(unit="%", label=name.replace("_", " "))) for name in modes
    }
    return {name: asdict(replace(metric, mode=modes[name])) for name, metric in found.items()}


def guessed(given: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By metric; what is not so already are accuracies."""
    return (
        given if all(isinstance(scores, dict) for scores in given.values()) else {"accuracy": given}
    )


def axes(known: dict[str, Any]) -> dict[str, Any]:
    return {"mixer": known["label"] or known["mixer"], "seed": known["seed"], **known["axes"]}


def score(known: dict[str, Any]) -> float:
    if known["accuracy"] is not None:
        return known["accuracy"]
    return float(np.mean(known["correct"])) if known["correct"] is not None else 0.9


def predictions(correct: np.ndarray) -> dict[str, np.ndarray]:
    """Nine classes in turn; a wrong answer is the next class."""
    label = np.arange(len(correct), dtype=np.int64) % 9
    return {"predicted": np.where(correct, label, (label + 1) % 9), "label": label}


def records(known: dict[str, Any]) -> list[Record]:
    """A training loss every tenth step and an evaluation every epoch, as smooth curves."""
    end = score(known)
    split = "test" if known["protocol"] == "paper" else "validation"
    train = [
        Record(
            kind="train",
            step=step,
            epoch=step / 20,
            seconds=step,
            time=0.0,
            metrics={"loss": 2.2 / (1 + step / 20)},
        )
        for step in range(10, 81, 10)
    ]
    evaluations = [
        Record(
            kind="eval", step=20 * epoch, epoch=epoch, seconds=epoch, time=0.0, split=split,
            metrics={"accuracy": end * (1 - 0.5**epoch), "loss": 1.0 / epoch},
        )
        for epoch in range(1, 5)
    ]  # fmt: skip
    return [*train, *evaluations]


def correctness(samples: int, wrong: int, start: int = 0) -> np.ndarray:
    """(N,) bool with `wrong` errors from sample `start` on."""
    found = np.ones(samples, dtype=bool)
    found[start : start + wrong] = False
    return found


@pytest.fixture
def factory(tmp_path: Path) -> RunFactory:
    return RunFactory(tmp_path / "runs")


@pytest.fixture(scope="module")
def shared_factory(tmp_path_factory: pytest.TempPathFactory) -> RunFactory:
    """For what the tests of a module read and none changes."""
    return RunFactory(tmp_path_factory.mktemp("shared") / "runs")


@pytest.fixture
def as_text():
    """`as_text(report, "md")`: what a file of this format holds."""
    return render


@pytest.fixture
def answers():
    """`answers(samples, wrong, start)`: correctness of one run."""
    return correctness
