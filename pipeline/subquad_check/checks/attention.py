"""Attention: a sequence may see another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad_check.calls import (
    Mask,
    Tensors,
    afresh,
    beginning,
    call,
    changed,
    has_drawn,
    modes,
    outputs,
    padded,
    passes,
    trainable,
)
from subquad_check.cases import compares, leak_of
from subquad_check.checks.decoding import (
    LONGEST,
    MANY,
    ORDER,
    SAID,
    STARTS,
    STEPS,
    check_untouched,
    copies_of,
    next_of,
    reordered,
)
from subquad_check.checks.gradients import accuracy_of, compare_gradients
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
    for most_queries, most_keys in SIZES:
        queries = subject.at_most(most_queries)
        keys = subject.at_most(most_keys)
        x = subject.tokens(3, queries, seed=1)
        context = subject.tokens(3, keys, seed=2)
        mixer = long if max(most_queries, most_keys) > MAX_LEN else short
        keep = _mask(x)
        across = _Across(mixer, context, _mask(context))
        label = f"{queries} queries with {keys} keys"
        passes(label, across, x, keep)
        if subject.facts.padding_invariant:
            for _ in modes(mixer):
                yield from _cross_padding(subject, mixer, x, context, turned=False)
                yield from _cross_padding(subject, mixer, x, context, turned=True)
        _check_gradients(subject, across, x, label)
    return f"{QUERIES} queries with {KEYS} and 150 keys, and the reverse"


class _Across(TokenMixer):
    """A mixer that sees another sequence, (B, Lk, D), which counts as a weight."""

    def __init__(self, mixer: TokenMixer, context: Tensor, context_keep: Mask):
        super().__init__()
        self.mixer = mixer
        self.keys = nn.Parameter(context)
        self.keys_keep = context_keep
        self.train(mixer.training)

    def forward(self, x: Tensor, *, keep: Mask = None, carry: Any = None) -> Any:
        return self.mixer(x, keep=keep, context=self.keys, context_keep=self.keys_keep)


def _check_gradients(subject: CheckSubject, across: _Across, x: Tensor, label: str) -> None:
    """Those of finite differences, by both sequences and all weights."""
    queries = x.clone().requires_grad_()
    keep = _mask(x)

    def values() -> Tensors:
        return {"outputs": call(afresh(across), queries, keep).out[keep]}

    inputs = {"the queries": queries, "the keys": across.keys, **trainable(across.mixer)}
    accuracy = accuracy_of(subject)
    for mode in modes(across):
        values()
        if not has_drawn():
            compare_gradients(values, inputs, accuracy, f"{label} in {mode}")


@torch.no_grad()
def _cross_padding(
    subject: CheckSubject, mixer: TokenMixer, x: Tensor, context: Tensor, turned: bool
) -> Iterator[Comparison]:
    """Padding behind, or in front where turned."""
    queries = x.shape[1]
    keys = context.shape[1]
    keep = _mask(x, turned)
    # of sequences of one length, each has its own mask
    context_keep = _mask(context, turned != (queries == keys))

    def at_real(x: Tensor, context: Tensor) -> Tensor:
        return outputs(_Across(mixer, context, context_keep), x, keep)[keep]

    lengths = f"{queries} queries with {keys} keys{' (left)' if turned else ''}"
    expected = at_real(x, context)
    label = f"{lengths}: output at real queries, other content in padded"
    yield f"{label} keys", at_real(x, changed(context, ~context_keep)), expected
    yield f"{label} queries", at_real(changed(x, ~keep), context), expected
    others = torch.tensor([[False], [True], [True]])
    got = at_real(changed(x, others), changed(context, others))
    first, second, _ = keep.sum(1).tolist()
    yield f"{lengths}: output of sample 0, others changed", got[:first], expected[:first]
    if mixer.training:  # random numbers would be other ones
        return
    own = keep[1:2]
    out = outputs(_Across(mixer, context[1:2, context_keep[1]], None), x[1:2], own)
    left_away = f"{lengths}: padded keys left away", out[own], expected[first:][:second]
    yield from within(subject.at_least(ROUNDING), [left_away])


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
        context_keep = _mask(context)
        across = _Across(mixer, context, context_keep)
        memory = mixer.memory(context, keep=context_keep)
        built = copies_of(memory)
        out, cache = mixer.prefill(start, keep=keep, memory=memory)
        yield "prefill against forward", out[keep], outputs(across, start, keep)[keep]
        expected = outputs(across, x)
        for i in range(STEPS):
            token = next_of(x, i)
            wanted = next_of(expected, i)
            step = f"step {i + 1}"
            got, _ = mixer.step(token[ORDER], reordered(cache), memory=reordered(memory))
            yield f"{step} after reordering memory and cache", got, wanted[ORDER]
            out, cache = mixer.step(token, cache, memory=memory)
            yield f"{step} against forward", out, wanted
        check_untouched("decoding changed the memory", memory, built)
    return f"{KEYS} and {MANY} keys in memory, {SAID.format(STEPS)}"


def _mask(x: Tensor, turned: bool = False) -> Tensor:
    """Of three samples, two of which have padding: behind, or in front where turned."""
    length = x.shape[1]
    mask = padded(length, (length, max(1, length - 2), max(1, length // 2)))
    return mask.flip(1) if turned else mask
