"""Decoding and cross-attention: prefill and steps equal the forward pass; a sequence may see
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from subquad.nn import AttentionCore, AttentionMixer, Cache, TokenMixer
from subquad.plugin import AttentionConfig
from subquad.registry import build_class
from subquad.testing.calls import (
    afresh,
    beginning,
    call,
    changed,
    decoded,
    has_drawn,
    modes,
    outputs,
    padded,
    tensors_of,
    trainable,
)
from subquad.testing.cases import compares, leak_of, shows
from subquad.testing.checks.gradients import accuracy_of, compare_gradients
from subquad.testing.checks.shapes import passes
from subquad.testing.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    Meter,
    finite,
)
from subquad.testing.subject import FAR, MAX_LEN, CheckSubject

STARTS = (9, 4, 1)
"""Real tokens of each sample before decoding."""
LONGEST = max(STARTS)
STEPS = 6
MANY = 290
"""Tokens decoded, and many of them."""
SAID = f"samples of {', '.join(map(str, STARTS))} tokens, {{}} steps"
ORDER = torch.tensor([2, 0, 0, 1])
"""Samples as a beam search may reorder them."""
QUERIES, KEYS = 7, 11
SIZES = (
    *((QUERIES, KEYS), (KEYS, QUERIES), (KEYS, KEYS)),
    *((1, KEYS), (QUERIES, 1), (QUERIES, 150), (150, QUERIES)),
)
"""Queries and keys; more of either than a short sequence has, in a later layer."""


def _no_cache(subject: CheckSubject) -> str:
    if subject.build().caches:
        return ""
    return "offers no decode cache" if subject.causal else "not causal, offers no decode cache"


@compares("prefill returns what forward does", excluded=_no_cache)
@torch.no_grad()
def _cache_prefill(subject: CheckSubject) -> Comparisons:
    if not subject.causal:
        raise CheckFailed("caches is True in a mixer that sees later positions")
    for length in dict.fromkeys((LONGEST, subject.at_most(FAR))):
        mixer = subject.build(max_len=length)
        x = subject.tokens(3, length)
        more = length - LONGEST
        keep = padded(length, [start + more for start in _starts_of(subject)])
        out, _ = mixer.prefill(x, keep=keep)
        expected = outputs(mixer, x, keep)
        yield f"prefill of {length} against forward, padded", out[keep], expected[keep]
        out, _ = mixer.prefill(x)
        yield f"prefill of {length} against forward, no mask", out, outputs(mixer, x)


@compares("steps equal the full forward pass, each sample from its own length", excluded=_no_cache)
@torch.no_grad()
def _cache_step(subject: CheckSubject) -> Comparisons:
    """Many steps from short samples, twice, so that the second sequence would show what is left
    of the first; and a few from long ones, which fill blocks of 512 and 1,024 tokens.
    """
    most = subject.at_most(FAR)
    many = max(1, min(MANY, most - LONGEST))
    far = max(0, most - LONGEST - STEPS)
    mixer = subject.build(max_len=most)
    starts = _starts_of(subject)
    cases = [(0, many), (0, many), (far, min(STEPS, many))]
    for end in (512, 1024):
        if end + LONGEST < most:
            cases.append((end - LONGEST - 3, LONGEST + 6))
    for seed, (more, steps) in enumerate(cases, 1):
        x = subject.tokens(3, LONGEST + more + steps, seed=seed)
        expected = outputs(mixer, x)
        cache = _started(mixer, x, more, starts)
        for i in range(more, more + steps):
            token = _next(x, i, starts)
            wanted = _next(expected, i, starts)
            out, cache = mixer.step(token, cache)
            yield f"step {i + 1} against forward", out, wanted
    x = subject.tokens(3, 2)
    got = decoded(mixer, x, 1)[:, 1]
    expected = outputs(mixer, x)[:, 1]
    yield "first step after prefill of one token without a mask", got, expected
    return SAID.format(many)


@compares("a step leaves the cache it was given alone", 0.0, excluded=_no_cache)
@torch.no_grad()
def _cache_functional(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x = subject.tokens(3, LONGEST + 2)
    _, alone = mixer.prefill(beginning(x[:1], LONGEST))
    for samples, cache in ((3, _started(mixer, x)), (1, alone)):
        for i in range(2):
            token = _next(x, i)[:samples]
            before = _copies(cache)
            first, after = mixer.step(token, cache)
            _check_untouched("step changed the cache", cache, before)
            second, _ = mixer.step(token, cache)
            yield f"a second step of {samples} from the same cache", second, first
            cache = after


def _copies(cache: Cache) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors_of(cache)]


def _check_untouched(what: str, cache: Cache, before: list[Tensor]) -> None:
    for now, then in zip(tensors_of(cache), before, strict=True):
        if not torch.equal(now, then):
            raise CheckFailed(f"{what} it was given in place, a tensor {tuple(now.shape)}")


@compares("reordering a cache's samples reorders the outputs", excluded=_no_cache)
@torch.no_grad()
def _cache_beams(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x = subject.tokens(3, LONGEST + 2)
    cache = _started(mixer, x)
    for i, end in enumerate((" of prefill", "")):
        token = _next(x, i)
        # before the next step, which may spoil the cache: another check's matter
        moved = _reordered(cache)
        got, _ = mixer.step(token[ORDER], moved)
        expected, cache = mixer.step(token, cache)
        yield f"step after reordering the cache{end}", got, expected[ORDER]
    x = x[:1]
    _, alone = mixer.prefill(beginning(x, LONGEST))
    only = torch.zeros(1, dtype=torch.long)
    for i in range(LONGEST, LONGEST + 2):
        _, alone = mixer.step(x[:, i], _reordered(alone, 1, only))
    return f"{len(tree_leaves(cache))} tensors"


def _reordered(cache: Cache, batch: int = len(STARTS), order: Tensor = ORDER) -> Cache:
    """A cache of so many samples, with these in another order.

    Raises:
        CheckFailed: it holds something that no sample owns.
    """

    def moved(leaf: Any) -> Tensor | None:
        if leaf is None:
            return None
        if not isinstance(leaf, Tensor):
            name = type(leaf).__name__
            raise CheckFailed(f"the cache holds a {name} ({leaf}), which no sample owns")
        if not leaf.dim() or leaf.shape[0] != batch:
            held = f"a tensor {tuple(leaf.shape)} without the batch of {batch} in front"
            raise CheckFailed(f"the cache holds {held}")
        return leaf.index_select(0, order)

    return tree_map(moved, cache)


def _starts_of(subject: CheckSubject) -> tuple[int, ...]:
    """Real tokens of each sample before decoding; equally many where padding counts like them."""
    return STARTS if subject.facts.padding_invariant else (LONGEST,) * len(STARTS)


def _started(
    mixer: TokenMixer, x: Tensor, more: int = 0, starts: tuple[int, ...] = STARTS
) -> Cache:
    """A cache of each sample's start, and of `more` tokens."""
    length = LONGEST + more
    keep = padded(length, [start + more for start in starts])
    return mixer.prefill(beginning(x, length), keep=keep)[1]


def _next(x: Tensor, i: int, starts: tuple[int, ...] = STARTS) -> Tensor:
    """What belongs to the i-th token of each sample after its start: (B, L, D) to (B, D)."""
    return x[range(len(starts)), [start + i for start in starts]]


def _no_cross(subject: CheckSubject) -> str:
    if not subject.facts.cross:
        return "cross not claimed"
    return "built causal: no order between two sequences" if subject.causal else ""


def _no_cross_cache(subject: CheckSubject) -> str:
    if reason := _no_cross(subject):
        return reason
    return "" if subject.build(role="cross").caches else "offers no decode cache across"


@compares("queries and keys of two lengths, padding of neither counts", leak_of, excluded=_no_cross)
def _cross(subject: CheckSubject) -> Comparisons:
    """More keys than queries and fewer: shapes, padded keys and padded queries without
    influence, samples apart.
    """
    short = subject.build(role="cross")
    long = subject.build(role="cross", max_len=150, layer_index=2, num_layers=3)
    for queries, keys in SIZES:
        x = subject.tokens(3, subject.at_most(queries), seed=1)
        context = subject.tokens(3, subject.at_most(keys), seed=2)
        mixer = short if max(queries, keys) <= MAX_LEN else long
        across = _Across(mixer, context, _mask(context))
        label = f"{x.shape[1]} queries with {context.shape[1]} keys"
        passes(label, across, x, _mask(x))
        if subject.facts.padding_invariant:
            for _ in modes(mixer):
                yield from _cross_padding(subject, mixer, x, context, turned=False)
                yield from _cross_padding(subject, mixer, x, context, turned=True)
        _check_gradients(subject, across, x, label)
    return f"{QUERIES} queries with {KEYS} and 150 keys, and the reverse"


class _Across(TokenMixer):
    """A mixer that sees another sequence, (B, Lk, D), which counts as a weight."""

    def __init__(self, mixer: TokenMixer, context: Tensor, context_keep: Tensor | None):
        super().__init__()
        self.mixer = mixer
        self.keys = nn.Parameter(context)
        self.keys_keep = context_keep
        self.train(mixer.training)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Any:
        return self.mixer(x, keep=keep, context=self.keys, context_keep=self.keys_keep)


def _check_gradients(subject: CheckSubject, across: _Across, x: Tensor, label: str) -> None:
    """Those of finite differences, by both sequences and all weights."""
    queries = x.clone().requires_grad_()
    keep = _mask(x)

    def values() -> dict[str, Tensor]:
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
        across = _Across(mixer, context, context_keep)
        return outputs(across, x, keep)[keep]

    side = " (left)" if turned else ""
    lengths = f"{queries} queries with {keys} keys{side}"
    expected = at_real(x, context)
    label = f"{lengths}: output at real queries, other content in padded"
    got = at_real(x, changed(context, ~context_keep))
    yield f"{label} keys", got, expected
    got = at_real(changed(x, ~keep), context)
    yield f"{label} queries", got, expected
    others = torch.tensor([[False], [True], [True]])
    got = at_real(changed(x, others), changed(context, others))
    first, second, _ = keep.sum(1).tolist()
    yield f"{lengths}: output of sample 0, others changed", got[:first], expected[:first]
    if mixer.training:  # random numbers would be other ones
        return
    own = keep[1:2]
    real = context[1:2, context_keep[1]]
    alone = outputs(_Across(mixer, real, None), x[1:2], own)[own]
    rounded = Meter(subject.at_least(ROUNDING))
    rounded.compare(f"{lengths}: padded keys left away", alone, expected[first : first + second])
    rounded.finding()


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
        built = _copies(memory)
        out, cache = mixer.prefill(start, keep=keep, memory=memory)
        expected = outputs(across, start, keep)
        yield "prefill against forward", out[keep], expected[keep]
        expected = outputs(across, x)
        for i in range(STEPS):
            token = _next(x, i)
            wanted = _next(expected, i)
            step = f"step {i + 1}"
            moved = _reordered(memory)
            got, _ = mixer.step(token[ORDER], _reordered(cache), memory=moved)
            yield f"{step} after reordering memory and cache", got, wanted[ORDER]
            out, cache = mixer.step(token, cache, memory=memory)
            yield f"{step} against forward", out, wanted
        _check_untouched("decoding changed the memory", memory, built)
    return f"{KEYS} and {MANY} keys in memory, {SAID.format(STEPS)}"


def _mask(x: Tensor, turned: bool = False) -> Tensor:
    """Of three samples, two of which have padding: behind, or in front where turned."""
    length = x.shape[1]
    mask = padded(length, (length, max(1, length - 2), max(1, length // 2)))
    return mask.flip(1) if turned else mask


def _is_core(subject: CheckSubject) -> bool:
    """Whether it is an attention core, whose projections subquad owns."""
    return issubclass(build_class(subject.resolved), AttentionCore)


@shows(
    "weights of a softmax model load into it",
    excluded=lambda subject: "" if _is_core(subject) else "owns its projections",
)
def _softmax_weights(subject: CheckSubject) -> Finding:
    """The projections have the names and shapes that any core has, so weights of a softmax model
    load.
    """
    config = subject.config if isinstance(subject.config, AttentionConfig) else None
    softmax = AttentionMixer(_Plain(), subject.site(), config).to(subject.dtype)
    weights = softmax.state_dict()
    mixer = subject.build()
    found = mixer.load_state_dict(weights, strict=False)
    missing = [name for name in found.missing_keys if not name.startswith("core.")]
    if missing or found.unexpected_keys:
        lacks = f"missing {missing}, unexpected {found.unexpected_keys}"
        raise CheckFailed(f"weights of a softmax model do not fit: {lacks}")
    out = outputs(mixer, subject.tokens(2, KEYS))
    finite("output with weights of a softmax model", out)
    return Finding(f"{len(weights)} tensors")


class _Plain(AttentionCore):
    """A core without weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        return torch.softmax(q @ k.mT, -1) @ v
