"""What a mixer keeps: weights and buffers only, saved and restored whole; nothing hidden between
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from inspect import unwrap
from itertools import permutations
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from subquad.nn import TokenMixer
from subquad_check.calls import (
    MODES,
    Mask,
    Tensors,
    beginning,
    call,
    cast,
    modes,
    outputs,
    tensors_of,
)
from subquad_check.cases import compares, shows
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    Meter,
    each,
    word,
)
from subquad_check.subject import MAX_LEN, CheckSubject

LENGTH = 13
BETWEEN = (LENGTH, MAX_LEN, *[5] * 12)
"""Lengths of other batches between two calls that must give the same."""
DOUBLE = torch.float64
SINGLE = torch.float32
MOVED = {SINGLE: 1e-4, DOUBLE: ROUNDING}
"""How near results in a number format must be, after calls in the other one."""
MANY_CALLS = 1100
"""Where something counts them: some methods draw features anew after each thousand."""
LONGEST = 80
"""Of the lengths with which a table might grow: more than a table of the last few keeps."""
_FRAMEWORKS = ("torch", "subquad")
_REGISTERED = ("_parameters", "_buffers", "_modules")


@compares("a checkpoint restores a mixer bit for bit, whatever its seed", 0.0)
def _state_round_trip(subject: CheckSubject) -> Comparisons:
    """Through safetensors, strictly, into a mixer built with another seed, which has been called:
    equal outputs, bit for bit.
    """
    mixer, x, _ = subject.case(LENGTH, SINGLE)
    other = subject.build(dtype=SINGLE, seed=1)
    for _ in modes(other):
        outputs(other, x)
    outputs(other, x)  # in evaluation again, where some keep what follows from their weights
    count = _transfer(mixer, other)
    found, expected = (
        {f"output in {mode}": outputs(built, x) for mode in modes(built)}
        for built in (other, mixer)
    )
    yield from each(found, expected, " of a mixer that loaded the state")
    return f"{count} tensors"


@shows("all tensors it keeps are parameters or buffers, and there when it is built")
def _state_registered(subject: CheckSubject) -> Finding:
    """No tensor is kept as a plain attribute, which `.to(device)` and checkpoints would miss, but
    tables that calls make of nothing but shapes; and no call makes a parameter or a buffer.
    """
    mixer = subject.build()
    built = mixer.state_dict()
    unmoved = _plain_tensors(mixer)
    _use(mixer, subject)
    _check_growth(mixer, partial(_use, mixer, subject), "with each call")
    _check_tables(subject)
    made = set(mixer.state_dict()) - set(built)
    if made:
        raise CheckFailed(
            f"the first call makes {', '.join(sorted(made))}: optimisers, DDP and checkpoints "
            "need it when built"
        )
    other = subject.build(seed=1)
    _use(other, subject, seed=5)
    same = _plain_tensors(other)
    kept = _plain_tensors(mixer)
    for name, tensors in kept.items():
        if name in unmoved or not _are_equal(tensors, same.get(name, [])):
            raise CheckFailed(f"{name} holds a tensor that is neither a parameter nor a buffer")
    if kept:
        _check_moves(subject, ", ".join(kept))
    return Finding(
        f"{len(list(mixer.parameters()))} parameters, {len(list(mixer.buffers()))} buffers"
    )


def _use(
    mixer: TokenMixer, subject: CheckSubject, *, seed: int = 1, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """What it returns in both modes and in decoding."""
    _, keep = subject.pair(LENGTH)
    x = subject.tokens(*keep.shape, seed=seed, dtype=dtype)
    found = list(_in_each_mode(mixer, x, keep).values())
    if mixer.caches:
        out, cache = mixer.prefill(beginning(x, 1))
        after, _ = mixer.step(x[:, 0], cache)
        found += [out.detach(), after.detach()]
    return found


def _attributes(mixer: TokenMixer) -> Iterator[tuple[str, Any]]:
    """What its modules hold as plain attributes, by place."""
    for place, module in mixer.named_modules():
        for name, value in vars(module).items():
            if name not in _REGISTERED:
                yield f"{place}.{name}".lstrip("."), value


def _plain_tensors(mixer: TokenMixer) -> dict[str, list[Tensor]]:
    """Tensors that are neither parameters nor buffers, by the attribute that holds them."""
    registered = set(map(id, [*mixer.parameters(), *mixer.buffers()]))
    found = defaultdict(list)
    for name, value in _attributes(mixer):
        for tensor in tensors_of(value):
            if id(tensor) not in registered:
                found[name].append(tensor)
    return found


def _are_equal(tensors: list[Tensor], others: list[Tensor]) -> bool:
    """Whether they hold the same numbers, and none belongs to a graph."""
    return len(tensors) == len(others) and all(
        not tensor.requires_grad
        and tensor.layout == other.layout
        and torch.equal(tensor.to_dense(), other.to_dense())
        for tensor, other in zip(tensors, others, strict=True)
    )


def _check_moves(subject: CheckSubject, kept: str) -> None:
    """Into another number format, with what a mixer keeps from its calls.

    Raises:
        CheckFailed: it does not compute there what a new mixer does.
    """
    for before, after in permutations(subject.dtypes):
        mixer = subject.build(dtype=before)
        other = subject.build(dtype=after)
        _use(mixer, subject, dtype=before)
        other.load_state_dict(mixer.state_dict())
        expected = _use(other, subject, dtype=after)
        cast(mixer, after)
        meter = Meter(MOVED[after])
        for got, wanted in zip(_use(mixer, subject, dtype=after), expected, strict=True):
            meter.compare(f"{kept}: output after a call in {word(before)}", got, wanted)
        meter.finding()


def _check_tables(subject: CheckSubject) -> None:
    """By calls of a length that is known, or of a shorter one, for which one table is enough; a
    table for each length may be a dict.
    """
    most = subject.at_most(LONGEST)
    mixer = subject.build_for(most)
    x = subject.tokens(1, most)

    @torch.no_grad()
    def use(lengths: Iterable[int]) -> None:
        for length in lengths:
            call(mixer, beginning(x, length))

    lengths = range(most, 1, -1)
    half = len(lengths) // 2
    use(lengths[:half])
    _check_growth(mixer, partial(use, lengths[half:]), "with each new length", keyed=False)
    _check_growth(mixer, partial(use, lengths), "with each other length")


def _check_growth(
    mixer: TokenMixer, use: Callable[[], object], when: str, *, keyed: bool = True
) -> None:
    """By calls that need nothing new.

    Raises:
        CheckFailed: something that it keeps becomes larger.
    """
    before = _sizes(mixer, keyed)
    use()
    for name, size in _sizes(mixer, keyed).items():
        known = before.get(name, size)
        if size > known:
            raise CheckFailed(f"{name} grows {when}: {known}, then {size}")


def _sizes(mixer: TokenMixer, keyed: bool) -> dict[str, int]:
    """Numbers in each buffer and tensor, and elements of each list and the like: the mixer's, its
    classes' and those of the files in which these stand.

    Args:
        keyed: also of dicts and functions with a cache, which may hold a table for each length.
    """
    sizes = {name: buffer.numel() for name, buffer in mixer.named_buffers()}
    held = dict(_attributes(mixer))
    for module in mixer.modules():
        kind = type(module)
        if kind.__module__.partition(".")[0] not in _FRAMEWORKS:
            held |= vars(kind) | getattr(unwrap(kind.forward), "__globals__", {})
    for name, value in held.items():
        if isinstance(value, Tensor):
            sizes[name] = value.numel()
        elif hasattr(value, "cache_info"):
            sizes[name] = keyed and value.cache_info().currsize
        elif isinstance(value, Collection):
            sizes[name] = (keyed or not isinstance(value, Mapping)) and len(value)
    return sizes


@compares(
    "a call leaves nothing behind",
    0.0,
    excluded=lambda subject: "declared stateful" if subject.facts.stateful else "",
)
def _state_hidden(subject: CheckSubject) -> Comparisons:
    """Other batches in between, in both modes, change neither the state dict nor a later result."""
    for mode in MODES:
        yield from _after_others(
            subject.build(), subject, mode, MODES, "in a forward pass, but stateful is not claimed"
        )


def _after_others(
    mixer: TokenMixer, subject: CheckSubject, mode: str, compared: Iterable[str], reason: str
) -> Iterator[Comparison]:
    """Other batches of several lengths, called in a mode, and many where the mixer counts its
    calls, change no buffer and no later result.

    Args:
        compared: modes in which results are compared.
        reason: what is wrong with a changed buffer.
    """
    x, keep = subject.pair(LENGTH)
    before = _state(mixer)
    first = _in_each_mode(mixer, x, keep, compared)
    mixer.train(MODES[mode])
    counted = _numbers(mixer)
    for seed, longest in enumerate(BETWEEN, 7):
        call(mixer, 2 * subject.tokens(3, subject.at_most(longest), seed=seed) + 1)
    if _numbers(mixer) != counted:
        few = subject.tokens(1, subject.at_most(2))
        with torch.no_grad():
            for _ in range(MANY_CALLS):
                call(mixer, few)
    for name in _changed(mixer, before):
        raise CheckFailed(f"{name} changed {reason}")
    later = _in_each_mode(mixer, x, keep, compared)
    yield from each(later, first, f" after other batches in {mode}")


def _in_each_mode(
    mixer: TokenMixer, x: Tensor, keep: Mask, compared: Iterable[str] = MODES
) -> Tensors:
    """Outputs by name; it ends in evaluation."""
    found = {}
    for mode in compared:
        mixer.train(MODES[mode])
        found[f"output in {mode}"] = call(mixer, x, keep).out.detach()
    mixer.eval()
    return found


def _numbers(mixer: TokenMixer) -> dict[str, int | float]:
    """Plain numbers that its modules keep."""
    return {name: value for name, value in _attributes(mixer) if isinstance(value, int | float)}


@compares(
    "declared state is in buffers, saved and restored",
    0.0,
    excluded=lambda subject: "" if subject.facts.stateful else "not declared stateful",
)
def _state_declared(subject: CheckSubject) -> Comparisons:
    """What calls in training leave behind is in buffers: a mixer that loads them goes on alike
    in both modes. Calls in evaluation leave nothing, before training and after it.
    """
    mixer = subject.build()
    other = subject.build(seed=1)
    length = subject.at_most(LENGTH)
    mode = "evaluation"
    reason = "in a call in evaluation, before training"
    yield from _after_others(mixer, subject, mode, [mode], reason)
    mixer.train()
    before = _state(mixer)
    for seed in range(3):
        call(mixer, 2 * subject.tokens(2, length, seed=seed) + 1)
    changed = _changed(mixer, before)
    if not changed:
        raise CheckFailed("stateful is claimed, but three calls in training changed no buffer")
    _transfer(mixer, other)
    x = subject.tokens(2, length)
    expected = _in_each_mode(mixer, x, None)
    yield from each(_in_each_mode(other, x, None), expected, " after loading the state")
    reason = "in a call in evaluation, after training"
    yield from _after_others(mixer, subject, mode, [mode], reason)
    return f"state in {', '.join(changed)}"


def _state(mixer: TokenMixer) -> Tensors:
    return {name: value.clone() for name, value in mixer.state_dict().items()}


def _changed(mixer: TokenMixer, before: Tensors) -> list[str]:
    """Names in the state that are new, or whose tensor is another one."""
    return [
        name
        for name, value in mixer.state_dict().items()
        if name not in before or not torch.equal(value, before[name])
    ]


def _transfer(mixer: TokenMixer, other: TokenMixer) -> int:
    """Load `mixer`'s state into `other` as a checkpoint does: tied tensors once. Returns how
    many tensors there are.
    """
    first: dict[int, str] = {}
    sources = {}
    once = {}
    for name, value in mixer.state_dict(keep_vars=True).items():
        sources[name] = first.setdefault(id(value), name)
        once[sources[name]] = value.detach().clone(memory_format=torch.contiguous_format)
    saved = load(save(once))
    missing, unexpected = other.load_state_dict(
        {name: saved[source] for name, source in sources.items()}, strict=False
    )
    if missing or unexpected:
        raise CheckFailed(
            "the state dict depends on the seed or on past calls: "
            f"missing {missing}, unexpected {unexpected}"
        )
    return len(saved)
