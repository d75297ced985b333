"""What a mixer must leave as it is: what all code of a process shares."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from subquad.nn import as_output
from subquad.registry import make_mixer
from subquad.testing.calls import weighted
from subquad.testing.cases import shows
from subquad.testing.meter import CheckFailed, Finding
from subquad.testing.subject import CheckSubject
from subquad.testing.switches import SWITCHES, switches_kept

LENGTH = 13


@shows("it leaves what the process shares: generators, grad mode, threads, torch's switches")
def _process_kept(subject: CheckSubject) -> Finding:
    """Built, called in both modes and in decoding, from both values of every switch that has two.

    Building and training may draw from torch's generator, but must not set it.
    """
    states = []
    with switches_kept():
        for i in (0, 1):
            for switch in SWITCHES.values():
                if switch.values:
                    switch.write(switch.values[i])
            torch.manual_seed(i)
            states.append(_states(subject))
    first, second = states
    for step, state in first.items():
        other = second.get(step)
        if other is not None and torch.equal(state, other):
            raise CheckFailed(f"{step} sets the seed of torch's generator")
    steps = ", ".join(first)
    return Finding(f"{len(SWITCHES)} settings, {steps}")


def _states(subject: CheckSubject) -> dict[str, torch.Tensor]:
    """The state of torch's generator after each step of using a mixer.

    Raises:
        CheckFailed: a step changes another setting of the process.
    """
    kept = {name: switch.read() for name, switch in SWITCHES.items()}
    states = {}
    for step in _steps(subject):
        for name, switch in SWITCHES.items():
            if switch.read() != kept[name]:
                raise CheckFailed(f"{step} changes {name}, which the whole process shares")
        states[step] = torch.get_rng_state()
    return states


def _steps(subject: CheckSubject) -> Iterator[str]:
    """Uses a mixer; each step's name when it is done."""
    mixer = make_mixer(subject.resolved, subject.config, subject.site())
    yield "building it"
    tokens, keep = subject.pair(LENGTH)
    x = tokens.float().requires_grad_()
    mixer.eval()
    mixer(x, keep=keep)
    yield "a call in evaluation"
    mixer.train()
    # not `call`, which seeds the generator
    out = as_output(mixer(x, keep=keep)).out
    yield "a call in training"
    if out.requires_grad:
        weighted(out).sum().backward()
        yield "a backward pass"
    mixer.eval()
    if mixer.caches:
        _, cache = mixer.prefill(x[:, :1])
        mixer.step(x[:, 0], cache)
        yield "decoding"
