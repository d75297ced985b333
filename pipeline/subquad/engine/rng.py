"""Random number generators: seeding them, and taking and giving back their states without pickle."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int, *stream: int) -> None:
    """Seed Python, NumPy and torch from one seed and any further stream numbers (rank, step)."""
    words = np.random.SeedSequence([seed, *stream]).generate_state(4)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]) << 32 | int(words[3]))


def tensors() -> dict[str, Tensor]:
    """States of torch's generators, uint8 each."""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def numbers() -> dict[str, Any]:
    """States of Python's and NumPy's global generators, as JSON values."""
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(words), gauss],
        "numpy": [np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }


def restore_rng(states: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Give back what `tensors` and `numbers` took."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    version, words, gauss = values["python"]
    random.setstate((version, tuple(words), gauss))
    keys, position, has_gauss, cached = values["numpy"]
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, cached))
