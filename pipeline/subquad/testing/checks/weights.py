"""Weights in training: each has a gradient, and rules for the optimiser name those that exist."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from torch import Tensor

from subquad.nn import TokenMixer
from subquad.testing.calls import backward, call, trainable, weighted
from subquad.testing.cases import shows
from subquad.testing.meter import CheckFailed, Finding
from subquad.testing.subject import LAYERS, MAX_LEN, CheckSubject


@shows("every weight has a gradient, as DDP needs")
def _parameters_used(subject: CheckSubject) -> Finding:
    """In a last layer alone, and in layers with their carry, every trainable weight has a
    gradient.
    """
    single = subject.build(num_layers=1)
    last = _training_gradients(single, subject)
    grads = {}
    for name, grad in last.items():
        grads["a last layer", name] = grad
    stacked = len(LAYERS)
    stack = replace(subject, stacked=True).build()
    found = _training_gradients(stack, subject)
    for place, grad in found.items():
        own = place.removeprefix("layers.")
        layer, _, name = own.partition(".")
        where = f"the {layer} of {stacked}"
        grads[where, name] = grad
    unused = defaultdict[str, list[str]](list)
    zero: list[str] = []
    for (where, name), grad in grads.items():
        if grad is None:
            unused[name].append(where)
        elif not grad.any() and name not in zero:
            zero.append(name)
    layers = 1 + stacked
    if unused:
        words = []
        for name, places in unused.items():
            if len(places) < layers:
                among = " and ".join(places)
                name += f" (in {among})"
            words.append(name)
        lacking = ", ".join(words)
        raise CheckFailed(f"no gradient for {lacking}")
    count = len(grads) // layers
    words = f"{count} weights"
    if zero:
        names = ", ".join(zero)
        words += f", zero for {names}"
    return Finding(words, {"zero": zero})


def _training_gradients(network: TokenMixer, subject: CheckSubject) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is
    none. So many tokens fill the chunks and buckets of most.
    """
    x, keep = subject.pair(MAX_LEN)
    # as those of every layer in a network: a reentrant checkpoint needs that
    tokens = x.requires_grad_()
    network.train()
    result = call(network, tokens, keep)
    value = weighted(result.out).sum()
    for name, loss in result.losses.items():
        if network.loss_weights.get(name):
            value = value + loss.sum()
    weights = trainable(network)
    return backward(value, weights)


@shows("rules for the optimiser name parameters that exist")
def _parameter_rules(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    given = mixer.parameter_rules()
    known = dict(mixer.named_parameters())
    for name in given:
        if name not in known:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return Finding(f"{len(given)} rules")
