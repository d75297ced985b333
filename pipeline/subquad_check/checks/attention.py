"""Attention: a sequence may see another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from subquad.nn import TokenMixer, as_output
from subquad_check.calls import (
    Form,
    Mask,
    beginning,
    changed,
    outputs,
    padded,
    passes,
    same,
)
from subquad_check.cases import compares, leak_of
from subquad_check.checks.decoding import (
    LONGEST,
    MANY,
    ORDER,
    SAID,
    STARTS,
    STEPS,
    next_of,
    reordered,
    untouched,
)
from subquad_check.checks.gradients import check_gradients
from subquad_check.checks.padding import other_padding
from subquad_check.meter import ROUNDING, Comparison, Comparisons, within
from subquad_check.subject import MAX_LEN, CheckSubject

QUERIES = 7
KEYS = 11
SIZES = (
    (QUERIES, KEYS),
    (KEYS, QUERIES),
    (KEYS, KEYS),
    (1, KEYS),
    (QUERIES, 1),
    (QUERIES, 150),
    (150, QUERIES),
)
"""Queries and keys; more of either than a short sequence has, in a later layer."""


def _no_cross(subject: CheckSubject) -> str:
    if not subject.facts.cross:
        return "cross not claimed"
    if subject.causal:
        return "built causal: no order between two sequences"
    return ""


def _no_cross_cache(subject: CheckSubject) -> str:
    reason = _no_cross(subject)
    if reason:
        return reason
    return "" if subject.build(role="cross").caches else "offers no decode cache across"


@compares("queries and keys of two lengths, padding of neither counts", leak_of, excluded=_no_cross)
def _cross(subject: CheckSubject) -> Comparisons:
    """More keys than queries and fewer: shapes, padded keys and padded queries without
    influence, samples apart.
    """
    short = subject.build(role="cross")
    long = subject.build(role="cross", max_len=150, layer_index=2, num_layers=3)
    for sizes in SIZES:
        queries, keys = map(subject.at_most, sizes)
        across = _Across(long if max(sizes) > MAX_LEN else short, queries)
        x = subject.tokens(3, queries + keys)
        label = f"{queries} queries with {keys} keys"
        masks = {side: _masks(queries, keys, side == "left") for side in ("right", "left")}
        passes(label, across, x, masks["right"])
        if subject.facts.padding_invariant:
            for side, keep in masks.items():
                yield from _apart(subject, across, x, keep, f", {label}, padding {side}")
        check_gradients(subject, across, x, masks["right"], label)
    return f"{QUERIES} queries with {KEYS} and 150 keys, and the reverse"


class _Across(TokenMixer):
    """A mixer between two sequences that are one, (B, L + Lk, D): keys stand behind the queries,
    where it returns zeros.
    """

    def __init__(self, mixer: TokenMixer, queries: int):
        super().__init__()
        self.mixer = mixer
        self.queries = queries
        self.train(mixer.training)

    def forward(self, x: Tensor, *, keep: Mask = None, carry: Any = None) -> Tensor:
        start, context = _split(x, self.queries)
        masks = (None, None) if keep is None else _split(keep, self.queries)
        result = self.mixer(start, keep=masks[0], context=context, context_keep=masks[1])
        return torch.cat([as_output(result).out, torch.zeros_like(context)], 1)


def _split(x: Tensor, queries: int) -> list[Tensor]:
    return [part.contiguous() for part in x.tensor_split([queries], 1)]


def _apart(
    subject: CheckSubject, across: _Across, x: Tensor, keep: Tensor, about: str
) -> Iterator[Comparison]:
    """Padding and samples without influence on others."""
    others = torch.tensor([[False], [True], [True]])
    own = keep & ~others
    forms = {
        **other_padding(x, keep),
        "of sample 0, others changed": Form(changed(x, others), keep, own, own),
    }
    yield from same(across, x, keep, forms, about=about)
    left = keep[1].clone()
    left[: across.queries] = True
    mask = keep[1:2, left]
    shorter = {"with padded keys left away": Form(x[1:2, left], mask, mask, keep[1:2])}
    ones = {"with masks of real tokens against none": Form(x, torch.ones_like(keep))}
    rounded = [
        same(across, x[1:2], keep[1:2], shorter, about=about, dropout=False),
        same(across, x, None, ones, about=about),
    ]
    yield from within(subject.at_least(ROUNDING), chain(*rounded))


@compares(
    "with another sequence in memory, prefill and steps return what forward does",
    excluded=_no_cross_cache,
)
@torch.no_grad()
def _cross_cache(subject: CheckSubject) -> Comparisons:
    """Memory is built once and left alone; samples of different lengths; beams reorder memory
    and cache alike.
    """
    keep = padded(LONGEST, STARTS)
    x = subject.tokens(3, LONGEST + STEPS)
    start = beginning(x, LONGEST)
    for number in subject.lengths(KEYS, MANY):
        # its prefill and step take a memory
        mixer: Any = subject.build(role="cross", max_len=max(number, MAX_LEN))
        context = subject.tokens(3, number, seed=2)
        _, context_keep = _split(_masks(LONGEST, number), LONGEST)
        memory = mixer.memory(context, keep=context_keep)
        with untouched("decoding changed the memory", memory):
            out, cache = mixer.prefill(start, keep=keep, memory=memory)
            first, expected = (
                outputs(
                    _Across(mixer, tokens.shape[1]),
                    torch.cat([tokens, context], 1),
                    torch.cat([mask, context_keep], 1),
                )
                for tokens, mask in (
                    (start, keep),
                    (x, padded(LONGEST + STEPS, [LONGEST + STEPS] * 3)),
                )
            )
            yield "prefill against forward", out[keep], first[:, :LONGEST][keep]
            for i in range(STEPS):
                token = next_of(x, i)
                wanted = next_of(expected, i)
                step = f"step {i + 1}"
                got, _ = mixer.step(token[ORDER], reordered(cache), memory=reordered(memory))
                yield f"{step} after reordering memory and cache", got, wanted[ORDER]
                out, cache = mixer.step(token, cache, memory=memory)
                yield f"{step} against forward", out, wanted
    return f"{KEYS} and {MANY} keys in memory, {SAID.format(STEPS)}"


def _masks(queries: int, keys: int, turned: bool = False) -> Tensor:
    """Of three samples, two of which have padding in both sequences: behind, or in front where
    turned. Of sequences of one length, each has its own.
    """
    masks = []
    for length, is_turned in ((queries, turned), (keys, turned != (queries == keys))):
        mask = padded(length, (length, max(1, length - 2), max(1, length // 2)))
        masks.append(mask.flip(1) if is_turned else mask)
    return torch.cat(masks, 1)
