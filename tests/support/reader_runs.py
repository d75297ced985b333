"""Experiments that train on what a reader reads."""

from __future__ import annotations

import json
from pathlib import Path

from plain_readers import Reader, Samples

from subquad.engine.parts import build_dataset
from subquad.experiment import Run

LATE = ("uea", "lra-listops", "lra-pathfinder")
"""What leaves the file of TEST closed until the final evaluation."""

BACKBONES = {
    "encoder": {"num_layers": 1, "dim": 8, "num_heads": 1},
    "dual-encoder": {"num_layers": 1, "dim": 8, "num_heads": 1},
    "decoder": {"num_layers": 1, "dim": 8, "num_heads": 1},
    "encoder-decoder": {"num_layers": 1, "dim": 8, "num_heads": 1},
    "timm-vit": {"model": "deit_tiny_patch16_224", "patch_size": 4, "depth": 1},
}
MIXER = {"name": "identity"}


def experiment(reader: Reader, folder: Path, max_bad: float) -> Path:
    """An experiment file that trains on the data."""
    data = {"name": reader.dataset, "params": {"path": str(folder), **reader.params}}
    mixer = {"name": "linear", "params": {}} if reader.task != "classification" else MIXER
    parts = {
        "name": "guard",
        "dataset": data,
        "task": reader.task,
        "backbone": {"name": reader.backbone, "params": BACKBONES[reader.backbone]},
        "mixer": mixer,
        "train": {"epochs": 1, "batch_size": 2, "lr": 1e-3, "max_bad": max_bad},
    }
    path = folder.parent / "guard.yaml"
    path.write_text(json.dumps(parts))
    return path


def seen(reader: Reader, run: Run) -> Samples:
    dataset = build_dataset(run)
    return {part: reader.observe(dataset, part) for part in ("trainval", "test")}
