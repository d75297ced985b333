"""The authors' weights under our names: facebookresearch/mega, MovingAverageGatedAttention and
MultiHeadEMA.

| theirs | ours |
|---|---|
| v_proj, mx_proj, h_proj (weight, bias) | value, branches, out |
| gamma, beta (2, z) | scale, shift |
| move.delta, move.alpha, move.beta (C, N, 1) | ema.weight_logit, ema.damping_logit, ema.expansion
(C, N) |
| move.gamma (C, N), move.omega (D) | ema.projection, ema.skip |
| rel_pos_bias.rel_pos_bias (2 P - 1) | bias.table |
| rel_pos_bias.alpha, rel_pos_bias.beta (1, z) | bias.query, bias.key (z) |
| norm.* or norm.norm.* (weight, bias; scalar) | norm.* (scale for scalar); left out where it
follows the residual sum |

Rows of mx_proj are in our order already: update gate, z, reset gate, hidden.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from subquad.errors import PluginError

EMA_NAMES = {
    "delta": "weight_logit",
    "alpha": "damping_logit",
    "beta": "expansion",
    "gamma": "projection",
    "omega": "skip",
}
LAYER_NAMES = {
    "gamma": "scale",
    "beta": "shift",
    "rel_pos_bias.rel_pos_bias": "bias.table",
    "rel_pos_bias.alpha": "bias.query",
    "rel_pos_bias.beta": "bias.key",
    **{
        f"{theirs}.{part}": f"{ours}.{part}"
        for theirs, ours in (("v_proj", "value"), ("mx_proj", "branches"), ("h_proj", "out"))
        for part in ("weight", "bias")
    },
    **{f"move.{theirs}": f"ema.{ours}" for theirs, ours in EMA_NAMES.items()},
    **{
        f"{prefix}.{theirs}": f"norm.{ours}"
        for prefix in ("norm", "norm.norm")
        for theirs, ours in (("weight", "weight"), ("bias", "bias"), ("scalar", "scale"))
    },
}
WITHOUT_WEIGHTS = ("rel_pos_bias._float_tensor",)


def from_official(state: Mapping[str, Tensor], *, prenorm: bool = True) -> dict[str, Tensor]:
    """State of a `Mega` or `MegaCUR` from that of the authors' gated attention layer.

    Args:
        state: the layer's own state, without a prefix.
        prenorm: whether the layer's norm stands before it and so inside ours; the one after the
            residual sum is the backbone's, and is left out.

    Raises:
        PluginError: an entry has no counterpart, such as those of a batch norm.
    """
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        if name in WITHOUT_WEIGHTS or (name.startswith("norm.") and not prenorm):
            continue
        if name not in LAYER_NAMES:
            raise PluginError(f"{name} of the authors' layer has no counterpart in this mixer")
        ours = LAYER_NAMES[name]
        renamed[ours] = _shaped(ours, value)
    return renamed


def ema_from_official(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State of a `DampedEMA` from that of the authors' moving average alone."""
    return {ours: _shaped(ours, state[theirs]) for theirs, ours in EMA_NAMES.items()}


def _shaped(ours: str, value: Tensor) -> Tensor:
    """Without the dimensions of length 1 that the authors' code carries for broadcasting."""
    if ours.endswith(("logit", "expansion")):
        return value.flatten(1)
    if ours in ("bias.query", "bias.key"):
        return value.flatten()
    return value
