"""Selected queries and keys of a mixer: what CUR attention and Mega's layer with it share.

Letters: B batch, H heads, L length, E head width, m picks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.cur import CURSettings
from subquad_plugins.cur.selection import Source, select_indices

Picks = tuple[Tensor, Tensor | None]
"""Indices (B, H, m), and which of them count, bool or None for all."""


class Picking(nn.Module):
    """A base of modules that select queries and keys; call `set_up` when building.

    The seed of random picks is part of the state, so that a model loaded elsewhere picks what it
    was evaluated with. Weights of a method without a seed still load strictly: the module's own
    stays. Two streams of a seed are free for each layer.
    """

    seed: Tensor | None

    def set_up(self, settings: CURSettings, site: Site) -> None:
        """`site`: its seed and layer fix what selection "random" picks in evaluation."""
        self.settings = settings
        force = settings.force_class
        self.force_first = force == "always" or (force == "auto" and site.num_prefix_tokens > 0)
        drawn = settings.selection == "random"
        self.register_buffer(
            "seed", torch.tensor(2 * (1009 * site.seed + site.layer_index)) if drawn else None
        )
        self.register_load_state_dict_pre_hook(_own_seed)

    def picks(
        self, q: Tensor, k: Tensor, query_keep: Tensor | None, key_keep: Tensor | None
    ) -> tuple[Picks, Picks]:
        """Which queries and which keys, of q and k (B, H, L, E) with masks (B, L)."""
        if self.settings.mode == "different":
            return self._select(q, k, "q", query_keep, 0), self._select(q, k, "k", key_keep, 1)
        if q.shape[2] != k.shape[2]:
            raise PluginError(
                f"cur: mode same needs as many queries as keys, got {q.shape[2]} "
                f"and {k.shape[2]}; use mode different"
            )
        if key_keep is None:
            both = query_keep
        elif query_keep is None:
            both = key_keep
        else:
            both = query_keep & key_keep
        picks = self._select(q, k, self.settings.same_source, both, 0)
        return picks, picks

    def _select(
        self, q: Tensor, k: Tensor, source: Source, keep: Tensor | None, stream: int
    ) -> Picks:
        return select_indices(
            q,
            k,
            self.settings.num_indices,
            self.settings.selection,
            source=source,
            column=self.settings.column,
            keep=keep,
            force_first=self.force_first,
            seed=None if self.training or self.seed is None else self.seed + stream,
        )

    def how(self) -> dict[str, Any]:
        """How U is inverted, and what is done to the result, as `cur_attention` takes it."""
        c = self.settings
        return {
            "iterations": c.iterations,
            "pinv": c.pinv,
            "through_start": c.start_gradient,
            "ridge": c.ridge,
            "copy_rows": c.copy_rows,
        }


def _own_seed(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    if module.seed is not None:
        state.setdefault(f"{prefix}seed", module.seed)
