"""From inputs to embedded positions: projection or lookup, class token, positions, dropout.

Letters: B batch, L length, P prefix tokens (0 or 1), C channels, D model width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError
from subquad_plugins.encoder import Config, TransformerConfig
from subquad_plugins.numerics.dropout import Dropout


class Embedding(nn.Module):
    """Inputs (B, L, C) float or (B, L) int64 to (B, P + L, D).

    Args:
        config: see `TransformerConfig`.
        spec: channels or vocabulary.
        length: L of the longest sequence.
        prefix: P, class tokens in front.

    Raises:
        ConfigError: `vocab_size` does not suit the data set.
    """

    def __init__(self, config: TransformerConfig, spec: DataSpec, length: int, prefix: int = 0):
        super().__init__()
        rows = token_rows(config, spec)
        if rows:
            self.project: nn.Module = nn.Embedding(rows, config.dim)
            nn.init.normal_(self.project.weight, std=config.embedding_init)
        else:
            self.project = nn.Linear(spec.channels, config.dim)
        if config.input_scale:
            self.scale = math.sqrt(config.dim)
        else:
            self.scale = 1.0
        if prefix:
            self.prefix = nn.Parameter(config.embedding_init * torch.randn(1, prefix, config.dim))
        else:
            self.prefix = None
        self.positions = build_positions(config, length + prefix)
        self.dropout = Dropout(config.dropout)

    def forward(self, inputs: Tensor, at: Tensor | None = None) -> Tensor:
        """`at` says which positions they have, (B, L); the first ones where it is None."""
        x = self.tokens(inputs)
        if self.prefix is not None:
            prefix = self.prefix.expand(x.shape[0], -1, -1).to(x.dtype)
            x = torch.cat([prefix, x], 1)
        return self.dropout(x if self.positions is None else self.positions(x, at))

    def tokens(self, inputs: Tensor) -> Tensor:
        """Inputs alone, without positions: (B, L, D)."""
        x = self.project(inputs)
        if self.scale != 1.0:
            return x * self.scale
        return x


class Positions(nn.Module):
    """Adds rows of a table to (B, L, D): the first ones, or those of the given positions (B, L).

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

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        if at is None:
            length = x.shape[1]
        else:
            length = int(at.max()) + 1
        if length > len(self.table):
            raise DataError(
                f"backbone: {length} positions, but the position "
                f"table was built for {len(self.table)}"
            )
        return x + (self.table[: x.shape[1]] if at is None else self.table[at])


def token_rows(config: TransformerConfig, spec: DataSpec) -> int:
    """Rows of the token table, 0 for series.

    Raises:
        ConfigError: there are fewer than the data set has tokens, or no tokens at all.
    """
    given = config.vocab_size
    if not spec.vocab_size:
        if given is not None:
            raise ConfigError(f"backbone: {config.no_effect('vocab_size', 'a data set of series')}")
        return 0
    if given is not None and given < spec.vocab_size:
        raise ConfigError(
            f"backbone: vocab_size {given} is less than the data set's {spec.vocab_size} tokens: "
            f"use {spec.vocab_size} or more, or null"
        )
    return given or spec.vocab_size


def check_init(config: Config, spec: DataSpec) -> None:
    """Refuse a start of embeddings where there is nothing that starts from it.

    Raises:
        ConfigError: the data set is of series, whose projection starts as linear layers do, and no
            table is learned.
    """
    idle = not spec.vocab_size and config.positions != "learned" and config.head != "cls"
    if idle and not config.is_default("embedding_init"):
        where = f"a data set of series, positions {config.positions} and head {config.head}"
        raise ConfigError(
            f"encoder: {config.no_effect('embedding_init', where, 'positions learned')}"
        )


def num_prefix_tokens(config: Config) -> int:
    return 1 if config.head == "cls" else 0


def build_positions(config: TransformerConfig, length: int) -> Positions | None:
    """The position table the config asks for."""
    if config.positions == "none":
        return None
    if config.positions == "sinusoidal":
        return Positions(sinusoidal(length, config.dim), learned=False)
    table = torch.empty(length, config.dim)
    if config.position_init == "uniform":
        nn.init.uniform_(table, -config.embedding_init, config.embedding_init)
    else:
        nn.init.normal_(table, std=config.embedding_init)
    return Positions(table, learned=True)


def sinusoidal(length: int, dim: int) -> Tensor:
    """(length, dim) float64: sines in even and cosines in odd columns, wavelengths 2 pi to 20000
    pi.

    Reference: Vaswani et al. 2017, section 3.5.
    """
    columns = torch.arange(0, dim, 2, dtype=torch.float64)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (-columns / dim)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim]
