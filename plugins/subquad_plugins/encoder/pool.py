"""From encoded tokens to one feature vector per sample, or per position, and from that to the
outputs.

Letters: B batch, L length, P prefix tokens, D model width, F features.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError
from subquad_plugins.encoder import Config


def mean_of_real(x: Tensor, keep: Tensor) -> Tensor:
    """Mean over real tokens; zero for a sample without any."""
    return _zeroed(x, keep).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)


def mean_of_padded(x: Tensor, keep: Tensor) -> Tensor:
    """Sum over real tokens divided by the padded length, as the LRA code does: depends on how
    much padding follows.
    """
    return _zeroed(x, keep).mean(1)


def first(x: Tensor, keep: Tensor) -> Tensor:
    """The class token."""
    return x[:, 0]


def last_real(x: Tensor, keep: Tensor) -> Tensor:
    """The last real token; the last position of a sample without any."""
    places = torch.arange(keep.shape[1], device=keep.device)
    last = torch.where(keep, places, -1).amax(1) % keep.shape[1]
    # len() would fix the batch size of an exported program
    return x[torch.arange(x.shape[0], device=x.device), last]


def flattened(x: Tensor, keep: Tensor) -> Tensor:
    """All positions side by side, padding zeroed, (B, L * D)."""
    return _zeroed(x, keep).flatten(1)


def unpooled(x: Tensor, keep: Tensor) -> Tensor:
    """Every position by itself, (B, L, D)."""
    return x


POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_of_real,
    "mean_padded": mean_of_padded,
    "cls": first,
    "last": last_real,
    "flatten": flattened,
    "each": unpooled,
}


def num_features(config: Config, max_len: int) -> int:
    """F, the width of a pooled sample."""
    if config.head == "flatten":
        return config.dim * max_len
    return config.dim


def check_labels(config: Config, spec: DataSpec) -> None:
    """Refuse a head whose outputs are not of what the data set labels.

    Raises:
        ConfigError: it gives an output for each position and sequences are labelled, or the
            reverse.
    """
    if config.head == "each" and spec.target != "positions":
        raise ConfigError(
            "encoder: head each is for data sets that label positions, this one "
            "labels sequences: use mean"
        )
    if config.head != "each" and spec.target == "positions":
        raise ConfigError(
            f"encoder: head {config.head} gives one output for a sequence, but "
            "this data set labels positions: use each"
        )


def check_length(config: Config, length: int, max_len: int) -> None:
    """Refuse inputs that a flattening head was not built for.

    Raises:
        DataError: the length is another one.
    """
    if config.head == "flatten" and length != max_len:
        raise DataError(
            f"encoder: head flatten was built for length {max_len}, the inputs have length {length}"
        )


def build_head(config: Config, features: int, outputs: int) -> nn.Module:
    """(B, F) to (B, outputs), or (B, L, F) to (B, L, outputs)."""
    if config.head_hidden is None:
        return nn.Linear(features, outputs)
    return nn.Sequential(
        nn.Linear(features, config.head_hidden), nn.ReLU(), nn.Linear(config.head_hidden, outputs)
    )


def _zeroed(x: Tensor, keep: Tensor) -> Tensor:
    return x.masked_fill(~keep[..., None], 0.0)
