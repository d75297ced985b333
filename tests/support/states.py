"""What a run's checkpoints hold, to be compared tensor by tensor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from subquad.record.metrics import read_records

FILES = ("model", "optimizer", "rng")


def steps(run: Path) -> list[int]:
    """Steps of its checkpoints, oldest first."""
    return sorted(
        int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")
    )


def state(run: Path, step: int) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, whole, by `<file>:<name>`."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    found = {}
    for file in FILES:
        parts = defaultdict(list)
        paths = [folder / f"{file}.safetensors", *sorted(folder.glob(f"{file}-*-of-*.safetensors"))]
        for path in filter(Path.exists, paths):
            for name, tensor in load_file(path).items():
                parts[f"{file}:{name}"].append(tensor)  # of a rank its rows, in the ranks' order
        found |= {
            name: torch.cat(tensors) if len(tensors) > 1 else tensors[0]
            for name, tensors in parts.items()
        }
    return found


def numbers(run: Path, step: int) -> dict[str, Any]:
    """The generators' states that are no tensors, and where the run stood, without times."""
    text = (run / "checkpoints" / f"step-{step:08d}" / "state.json").read_text()
    document = json.loads(text)
    return {"rng": document["rng"], "progress": {**document["progress"], "seconds": 0.0}}


def unequal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> list[str]:
    """Names whose tensors are not the same, bit for bit."""
    common = first.keys() & second.keys()
    found = [*(first.keys() ^ second.keys())]
    found += [name for name in common if not _same(first[name], second[name])]
    return sorted(found)


def _same(first: Tensor, second: Tensor) -> bool:
    """NaN is like NaN: a checkpoint may hold a buffer that was never a number."""
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    return torch.equal(
        first.contiguous().view(-1).view(torch.uint8),
        second.contiguous().view(-1).view(torch.uint8),
    )


def losses(run: Path) -> np.ndarray:
    """The loss of each step that was logged."""
    return np.array(
        [record.metrics["loss"] for record in read_records(run) if record.kind == "train"]
    )
