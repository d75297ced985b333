"""A decoder whose probabilities are a table, and what beam search must find in it, by trying
every text.
"""

from __future__ import annotations

from itertools import pairwise, product

import torch
from torch import Tensor, nn

from subquad.nn import Batch, Decoder, ModelOutput


class TableDecoder(Decoder):
    """The next token's logits follow from the sample's document, the position and the sum of the
    two tokens before.

    Args:
        logits: (documents, positions, V, V); `inputs` (B, 1) are numbers of documents.
    """

    def __init__(self, logits: Tensor):
        super().__init__()
        self.blocks = nn.ModuleList()
        self.logits = logits

    def forward(self, batch: Batch) -> ModelOutput:
        raise NotImplementedError

    def start(self, batch: Batch):
        documents = batch["inputs"][:, 0]
        nothing = torch.zeros_like(documents)
        return (
            self.logits[documents, 0, 0],
            {"position": nothing, "text": [nothing[:, None]]},
            {"document": documents},
        )

    def step(self, tokens: Tensor, state, memory):
        position, (text,) = state["position"] + 1, state["text"]
        before = (tokens + text[:, -1]) % self.logits.shape[2]
        logits = self.logits[
            memory["document"], position.clamp_max(self.logits.shape[1] - 1), before
        ]
        return logits, {"position": position, "text": [torch.cat([text, tokens[:, None]], 1)]}


def exhaustive(
    logits: Tensor, end: int, longest: int, penalty: float, least: int = 0
) -> dict[tuple[int, ...], float]:
    """Every text of one document (positions, V, V) with its score: it ends with `end`, or has no
    more room.
    """
    allowed = logits.double().log_softmax(-1)
    tokens, found = range(1, logits.shape[-1]), {}
    for length in range(1, longest + 1):
        for text in product(tokens, repeat=length):
            over = text[-1] == end or length == longest
            if not over or end in text[:-1] or (text[-1] == end and length <= least):
                continue
            padded = (0, 0, *text)
            before = [(left + right) % len(allowed[0]) for left, right in pairwise(padded)]
            total = sum(
                float(allowed[place, before[place], token]) for place, token in enumerate(text)
            )
            found[text] = total / length**penalty
    return found
