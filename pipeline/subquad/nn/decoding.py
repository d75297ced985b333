"""Backbones that write tokens one after another, and what they say of the tokens that they are
shown.

Shape letters: B batch, L length, N tokens, D model width, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from subquad.data import NO_LABEL
from subquad.nn.mixer import Cache
from subquad.nn.model import Backbone, Batch

_LOGITS_AT_ONCE = 2**24
"""Logits that exist at a time: 64 MiB in fp32."""


class TokenScores(NamedTuple):
    """The outputs of a backbone for the targets "next-token" and "sequence": one value for each
    position's label.

    Attributes:
        loss: (B, L) fp32 at least, -log p of the label; 0 where there is none.
        smooth: (B, L) fp32 at least, the mean of -log p over all tokens, for label smoothing; 0
            where none is.
        predicted: (B, L) int64, the likeliest token; `NO_LABEL` where there is no label.
    """

    loss: Tensor
    smooth: Tensor
    predicted: Tensor


def token_scores(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    *,
    at_once: int = _LOGITS_AT_ONCE,
) -> TokenScores:
    """Scores of labels, from hidden states and the head's weights, without ever holding the logits
    of all positions.

    Logits are taken in pieces, and again in the backward pass, where they do not fit into one.

    Args:
        hidden: (B, L, D).
        weight: (V, D).
        labels: (B, L) int64, `NO_LABEL` where there is none.
        bias: (V,), or None.
        at_once: most logits that exist at a time.
    """
    size = max(1, at_once // len(weight))
    states = hidden.flatten(0, 1).split(size)
    tokens = labels.clamp_min(0).flatten().split(size)
    scored = _scores
    if torch.is_grad_enabled() and len(states) > 1:
        scored = partial(checkpoint, _scores, use_reentrant=False, preserve_rng_state=False)
    pieces = [
        scored(piece, weight, bias, own_tokens)
        for piece, own_tokens in zip(states, tokens, strict=True)
    ]
    has_none = labels == NO_LABEL
    loss, smooth, predicted = (
        torch.cat(tensors).view_as(labels) for tensors in zip(*pieces, strict=True)
    )
    return TokenScores(
        loss.masked_fill(has_none, 0.0),
        smooth.masked_fill(has_none, 0.0),
        predicted.masked_fill(has_none, NO_LABEL),
    )


def _scores(
    states: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(N, D) and (N,) to three tensors (N,)."""
    logits = F.linear(states, weight, bias)
    if logits.dtype != torch.float64:
        logits = logits.float()
    log_total = logits.logsumexp(-1)
    loss = log_total - logits.gather(-1, tokens[:, None]).squeeze(-1)
    return loss, log_total - logits.mean(-1), logits.detach().argmax(-1)


class Decoder(Backbone):
    """A backbone that writes: its outputs are `TokenScores`, and it goes on from what it was given,
    token by token.

    State and memory are trees of tensors (see `subquad.nn.Cache`), the batch first in each. The
    state grows with the tokens written. The memory stays, such as that of a source text; None where
    there is none.
    """

    @abstractmethod
    def start(self, batch: Batch) -> tuple[Tensor, Cache, Cache]:
        """Read what is given: `inputs` (B, L) and `keep`, real tokens first. Labels are not looked
        at.

        Returns:
            logits (B, V) of the first token to write, the state, and the memory.
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: Cache, memory: Cache) -> tuple[Tensor, Cache]:
        """Write one token for each sample.

        Args:
            tokens: (B,) int64, what was chosen.
            state: from `start` or the last step; left as it is.
            memory: from `start`.

        Returns:
            logits (B, V) of the token after it, and the new state.
        """
