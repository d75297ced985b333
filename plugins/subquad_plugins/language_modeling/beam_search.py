"""What a model writes: beam search over all samples and beams at once, with the decoder's caches.

Greedy decoding is a beam of one. Sampling is a beam of one whose scores are disturbed before the
best one is taken.

Letters: B batch, W beams, V vocabulary, T written tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from subquad.nn import Batch, Cache, Decoder

Draw = Callable[[Tensor], Tensor]
"""Log-probabilities (N, V) to scores whose largest one is the token that is drawn."""


@dataclass(frozen=True)
class Rules:
    """What may be written.

    Attributes:
        end_token: ends a text; 0 where no token does.
        max_new_tokens: longest text, its end token included.
        min_new_tokens: tokens before the end token.
        no_repeat_ngram: no run of this many tokens is written twice; 0 allows all.
    """

    end_token: int
    max_new_tokens: int
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0

    def log_probabilities(self, logits: Tensor, text: Tensor) -> Tensor:
        """(N, V) float64 of the token after each text (N, t); -inf where a token is not allowed.

        Token 0 is never allowed, except where nothing else is: there it is certain, and stands for
        a text without an end token.
        """
        scores = logits.double().log_softmax(-1)
        scores[:, 0] = -torch.inf
        if self.end_token and text.shape[1] < self.min_new_tokens:
            scores[:, self.end_token] = -torch.inf
        if 0 < self.no_repeat_ngram <= text.shape[1]:
            runs = text.unfold(1, self.no_repeat_ngram, 1)
            newest = text[:, text.shape[1] - self.no_repeat_ngram + 1 :]
            repeats = (runs[..., :-1] == newest[:, None]).all(-1)
            scores.scatter_(1, runs[..., -1].masked_fill(~repeats, 0), -torch.inf)
        scores[:, 0].masked_fill_(scores.isneginf().all(1), 0.0)
        return scores

    def ends(self, tokens: Tensor, length: int) -> Tensor:
        """Whether a text is over with these tokens, which make it this long."""
        return (tokens == 0) | (tokens == self.end_token) | (length == self.max_new_tokens)


class Written(NamedTuple):
    """The best text of each sample.

    Attributes:
        text: (B, T) int64 with the end token, if it was written, and 0 after it.
        score: (B,) float64, sum of log p / length^penalty; the end token counts.
    """

    text: Tensor
    score: Tensor


@dataclass(frozen=True)
class Sliding:
    """A decoder that never has more tokens before it than it was trained with: it reads the newer
    half of them again.

    Attributes:
        model: a decoder without another sequence.
        longest: tokens that it may have before it.
    """

    model: Decoder
    longest: int

    def start(self, batch: Batch) -> tuple[Tensor, Cache, Cache]:
        """As `Decoder.start`."""
        logits, state, memory = self.model.start(batch)
        return logits, (state, batch["inputs"], batch["keep"].sum(1)), memory

    def step(self, tokens: Tensor, state: Cache, memory: Cache) -> tuple[Tensor, Cache]:
        """As `Decoder.step`."""
        inner, text, lengths = state
        text = F.pad(text, (0, 1)).scatter(1, lengths[:, None], tokens[:, None])
        lengths = lengths + 1
        if int(lengths.max()) <= self.longest:
            logits, inner = self.model.step(tokens, inner, memory)
            return logits, (inner, text, lengths)
        kept = lengths.clamp_max((self.longest + 1) // 2)
        place = torch.arange(int(kept.max()), device=text.device).expand(len(text), -1)
        first = (lengths - kept)[:, None]
        newer = text.gather(1, first + place.minimum(kept[:, None] - 1))
        logits, state, _ = self.start({"inputs": newer, "keep": place < kept[:, None]})
        return logits, state


@torch.no_grad()
def beam_search(
    model: Decoder | Sliding,
    batch: Batch,
    rules: Rules,
    *,
    width: int = 1,
    length_penalty: float = 1.0,
    draw: Draw | None = None,
) -> Written:
    """Search for the text of the highest score.

    Each step makes every continuation of the beams by one token, and keeps the `width` likeliest.
    Those that end are put aside; their beams stay empty. A sample is done when no beam is left, or
    none can beat its best ended text. A sum s of log p never rises, so what comes of it scores at
    most s / max_new_tokens^penalty, or s over the next length ^penalty where the penalty is
    negative. Of equal scores the earlier text stays, and of equal continuations that of the better
    beam with the smaller token.

    Args:
        model: in evaluation mode.
        batch: what it reads; labels are not looked at.
        rules: what may be written.
        width: W.
        length_penalty: exponent of the length; above 0 it favours long texts.
        draw: for a width of 1: what chooses the token in place of its probability.
    """
    given = tree_map_only(
        Tensor, lambda tensor: tensor.repeat_interleave(width, 0), model.start(batch)
    )
    logits, state, memory = given
    samples = len(logits) // width
    first_row = torch.arange(samples, device=logits.device)[:, None] * width
    text = logits.new_zeros(samples * width, 0, dtype=torch.long)
    live = (
        torch.where(torch.arange(width, device=logits.device) == 0, 0.0, -torch.inf)
        .double()
        .repeat(samples, 1)
    )
    best = Written(
        text.new_zeros(samples, rules.max_new_tokens), live.new_full((samples,), -torch.inf)
    )
    while True:
        scores = rules.log_probabilities(logits, text)
        if draw:
            scores = draw(scores)
        live, chosen = _largest(
            (live[..., None] + scores.view(samples, width, -1)).flatten(1), width
        )
        rows = (first_row + chosen // scores.shape[1]).flatten()
        tokens = (chosen % scores.shape[1]).flatten()
        text = torch.cat([text.index_select(0, rows), tokens[:, None]], 1)
        best, live = _put_aside(best, live, text, rules, length_penalty)
        if bool(live.isneginf().all()):
            return best
        state = tree_map_only(Tensor, lambda tensor, rows=rows: tensor.index_select(0, rows), state)
        logits, state = model.step(tokens, state, memory)


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of each row with their places, the first of equals first, which `topk` does
    not promise.
    """
    scores = scores.clone()
    pairs = []
    for _ in range(count):
        place = scores.argmax(1, keepdim=True)
        pairs.append((scores.gather(1, place), place))
        scores.scatter_(1, place, -torch.inf)
    values, places = zip(*pairs, strict=True)
    return torch.cat(values, 1), torch.cat(places, 1)


def _put_aside(
    best: Written, live: Tensor, text: Tensor, rules: Rules, penalty: float
) -> tuple[Written, Tensor]:
    """Texts that ended, against the best one; then the beams that are left, none where none can
    beat it.
    """
    length = text.shape[1]
    tokens = text[:, -1].view_as(live)
    counted = (length - (tokens == 0).long()).clamp_min(1).double()
    over = rules.ends(tokens, length)
    score, beam = (live / counted**penalty).masked_fill(~over, -torch.inf).max(1)
    better = score > best.score
    rows = text[torch.arange(len(live), device=live.device) * live.shape[1] + beam]
    padded = F.pad(rows, (0, best.text.shape[1] - length))
    best = Written(
        torch.where(better[:, None], padded, best.text), torch.where(better, score, best.score)
    )
    live = live.masked_fill(over, -torch.inf)
    reach = (rules.max_new_tokens if penalty >= 0 else length + 1) ** penalty
    return best, live.masked_fill(live / reach <= best.score[:, None], -torch.inf)


def drawing(temperature: float, top_k: int, seed: int) -> Draw:
    """Draws from the softmax of log-probabilities / temperature, among the `top_k` largest; 0:
    among all.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(scores: Tensor) -> Tensor:
        if 0 < top_k < scores.shape[1]:
            scores = scores.masked_fill(scores < scores.topk(top_k).values[:, -1:], -torch.inf)
        noise = torch.empty(scores.shape, dtype=scores.dtype).exponential_(generator=generator)
        # the largest is a draw (Gumbel)
        return scores / temperature - noise.log().to(scores.device)

    return draw
