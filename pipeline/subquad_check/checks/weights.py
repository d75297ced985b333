"""Weights in training: each has a gradient and enough precision, and rules for the optimiser name
those that exist.
"""

from __future__ import annotations

from collections import defaultdict
from typing import cast

from torch import Tensor

from subquad.nn import TokenMixer
from subquad.registry import make_mixer
from subquad_check.calls import backward, call, trainable, weighted
from subquad_check.cases import shows
from subquad_check.meter import HALF, CheckFailed, Finding, word
from subquad_check.subject import LAYERS, MAX_LEN, CheckSubject


@shows("every weight has a gradient, as DDP needs; rules for the optimiser name weights")
def _parameters_used(subject: CheckSubject) -> Finding:
    """In a last layer alone, and in layers with their carry, every trainable weight has a
    gradient. None is built in half precision, where a small step of training changes nothing.
    """
    rules = _checked_rules(subject)
    last = subject.build(num_layers=1)
    alone = _training_gradients(last, subject)
    frozen = _training_gradients(last, subject, below=False)
    lost = [name for name, grad in frozen.items() if grad is None]
    if lost != list(frozen):  # a reentrant checkpoint has none at all
        for name in lost:
            if alone[name] is not None:
                raise CheckFailed(f"no gradient for {name} where nothing below is trained")
    found = [("a last layer", name, grad) for name, grad in alone.items()]
    for place, grad in _training_gradients(subject.altered(stacked=True).build(), subject).items():
        _, layer, name = place.split(".", 2)
        found.append((f"the {layer} of {len(LAYERS)}", name, grad))
    unused = defaultdict[str, list[str]](list)
    for where, name, grad in found:
        if grad is None:
            unused[name].append(where)
    layers = 1 + len(LAYERS)
    if unused:
        words = [
            name if len(places) == layers else f"{name} (in {' and '.join(places)})"
            for name, places in unused.items()
        ]
        raise CheckFailed(f"no gradient for {', '.join(words)}")
    zero = list(dict.fromkeys(name for _, name, grad in found if not cast(Tensor, grad).any()))
    words = f"{len(found) // layers} weights, {rules} rules"
    if zero:
        words += f", zero for {', '.join(zero)}"
    return Finding(words, {"zero": zero})


def _checked_rules(subject: CheckSubject) -> int:
    """How many rules there are.

    Raises:
        CheckFailed: one names no weight, or a weight is built in half precision.
    """
    mixer = make_mixer(subject.resolved, subject.config, subject.site())
    weights = dict(mixer.named_parameters())
    for name, weight in weights.items():
        if weight.requires_grad and weight.dtype in HALF:
            raise CheckFailed(f"{name} is built in {word(weight.dtype)}: small steps are lost")
    rules = mixer.parameter_rules()
    for name in rules:
        if name not in weights:
            raise CheckFailed(f"parameter_rules names {name!r}, which is no parameter")
    return len(rules)


def _training_gradients(
    network: TokenMixer, subject: CheckSubject, *, below: bool = True
) -> dict[str, Tensor | None]:
    """Gradient of each trainable weight, of all that training would add up; None where there is
    none. So many tokens fill the chunks and buckets of most.

    Args:
        below: whether the tokens have a gradient, as where layers below are trained.
    """
    x, keep = subject.pair(MAX_LEN)
    network.train()
    result = call(network, x.requires_grad_(below), keep)
    losses = [loss.sum() for name, loss in result.losses.items() if network.loss_weights.get(name)]
    return backward(sum(losses, weighted(result.out).sum()), trainable(network))
