"""The built-in mixers, in every way that they are built, and with settings that are no variant."""

from __future__ import annotations

from functools import cache
from typing import Any

from subquad.registry import find_plugins, resolve
from subquad_check import CheckSubject
from subquad_check.subject import check_subjects

FURTHER: dict[str, list[dict[str, Any]]] = {
    "causal_fourier": [
        {"projections": "both", "frequencies": "learned", "evaluation": "chirp"},
        {"evaluation": "chirp"},
    ],
    "mdfwa": [
        {"wavelet": "db4", "level": 3, "include_approx": True, "norm": "paper"},
        {"frequencies": "learned", "terms": 22, "norm": "ortho"},
        {"period": 80, "norm": "causal_rms", "gate": "sigmoid"},
        {"scale_weights": "fixed", "norm_output": False},
        {"branches": "fourier", "norm": "ortho"},
        {"scale_weights": "fixed", "include_approx": True},
        {"form": "re_2d", "wavelet": "bior2.2", "mode": "symmetric", "level": 2},
    ],
    "mega": [
        {"ema_dim": 3, "chunk_size": 4, "norm": "scale"},
        {"bias": "rotary", "norm": "rms", "attention_dim": 6, "value_dim": 5, "ema_dim": 1},
        {"ema_dim": 3, "attention": "laplace", "bias": "rotary", "chunk_size": 50},
        {"max_positions": 70, "ema_dim": 4},
    ],
    "megacur": [
        {"num_indices": 4},
        {"num_indices": 3, "attention": "laplace", "iterations": 4},
        {"num_indices": 2, "chunk_size": 4, "selection": "linspace"},
        {"num_indices": 4, "mode": "different", "pinv": "ridge", "copy_rows": True},
        {"num_indices": 4, "selection": "random", "renormalise": True, "bias": "rotary"},
        {
            "num_indices": 4,
            "selection": "embed",
            "column": 1,
            "force_class": "always",
            "pinv": "exact",
        },
        {"num_indices": 64, "start_gradient": False},
    ],
    "sfpc": [
        {"operator": "shift", "order": 3},
        {"operator": "shift", "order": 12, "gate": "silu", "evaluation": "fft"},
        {"operator": "shift", "coefficients": "head", "order": 20},
    ],
    "wavelet": [
        {"wavelet": "db4", "level": 3, "include_approx": False},
        {"scale_weights": "fixed", "wavelet": "db2", "transform": "atrous"},
        {"mode": "antireflect", "wavelet": "db2", "level": 2},
    ],
}


def names() -> list[str]:
    """Built-in mixers that are installed."""
    return [found.name for found in find_plugins("mixer") if found.distribution == "subquad"]


@cache
def built(name: str) -> dict[str, CheckSubject]:
    """The ways one mixer is built."""
    subjects = check_subjects(resolve("mixer", f"subquad:{name}"))
    return {str(subject): subject for subject in subjects}


@cache
def all_subjects() -> dict[str, CheckSubject]:
    """All ways, and with the further settings, each by a name of its own."""
    found = {f"{name}: {way}": subject for name in names() for way, subject in built(name).items()}
    for name, settings in FURTHER.items():
        for params in settings:
            for subject in check_subjects(resolve("mixer", f"subquad:{name}"), params):
                found[f"{name}{', causal' * subject.causal}: {params}"] = subject
    return found
