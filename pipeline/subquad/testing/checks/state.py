"""What a mixer keeps: weights and buffers only, saved and restored whole; nothing hidden between calls."""

from __future__ import annotations

import torch
from safetensors.torch import load, save
from torch import Tensor

from subquad.nn import TokenMixer
from subquad.testing.calls import Chain, call, outputs, padded, random_like, trainable
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.measure import Meter
from subquad.testing.subject import CheckSubject

LENGTH = 13


def _not_stateful(subject: CheckSubject) -> str:
    """Why declared state is not looked for."""
    return "" if subject.facts.stateful else "not declared stateful"


def _stateful(subject: CheckSubject) -> str:
    """Why hidden state is not looked for."""
    return "declared stateful" if subject.facts.stateful else ""


@shows("a checkpoint restores a mixer bit for bit, whatever its seed")
def _state_round_trip(subject: CheckSubject) -> Finding:
    """Through safetensors, strictly, into a mixer built with another seed: equal outputs, bit for bit."""
    mixer, other = subject.build(), subject.build(seed=1)
    x, meter = subject.tokens(2, subject.at_most(LENGTH)), Meter(0.0)
    count = _transfer(mixer, other)
    meter.compare("output of a mixer that loaded the state", outputs(other, x), outputs(mixer, x))
    return meter.finding(f"{count} tensors")


@shows("all tensors it keeps are parameters or buffers")
def _state_registered(subject: CheckSubject) -> Finding:
    """No tensor is kept as a plain attribute, which `.to(device)` and checkpoints would miss."""
    mixer = subject.build()
    call(mixer, subject.tokens(2, subject.at_most(LENGTH)))
    for name, module in mixer.named_modules():
        for key, value in vars(module).items():
            if any(isinstance(one, Tensor) for one in (value if isinstance(value, (list, tuple)) else [value])):
                where = f"{name}.{key}" if name else key
                raise CheckFailed(f"{where} is a tensor and neither a parameter nor a buffer")
    return Finding(f"{len(list(mixer.parameters()))} parameters, {len(list(mixer.buffers()))} buffers")


@shows("a call leaves nothing behind", excluded=_stateful)
def _state_hidden(subject: CheckSubject) -> Finding:
    """Other batches in between, in both modes, change neither the state dict nor a later result."""
    length, meter = subject.at_most(LENGTH), Meter(0.0)
    x, keep = subject.tokens(2, length), padded(length, (length, (length + 1) // 2))
    for training in (True, False):
        mixer = subject.build().train(training)
        before = {name: value.clone() for name, value in mixer.state_dict().items()}
        first = call(mixer, x, keep).out.detach()
        for seed, between in ((7, subject.at_most(LENGTH)), (8, subject.at_most(5))):
            call(mixer, 2 * subject.tokens(3, between, seed=seed) + 1).out.sum()
        for name, value in mixer.state_dict().items():
            if not torch.equal(value, before[name]):
                raise CheckFailed(f"{name} changed in a forward pass, but stateful is not claimed")
        label = f"output after other batches in {'training' if training else 'evaluation'}"
        meter.compare(label, call(mixer, x, keep).out.detach(), first)
    return meter.finding()


@shows("declared state is in buffers, saved and restored", excluded=_not_stateful)
def _state_declared(subject: CheckSubject) -> Finding:
    """What calls in training leave behind is in buffers: a mixer that loads them goes on alike in both modes."""
    mixer, other = subject.build().train(), subject.build(seed=1)
    x = subject.tokens(2, subject.at_most(LENGTH))
    before = {name: value.clone() for name, value in mixer.state_dict().items()}
    for seed in range(3):
        call(mixer, 2 * subject.tokens(2, x.shape[1], seed=seed) + 1)
    changed = [name for name, value in mixer.state_dict().items() if not torch.equal(value, before[name])]
    if not changed:
        raise CheckFailed("stateful is claimed, but three calls in training changed no buffer")
    _transfer(mixer, other)
    meter = Meter(0.0)
    for training in (False, True):
        pair = [call(one.train(training), x).out.detach() for one in (other, mixer)]
        meter.compare(f"output in {'training' if training else 'evaluation'} after loading the state", *pair)
    return meter.finding(f"state in {', '.join(changed)}")


def _transfer(mixer: TokenMixer, other: TokenMixer) -> int:
    """Load `mixer`'s state into `other` as a checkpoint does: tied tensors once. Returns how many tensors there are."""
    state = mixer.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(value), name) for name, value in state.items()}
    saved = load(save({name: state[name].detach().clone() for name in first.values()}))
    found = other.load_state_dict({name: saved[names[name]] for name in state}, strict=False)
    if found.missing_keys or found.unexpected_keys:
        raise CheckFailed(
            f"the state dict depends on the seed or on past calls: missing {found.missing_keys}, "
            f"unexpected {found.unexpected_keys}"
        )
    return len(saved)


@shows("every weight has a gradient, as DDP needs")
def _parameters_used(subject: CheckSubject) -> Finding:
    """In a last layer alone, and in two layers with their carry, every trainable weight has a gradient."""
    unused, zero = [], []
    for where, network in (("a last layer", subject.build(num_layers=1)), ("two layers", Chain(subject))):
        grads = _training_gradients(network.train(), subject)
        unused += [f"{name} in {where}" for name, grad in grads.items() if grad is None]
        zero += [name for name, grad in grads.items() if grad is not None and not grad.any()]
    if unused:
        raise CheckFailed(f"no gradient for {', '.join(unused)}")
    note = f", zero for {', '.join(zero)}" if zero else ""
    return Finding(f"{len(grads) // 2} weights{note}", {"zero": zero})


def _training_gradients(network: TokenMixer, subject: CheckSubject) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is none."""
    length = subject.at_most(LENGTH)
    named = trainable(network)
    result = call(network, subject.tokens(2, length), padded(length, (length, (length + 1) // 2)))
    total = (result.out * random_like(result.out)).sum()
    for name, loss in result.losses.items():
        if network.loss_weights.get(name):
            total = total + loss.sum()
    if not named or not total.requires_grad:
        return dict.fromkeys(named)
    return dict(zip(named, torch.autograd.grad(total, list(named.values()), allow_unused=True), strict=True))


@shows("rules for the optimiser name parameters that exist")
def _parameter_rules(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    given = mixer.parameter_rules()
    known = dict(mixer.named_parameters())
    for name in given:
        if name not in known:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return Finding(f"{len(given)} rules")
