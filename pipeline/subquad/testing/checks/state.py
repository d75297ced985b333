"""What a mixer keeps: weights and buffers only, saved and restored whole; nothing hidden between
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from subquad.nn import TokenMixer
from subquad.testing.calls import (
    MODES,
    backward,
    beginning,
    call,
    modes,
    outputs,
    tensors_of,
    trainable,
    weighted,
)
from subquad.testing.cases import compares, shows
from subquad.testing.meter import ROUNDING, CheckFailed, Comparison, Comparisons, Finding
from subquad.testing.subject import LAYERS, MAX_LEN, CheckSubject

LENGTH = 13
BETWEEN = (LENGTH, MAX_LEN, *[5] * 12)
"""Lengths of other batches between two calls that must give the same."""
DOUBLE, SINGLE = torch.float64, torch.float32
MOVED = {SINGLE: 1e-4, DOUBLE: ROUNDING}
"""How near results in a number format must be, after calls in the other one."""
MANY_CALLS = 1100
"""Where something counts them: some methods draw features anew after each thousand."""
_REGISTERED = ("_parameters", "_buffers", "_modules")


@compares("a checkpoint restores a mixer bit for bit, whatever its seed", 0.0)
def _state_round_trip(subject: CheckSubject) -> Comparisons:
    """Through safetensors, strictly, into a mixer built with another seed, which has been called:
    equal outputs, bit for bit.
    """
    mixer = subject.build()
    other = subject.build(seed=1)
    x, _ = subject.pair(LENGTH)
    for _ in modes(other):
        outputs(other, x)
    outputs(other, x)  # in evaluation again, where some keep what follows from their weights
    count = _transfer(mixer, other)
    for mode, _ in zip(modes(mixer), modes(other), strict=True):
        label = f"output in {mode} of a mixer that loaded the state"
        yield label, outputs(other, x), outputs(mixer, x)
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
    sizes = _sizes(mixer)
    _use(mixer, subject)
    for name, size in _sizes(mixer).items():
        if size > sizes.get(name, size):
            raise CheckFailed(f"{name} grows with each call: {sizes[name]}, then {size}")
    if made := sorted(set(mixer.state_dict()) - set(built)):
        reason = "optimisers, DDP and checkpoints need it when built"
        raise CheckFailed(f"the first call makes {', '.join(made)}: {reason}")
    other = subject.build(seed=1)
    _use(other, subject, seed=5)
    same = _plain_tensors(other)
    kept = _plain_tensors(mixer)
    for name, tensors in kept.items():
        if name in unmoved or not _are_equal(tensors, same.get(name, [])):
            raise CheckFailed(f"{name} holds a tensor that is neither a parameter nor a buffer")
    if kept:
        _check_moves(subject, ", ".join(kept))
    parameters = len(list(mixer.parameters()))
    buffers = len(list(mixer.buffers()))
    return Finding(f"{parameters} parameters, {buffers} buffers")


def _use(
    mixer: TokenMixer, subject: CheckSubject, *, seed: int = 1, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """What it returns in both modes and in decoding."""
    length = subject.at_most(LENGTH)
    x = subject.tokens(2, length, seed=seed, dtype=dtype)
    _, keep = subject.pair(length)
    found = list(_in_each_mode(mixer, x, keep).values())
    if mixer.caches:
        out, cache = mixer.prefill(beginning(x, 1))
        after, _ = mixer.step(x[:, 0], cache)
        found += [out.detach(), after.detach()]
    return found


def _attributes(mixer: TokenMixer) -> Iterator[tuple[str, Any]]:
    """What its modules hold as plain attributes, by place."""
    for name, module in mixer.named_modules():
        for key, value in vars(module).items():
            if key not in _REGISTERED:
                yield f"{name}.{key}" if name else key, value


def _plain_tensors(mixer: TokenMixer) -> dict[str, list[Tensor]]:
    """Tensors that are neither parameters nor buffers, by the attribute that holds them."""
    registered = {id(tensor) for tensor in (*mixer.parameters(), *mixer.buffers())}
    found = defaultdict(list)
    for name, value in _attributes(mixer):
        for tensor in tensors_of(value):
            if id(tensor) not in registered:
                found[name].append(tensor)
    return found


def _are_equal(tensors: list[Tensor], others: list[Tensor]) -> bool:
    """Whether they hold the same numbers, and none belongs to a graph."""
    if len(tensors) != len(others):
        return False
    for tensor, other in zip(tensors, others, strict=True):
        if tensor.requires_grad or tensor.layout != other.layout:
            return False
        if not torch.equal(tensor.to_dense(), other.to_dense()):
            return False
    return True


def _check_moves(subject: CheckSubject, kept: str) -> None:
    """Into another number format, with what a mixer keeps from its calls.

    Raises:
        CheckFailed: it does not compute there what a new mixer does.
    """
    for before, after in (DOUBLE, SINGLE), (SINGLE, DOUBLE):
        mixer = subject.build(dtype=before)
        other = subject.build(dtype=after)
        _use(mixer, subject, dtype=before)
        other.load_state_dict(mixer.state_dict())
        expected = _use(other, subject, dtype=after)
        moved = _use(mixer.to(after), subject, dtype=after)
        close = MOVED[after]
        for got, wanted in zip(moved, expected, strict=True):
            is_near = got.dtype == after and torch.allclose(got, wanted, rtol=close, atol=close)
            if not is_near:
                raise CheckFailed(f"{kept}: a call in {before} spoils those in {after}")


def _sizes(mixer: TokenMixer) -> dict[str, int]:
    """Numbers in each buffer, and elements of each list, dict and the like."""
    sizes = {name: buffer.numel() for name, buffer in mixer.named_buffers()}
    for name, value in _attributes(mixer):
        if isinstance(value, Collection):
            sizes[name] = len(value)
    return sizes


@compares(
    "a call leaves nothing behind",
    0.0,
    excluded=lambda subject: "declared stateful" if subject.facts.stateful else "",
)
def _state_hidden(subject: CheckSubject) -> Comparisons:
    """Other batches in between, in both modes, change neither the state dict nor a later result."""
    reason = "in a forward pass, but stateful is not claimed"
    for mode in MODES:
        yield from _after_others(subject.build(), subject, mode, MODES, reason)


def _after_others(
    mixer: TokenMixer, subject: CheckSubject, mode: str, compared: Iterable[str], reason: str
) -> Iterator[Comparison]:
    """Other batches, called in a mode, change no buffer and no later result.

    Args:
        compared: modes in which results are compared.
        reason: what is wrong with a changed buffer.
    """
    x, keep = subject.pair(LENGTH)
    before = _state(mixer)
    first = _in_each_mode(mixer, x, keep, compared)
    _call_between(mixer.train(MODES[mode]), subject)
    for name in _changed(mixer, before):
        raise CheckFailed(f"{name} changed {reason}")
    for later, again in _in_each_mode(mixer, x, keep, compared).items():
        yield f"output in {later} after other batches in {mode}", again, first[later]


def _in_each_mode(
    mixer: TokenMixer, x: Tensor, keep: Tensor | None, compared: Iterable[str] = MODES
) -> dict[str, Tensor]:
    """Outputs by the mode; it ends in evaluation."""
    found = {}
    for mode in compared:
        found[mode] = call(mixer.train(MODES[mode]), x, keep).out.detach()
    mixer.eval()
    return found


def _call_between(mixer: TokenMixer, subject: CheckSubject) -> None:
    """Calls with other batches of several lengths, and many where the mixer counts its calls."""
    counted = _numbers(mixer)
    for seed, longest in enumerate(BETWEEN, 7):
        x = subject.tokens(3, subject.at_most(longest), seed=seed)
        call(mixer, 2 * x + 1)
    if _numbers(mixer) != counted:
        few = subject.tokens(1, subject.at_most(2))
        with torch.no_grad():
            for _ in range(MANY_CALLS):
                call(mixer, few)


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
    before = _state(mixer.train())
    for seed in range(3):
        x = subject.tokens(2, length, seed=seed)
        call(mixer, 2 * x + 1)
    changed = _changed(mixer, before)
    if not changed:
        raise CheckFailed("stateful is claimed, but three calls in training changed no buffer")
    _transfer(mixer, other)
    x = subject.tokens(2, length)
    expected = _in_each_mode(mixer, x, None)
    for mode, got in _in_each_mode(other, x, None).items():
        yield f"output in {mode} after loading the state", got, expected[mode]
    reason = "in a call in evaluation, after training"
    yield from _after_others(mixer, subject, "evaluation", ["evaluation"], reason)
    return f"state in {', '.join(changed)}"


def _state(mixer: TokenMixer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in mixer.state_dict().items()}


def _changed(mixer: TokenMixer, before: dict[str, Tensor]) -> list[str]:
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
    state = mixer.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(value), name) for name, value in state.items()}
    once = {name: state[name].detach().contiguous() for name in first.values()}
    saved = load(save(once))
    restored = {name: saved[source] for name, source in names.items()}
    found = other.load_state_dict(restored, strict=False)
    if found.missing_keys or found.unexpected_keys:
        raise CheckFailed(
            f"the state dict depends on the seed or on past calls: missing {found.missing_keys}, "
            f"unexpected {found.unexpected_keys}"
        )
    return len(saved)


@shows("every weight has a gradient, as DDP needs")
def _parameters_used(subject: CheckSubject) -> Finding:
    """In a last layer alone, and in layers with their carry, every trainable weight has a
    gradient.
    """
    last = _training_gradients(subject.build(num_layers=1), subject)
    grads = {("a last layer", name): grad for name, grad in last.items()}
    stack = replace(subject, stacked=True).build()
    for name, grad in _training_gradients(stack, subject).items():
        layer, _, own = name.removeprefix("layers.").partition(".")
        grads[f"the {layer} of {len(LAYERS)}", own] = grad
    unused = defaultdict[str, list[str]](list)
    zero = {}
    for (layer, name), grad in grads.items():
        if grad is None:
            unused[name].append(layer)
        elif not grad.any():
            zero[name] = None
    layers = 1 + len(LAYERS)
    if unused:
        words = []
        for name, where in unused.items():
            place = "" if len(where) == layers else f" (in {' and '.join(where)})"
            words.append(f"{name}{place}")
        raise CheckFailed(f"no gradient for {', '.join(words)}")
    note = f", zero for {', '.join(zero)}" if zero else ""
    return Finding(f"{len(grads) // layers} weights{note}", {"zero": list(zero)})


def _training_gradients(network: TokenMixer, subject: CheckSubject) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is
    none. So many tokens fill the chunks and buckets of most.
    """
    x, keep = subject.pair(MAX_LEN)
    # as those of every layer in a network: a reentrant checkpoint needs that
    result = call(network.train(), x.requires_grad_(), keep)
    value = weighted(result.out).sum()
    for name, loss in result.losses.items():
        if network.loss_weights.get(name):
            value = value + loss.sum()
    return backward(value, trainable(network))


@shows("rules for the optimiser name parameters that exist")
def _parameter_rules(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    given = mixer.parameter_rules()
    known = dict(mixer.named_parameters())
    for name in given:
        if name not in known:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return Finding(f"{len(given)} rules")
