"""What a mixer keeps: weights and buffers only, saved and restored whole; nothing hidden between calls."""

from __future__ import annotations

from dataclasses import replace

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.utils._pytree import tree_leaves

from subquad.nn import TokenMixer
from subquad.testing.check import CheckFailed, Finding, Meter, shows
from subquad.testing.subject import CheckSubject, call, modes, outputs, trainable, weighted

LENGTH, CALLS = 13, 12
_REGISTERED = ("_parameters", "_buffers", "_modules")


@shows("a checkpoint restores a mixer bit for bit, whatever its seed")
def _state_round_trip(subject: CheckSubject) -> Finding:
    """Through safetensors, strictly, into a mixer built with another seed: equal outputs, bit for bit."""
    mixer, other = subject.build(), subject.build(seed=1)
    (x, _), meter = subject.pair(LENGTH), Meter(0.0)
    count = _transfer(mixer, other)
    for mode, _ in zip(modes(mixer), modes(other), strict=True):
        meter.compare(f"output in {mode} of a mixer that loaded the state", outputs(other, x), outputs(mixer, x))
    return meter.finding(f"{count} tensors")


@shows("all tensors it keeps are parameters or buffers, and there when it is built")
def _state_registered(subject: CheckSubject) -> Finding:
    """No tensor is kept as a plain attribute, which `.to(device)` and checkpoints would miss, nor made by a call."""
    mixer = subject.build()
    built = set(mixer.state_dict())
    for _ in modes(mixer):
        call(mixer, *subject.pair(LENGTH))
    if mixer.caches:
        x = subject.tokens(2, subject.at_most(LENGTH))
        mixer.step(x[:, 0], mixer.prefill(x[:, :1])[1])
    if made := sorted(set(mixer.state_dict()) - built):
        raise CheckFailed(f"the first call makes {', '.join(made)}: optimisers, DDP and checkpoints need it when built")
    for name, module in mixer.named_modules():
        for key, value in vars(module).items():
            if key not in _REGISTERED and any(isinstance(one, Tensor) for one in tree_leaves(value)):
                where = f"{name}.{key}" if name else key
                raise CheckFailed(f"{where} is a tensor and neither a parameter nor a buffer")
    return Finding(f"{len(list(mixer.parameters()))} parameters, {len(list(mixer.buffers()))} buffers")


@shows("a call leaves nothing behind", excluded=lambda subject: "declared stateful" if subject.facts.stateful else "")
def _state_hidden(subject: CheckSubject) -> Finding:
    """Other batches in between, in both modes, change neither the state dict nor a later result."""
    (x, keep), meter = subject.pair(LENGTH), Meter(0.0)
    for training in (True, False):
        mixer = subject.build().train(training)
        before = _state(mixer)
        first = call(mixer, x, keep).out.detach()
        for seed, between in ((7, x.shape[1]), *((seed, subject.at_most(5)) for seed in range(8, 8 + CALLS))):
            call(mixer, 2 * subject.tokens(3, between, seed=seed) + 1)
        for name in _changed(mixer, before):
            raise CheckFailed(f"{name} changed in a forward pass, but stateful is not claimed")
        label = f"output after other batches in {'training' if training else 'evaluation'}"
        meter.compare(label, call(mixer, x, keep).out.detach(), first)
    return meter.finding()


@shows(
    "declared state is in buffers, saved and restored",
    excluded=lambda subject: "" if subject.facts.stateful else "not declared stateful",
)
def _state_declared(subject: CheckSubject) -> Finding:
    """What calls in training leave behind is in buffers: a mixer that loads them goes on alike in both modes."""
    mixer, other, meter = subject.build().train(), subject.build(seed=1), Meter(0.0)
    x = subject.tokens(2, subject.at_most(LENGTH))
    before = _state(mixer)
    for seed in range(3):
        call(mixer, 2 * subject.tokens(2, x.shape[1], seed=seed) + 1)
    if not (changed := _changed(mixer, before)):
        raise CheckFailed("stateful is claimed, but three calls in training changed no buffer")
    _transfer(mixer, other)
    for training in (False, True):
        pair = [call(one.train(training), x).out.detach() for one in (other, mixer)]
        meter.compare(f"output in {'training' if training else 'evaluation'} after loading the state", *pair)
    return meter.finding(f"state in {', '.join(changed)}")


def _state(mixer: TokenMixer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in mixer.state_dict().items()}


def _changed(mixer: TokenMixer, before: dict[str, Tensor]) -> list[str]:
    now = mixer.state_dict()
    return [name for name, value in now.items() if name not in before or not torch.equal(value, before[name])]


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
    unused, zero, grads = [], [], {}
    built = {"a last layer": subject.build(num_layers=1), "two layers": replace(subject, stacked=True).build()}
    for where, network in built.items():
        grads = _training_gradients(network.train(), subject)
        unused += [f"{name} in {where}" for name, grad in grads.items() if grad is None]
        zero += [name for name, grad in grads.items() if grad is not None and not grad.any()]
    if unused:
        raise CheckFailed(f"no gradient for {', '.join(unused)}")
    note = f", zero for {', '.join(zero)}" if zero else ""
    return Finding(f"{len(grads) // 2} weights{note}", {"zero": zero})


def _training_gradients(network: TokenMixer, subject: CheckSubject) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is none."""
    named, result = trainable(network), call(network, *subject.pair(LENGTH))
    losses = (loss.sum() for name, loss in result.losses.items() if network.loss_weights.get(name))
    total = sum(losses, weighted(result.out).sum())
    if not named or not total.requires_grad:
        return dict.fromkeys(named)
    return dict(zip(named, torch.autograd.grad(total, list(named.values()), allow_unused=True), strict=True))


@shows("rules for the optimiser name parameters that exist")
def _parameter_rules(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    given, known = mixer.parameter_rules(), dict(mixer.named_parameters())
    for name in given:
        if name not in known:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return Finding(f"{len(given)} rules")
