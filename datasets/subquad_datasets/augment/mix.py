"""mixup and CutMix of pairs: what is random is drawn with the samples, pixels are mixed on the
device.

Samples 2k and 2k + 1 of a batch are a pair. B batch, H x W pixels.
Departures from the published code: it mixes a batch with its reverse, and draws once for a whole
batch. Here each pair draws for itself, as timm does in its mode "pair", and partners stand side by
side, so that no number of processes or micro-batches parts them. Pixels are rounded to bytes again,
as in timm's own fast path.
"""

from __future__ import annotations

import numpy as np
import torch
from timm.data.mixup import cutmix_bbox_and_lam
from torch import Tensor

from subquad.data import NO_LABEL, ArrayBatch
from subquad_datasets.augment import AugmentConfig
from subquad_datasets.augment.pictures import seed_generators

_STREAM = 1
"""Tells a pair's draws from those of its first sample."""


def draw_pairs(
    config: AugmentConfig, labels: np.ndarray, indices: np.ndarray, *, epoch: int, seed: int
) -> ArrayBatch:
    """How each sample is mixed with its partner; seeds the global generators.

    A last sample without a partner, and pairs of which one has no label, are left as they are.

    Args:
        labels: (B,) int64.
        indices: (B,) global indices; the randomness is that of (seed, epoch, index of the pair's
            first).

    Returns:
        `other_labels` (B,) int64 and `other_share` (B,) float32, the share of the partner in label
        and picture; and `mix_box` (B, 4) int64, top, bottom, left and right of what comes from the
        partner; zeros for mixup.
    """
    partner = _partners(len(labels))
    mixed = (
        (labels != NO_LABEL) & (labels[partner] != NO_LABEL) & (partner != np.arange(len(labels)))
    )
    share = np.zeros(len(labels), np.float32)
    box = np.zeros((len(labels), 4), np.int64)
    for first in np.flatnonzero(mixed)[::2].tolist():
        seed_generators(seed, epoch, int(indices[first]), _STREAM)
        share[first : first + 2], box[first : first + 2] = _draw(config)
    return {
        "other_labels": np.where(mixed, labels[partner], labels),
        "other_share": share,
        "mix_box": box,
    }


def _draw(config: AugmentConfig) -> tuple[float, tuple[int, int, int, int]]:
    """The partner's share and the box, by the formulas of `timm.data.Mixup`."""
    if np.random.rand() >= config.mix_prob:
        return 0.0, (0, 0, 0, 0)
    if config.mixup and config.cutmix:
        cut = np.random.rand() < config.switch_prob
    else:
        cut = bool(config.cutmix)
    alpha = config.cutmix if cut else config.mixup
    own = np.random.beta(alpha, alpha)
    if not cut:
        return 1 - own, (0, 0, 0, 0)
    box, own = cutmix_bbox_and_lam((config.size, config.size), own)
    return 1 - own, box


def mix(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """A batch whose `inputs`, (B, C, H, W) uint8, are mixed as `draw_pairs` drew."""
    box = batch["mix_box"]
    rest = {name: values for name, values in batch.items() if name != "mix_box"}
    inputs = batch["inputs"]
    share = batch["other_share"][:, None, None, None]
    others = inputs[torch.from_numpy(_partners(len(inputs))).to(inputs.device)]
    height, width = (torch.arange(side, device=inputs.device) for side in inputs.shape[-2:])
    top, bottom, left, right = box[..., None].unbind(1)
    inside = ((height >= top) & (height < bottom))[:, :, None] & (
        (width >= left) & (width < right)
    )[:, None, :]
    whole = (bottom > top)[:, :, None, None]
    weight = torch.where(whole, inside[:, None].to(share.dtype), share)
    return {
        **rest,
        "inputs": torch.lerp(inputs.to(share.dtype), others.to(share.dtype), weight)
        .round()
        .to(torch.uint8),
    }


def _partners(count: int) -> np.ndarray:
    """(B,): 1, 0, 3, 2, ...; a last one without a partner is its own."""
    return np.minimum(np.arange(count) ^ 1, count - 1)
