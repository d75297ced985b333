"""What a mixer keeps: weights and buffers only, saved and restored whole; nothing hidden between
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from safetensors.torch import load, save
from torch import Tensor

from subquad.nn import TokenMixer
from subquad.testing.calls import (
    MODES,
    backward,
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
    mixer, other = subject.build(), subject.build(seed=1)
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
    built, unmoved = set(mixer.state_dict()), _plain_tensors(mixer)
    _use(mixer, subject)
    sizes = _sizes(mixer)
    _use(mixer, subject)
    for name, size in _sizes(mixer).items():
        if size > sizes.get(name, size):
            raise CheckFailed(f"{name} grows with each call: {sizes[name]}, then {size}")
    if made := sorted(set(mixer.state_dict()) - built):
        reason = "optimisers, DDP and checkpoints need it when built"
        raise CheckFailed(f"the first call makes {', '.join(made)}: {reason}")
    kept, other = _plain_tensors(mixer), subject.build(seed=1)
    _use(other, subject, seed=5)
    same = _plain_tensors(other)
    for where, tensors in kept.items():
        if where in unmoved or not _are_equal(tensors, same.get(where, [])):
            raise CheckFailed(f"{where} holds a tensor that is neither a parameter nor a buffer")
    if kept:
        _check_moves(subject, ", ".join(kept))
    parameters, buffers = list(mixer.parameters()), list(mixer.buffers())
    return Finding(f"{len(parameters)} parameters, {len(buffers)} buffers")


def _use(
    mixer: TokenMixer, subject: CheckSubject, *, seed: int = 1, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """What it returns in both modes and in decoding."""
    length = subject.at_most(LENGTH)
    x = subject.tokens(2, length, seed=seed, dtype=dtype)
    keep = subject.pair(length)[1]
    found = [call(mixer, x, keep).out.detach() for _ in modes(mixer)]
    if mixer.caches:
        out, cache = mixer.prefill(x[:, :1])
        found += [out.detach(), mixer.step(x[:, 0], cache)[0].detach()]
    return found


def _plain_tensors(mixer: TokenMixer) -> dict[str, list[Tensor]]:
    """Tensors that are neither parameters nor buffers, by the attribute that holds them."""
    kept = {id(tensor) for tensor in (*mixer.parameters(), *mixer.buffers())}
    found = {}
    for name, module in mixer.named_modules():
        for key, value in vars(module).items():
            others = [tensor for tensor in tensors_of(value) if id(tensor) not in kept]
            if key not in _REGISTERED and others:
                found[f"{name}.{key}" if name else key] = others
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
    for before, after in (DOUBLE, SINGLE), (SINGLE, DOUBLE):
        mixer, other = subject.build(dtype=before), subject.build(dtype=after)
        _use(mixer, subject, dtype=before)
        other.load_state_dict(mixer.state_dict())
        expected = _use(other, subject, dtype=after)
        close = MOVED[after]
        for got, wanted in zip(_use(mixer.to(after), subject, dtype=after), expected, strict=True):
            if got.dtype != after or not torch.allclose(got, wanted, rtol=close, atol=close):
                raise CheckFailed(f"{kept}: a call in {before} spoils those in {after}")


def _sizes(mixer: TokenMixer) -> dict[str, int]:
    """Numbers in each buffer, and elements of each list, dict and the like."""
    sizes = {name: buffer.numel() for name, buffer in mixer.named_buffers()}
    for name, module in mixer.named_modules():
        kept = {key: value for key, value in vars(module).items() if key not in _REGISTERED}
        held = {key: len(value) for key, value in kept.items() if isinstance(value, Collection)}
        sizes |= {f"{name}.{key}" if name else key: size for key, size in held.items()}
    return sizes


@compares(
    "a call leaves nothing behind",
    0.0,
    excluded=lambda subject: "declared stateful" if subject.facts.stateful else "",
)
def _state_hidden(subject: CheckSubject) -> Comparisons:
    """Other batches in between, in both modes, change neither the state dict nor a later result."""
    x, keep = subject.pair(LENGTH)
    for mode, training in MODES.items():
        mixer = subject.build()
        before = _state(mixer)
        first = _in_each_mode(mixer, x, keep)
        _call_between(mixer.train(training), subject)
        for name in _changed(mixer, before):
            raise CheckFailed(f"{name} changed in a forward pass, but stateful is not claimed")
        for later_mode, again in _in_each_mode(mixer, x, keep).items():
            yield f"output in {later_mode} after other batches in {mode}", again, first[later_mode]


def _in_each_mode(mixer: TokenMixer, x: Tensor, keep: Tensor) -> dict[str, Tensor]:
    return {mode: call(mixer, x, keep).out.detach() for mode in modes(mixer)}


def _call_between(mixer: TokenMixer, subject: CheckSubject) -> None:
    """Calls with other batches of several lengths, and many where the mixer counts its calls."""
    counted = _numbers(mixer)
    for seed, length in enumerate(map(subject.at_most, BETWEEN), 7):
        call(mixer, 2 * subject.tokens(3, length, seed=seed) + 1)
    if _numbers(mixer) != counted:
        few = subject.tokens(1, subject.at_most(2))
        with torch.no_grad():
            for _ in range(MANY_CALLS):
                call(mixer, few)


def _numbers(mixer: TokenMixer) -> dict[str, int | float]:
    """Plain numbers that its modules keep."""
    return {
        f"{name}.{key}": value
        for name, module in mixer.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, int | float)
    }


@compares(
    "declared state is in buffers, saved and restored",
    0.0,
    excluded=lambda subject: "" if subject.facts.stateful else "not declared stateful",
)
def _state_declared(subject: CheckSubject) -> Comparisons:
    """What calls in training leave behind is in buffers: a mixer that loads them goes on alike
    in both modes. Calls in evaluation leave nothing, before training and after it.
    """
    mixer, other = subject.build(), subject.build(seed=1)
    x = subject.tokens(2, subject.at_most(LENGTH))
    yield from _evaluated(mixer, subject, "before training")
    before = _state(mixer.train())
    for seed in range(3):
        call(mixer, 2 * subject.tokens(2, x.shape[1], seed=seed) + 1)
    changed = _changed(mixer, before)
    if not changed:
        raise CheckFailed("stateful is claimed, but three calls in training changed no buffer")
    _transfer(mixer, other)
    for mode in ("evaluation", "training"):
        pair = [call(kept.train(mode == "training"), x).out.detach() for kept in (other, mixer)]
        yield f"output in {mode} after loading the state", *pair
    yield from _evaluated(mixer, subject, "after training")
    return f"state in {', '.join(changed)}"


def _evaluated(mixer: TokenMixer, subject: CheckSubject, when: str) -> Iterator[Comparison]:
    """In evaluation, other batches change no buffer and no later result."""
    x, keep = subject.pair(LENGTH)
    before = _state(mixer.eval())
    first = call(mixer, x, keep).out.detach()
    _call_between(mixer, subject)
    for name in _changed(mixer, before):
        raise CheckFailed(f"{name} changed in a call in evaluation, {when}")
    again = call(mixer, x, keep).out.detach()
    yield f"output in evaluation after other batches, {when}", again, first


def _state(mixer: TokenMixer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in mixer.state_dict().items()}


def _changed(mixer: TokenMixer, before: dict[str, Tensor]) -> list[str]:
    """Names in the state that are new, or whose tensor is another one."""
    now = mixer.state_dict().items()
    return [
        name for name, value in now if name not in before or not torch.equal(value, before[name])
    ]


def _transfer(mixer: TokenMixer, other: TokenMixer) -> int:
    """Load `mixer`'s state into `other` as a checkpoint does: tied tensors once. Returns how
    many tensors there are.
    """
    state = mixer.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(value), name) for name, value in state.items()}
    saved = load(save({name: state[name].detach().contiguous() for name in first.values()}))
    found = other.load_state_dict({name: saved[names[name]] for name in state}, strict=False)
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
    places, zero, count = defaultdict[str, list[str]](list), {}, 0
    stack = replace(subject, stacked=True).build()
    for network in (subject.build(num_layers=1), stack):
        grads = _training_gradients(network.train(), subject)
        count += len(grads)
        for name, grad in grads.items():
            layer, _, own = name.removeprefix("layers.").partition(".")
            if network is not stack:
                layer, own = "", name
            if grad is None:
                places[own].append(_LAYERS[layer])
            elif not grad.any():
                zero[own] = None
    if places:
        unused = [
            name if len(where) == len(_LAYERS) else f"{name} (in {' and '.join(where)})"
            for name, where in places.items()
        ]
        raise CheckFailed(f"no gradient for {', '.join(unused)}")
    note = f", zero for {', '.join(zero)}" if zero else ""
    return Finding(f"{count // len(_LAYERS)} weights{note}", {"zero": list(zero)})


_LAYERS = {"": "a last layer", **{name: f"the {name} of {len(LAYERS)}" for name in LAYERS}}


def _training_gradients(network: TokenMixer, subject: CheckSubject) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is
    none. So many tokens fill the chunks and buckets of most.
    """
    tokens, keep = subject.pair(MAX_LEN)
    # as those of every layer in a network: a reentrant checkpoint needs that
    named, result = trainable(network), call(network, tokens.requires_grad_(), keep)
    weights = network.loss_weights
    losses = [loss.sum() for name, loss in result.losses.items() if weights.get(name)]
    total = sum(losses, weighted(result.out).sum())
    return backward(total, named)


@shows("rules for the optimiser name parameters that exist")
def _parameter_rules(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    given, known = mixer.parameter_rules(), dict(mixer.named_parameters())
    for name in given:
        if name not in known:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return Finding(f"{len(given)} rules")
