"""The seed of random picks: part of a model's state, but nothing that another model's weights must bring along."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from subquad.plugin import Site


def register_seed(module: nn.Module, site: Site, *, wanted: bool) -> None:
    """Give `module` the buffer `seed`, () int64, or None where no seed is wanted.

    In the state, so that a model loaded elsewhere picks what it was evaluated with. Weights of a method without a seed
    still load strictly: the module's own stays. Two streams of a seed are free for each layer.
    """
    seed = torch.tensor(2 * (1009 * site.seed + site.layer_index)) if wanted else None
    module.register_buffer("seed", seed)
    module.register_load_state_dict_pre_hook(_own_seed)


def _own_seed(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    if module.seed is not None:
        state.setdefault(f"{prefix}seed", module.seed)
