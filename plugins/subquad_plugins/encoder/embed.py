"""From inputs to embedded positions: projection or lookup, class token, positions, dropout.

Letters: B batch, L length, P prefix tokens (0 or 1), C channels, D model width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError
from subquad_plugins.encoder import Config

INIT_SCALE = 0.02
"""Deviation (or half width) of what embeddings and positions start from, in the UEA and the LRA code alike."""


class Embedding(nn.Module):
    """Inputs (B, L, C) float or (B, L) int64 to (B, P + L, D).

    Args:
        config: see `Config`.
        spec: modality, channels or vocabulary, and the longest sequence.

    Raises:
        ConfigError: `vocab_size` does not suit the data set.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__()
        rows = token_rows(config, spec)
        if rows:
            self.project: nn.Module = nn.Embedding(rows, config.dim)
            nn.init.normal_(self.project.weight, std=INIT_SCALE)
        else:
            self.project = nn.Linear(spec.channels, config.dim)
        self.scale = math.sqrt(config.dim) if config.input_scale else 1.0
        self.max_len = spec.max_len
        self.prefix = nn.Parameter(INIT_SCALE * torch.randn(1, 1, config.dim)) if config.head == "cls" else None
        self.positions = build_positions(config, spec.max_len + num_prefix_tokens(config))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.project(inputs)
        x = x * self.scale if self.scale != 1.0 else x
        if self.prefix is not None:
            x = torch.cat([self.prefix.expand(len(x), -1, -1).to(x.dtype), x], 1)
        return self.dropout(x if self.positions is None else self.positions(x))


class Positions(nn.Module):
    """Adds the first rows of a table to (B, L, D).

    Args:
        table: (max_len, D).
        learned: whether the table is trained.
    """

    table: Tensor

    def __init__(self, table: Tensor, *, learned: bool):
        super().__init__()
        if learned:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > len(self.table):
            raise DataError(f"encoder: {x.shape[1]} positions, but the position table was built for {len(self.table)}")
        return x + self.table[: x.shape[1]]


def token_rows(config: Config, spec: DataSpec) -> int:
    """Rows of the token table, 0 for series.

    Raises:
        ConfigError: there are fewer than the data set has tokens, or no tokens at all.
    """
    given = config.vocab_size
    if spec.modality == "series":
        if given is not None:
            raise ConfigError(f"encoder: vocab_size {given} has no effect with a data set of series: leave it at null")
        return 0
    if given is not None and given < spec.vocab_size:
        raise ConfigError(
            f"encoder: vocab_size {given} is less than the data set's {spec.vocab_size} tokens: "
            f"use {spec.vocab_size} or more, or null"
        )
    return given or spec.vocab_size


def num_prefix_tokens(config: Config) -> int:
    return 1 if config.head == "cls" else 0


def build_positions(config: Config, length: int) -> Positions | None:
    """The position table the config asks for."""
    if config.positions == "none":
        return None
    if config.positions == "sinusoidal":
        return Positions(sinusoidal(length, config.dim), learned=False)
    table = torch.empty(length, config.dim)
    if config.position_init == "uniform":
        nn.init.uniform_(table, -INIT_SCALE, INIT_SCALE)
    else:
        nn.init.normal_(table, std=INIT_SCALE)
    return Positions(table, learned=True)


def sinusoidal(length: int, dim: int) -> Tensor:
    """(length, dim) float64: sines in even and cosines in odd columns, wavelengths 2 pi to 20000 pi.

    Reference: Vaswani et al. 2017, section 3.5.
    """
    columns = torch.arange(0, dim, 2, dtype=torch.float64)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (-columns / dim)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim]
