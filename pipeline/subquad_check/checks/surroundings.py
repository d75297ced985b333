"""What a mixer must leave as it is: what all code of a process shares."""

from __future__ import annotations

import contextlib
import io
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from subquad.nn import as_output
from subquad.registry import make_mixer
from subquad_check.calls import call, weighted
from subquad_check.cases import shows
from subquad_check.checks.values import built_with, other_values
from subquad_check.meter import ROUNDING, CheckFailed, Comparison, Finding, Meter
from subquad_check.subject import FAR, CheckSubject
from subquad_check.switches import SWITCHES, switches_kept

LENGTH = 13
SECONDS_APART = 60
"""For what a copy of the process computes."""


@shows("it leaves what the process shares: generators, grad mode, threads, switches, tables")
def _process_kept(subject: CheckSubject) -> Finding:
    """Built, called in both modes and in decoding, from both values of every switch that has two.
    After calls of other mixers of its kind it gives what it gives in a process without them.

    Building and training may draw from torch's generator, but must not set it.
    """
    states: list[dict[str, torch.Tensor]] = []
    with switches_kept():
        for i in (0, 1):
            for switch in SWITCHES.values():
                if switch.values:
                    switch.write(switch.values[i])
            torch.manual_seed(i)
            kept = {name: switch.read() for name, switch in SWITCHES.items()}
            states.append({})
            for step in _steps(subject):
                for name, switch in SWITCHES.items():
                    if switch.read() != kept[name]:
                        raise CheckFailed(f"{step} changes {name}, which the whole process shares")
                states[i][step] = torch.get_rng_state()
    first, second = states
    for step, state in first.items():
        if step in second and torch.equal(state, second[step]):
            raise CheckFailed(f"{step} sets the seed of torch's generator")
    meter = Meter(subject.at_least(ROUNDING))
    meter.compare_all(_beside_others(subject))
    return meter.finding(f"{len(SWITCHES)} settings, {', '.join(first)}")


def _beside_others(subject: CheckSubject) -> Iterator[Comparison]:
    """Of lengths that nobody has met, each first called by another mixer that may share a table."""
    if subject.at_most(FAR) < FAR:
        return
    others = [
        subject,
        replace(subject, seed=subject.seed + 1),
        replace(subject, dim=2 * subject.dim, num_heads=2 * subject.num_heads),
    ]
    if subject.facts.causal == "optional":
        others.append(replace(subject, causal=not subject.causal))
    others += [built_with(subject, values) or subject for values in other_values(subject)]
    lengths = range(FAR + 51, FAR + 51 + len(others))
    alone = _in_a_fork(lambda: [_output(subject, length) for length in lengths])
    for length, other, expected in zip(lengths, others, alone, strict=False):
        with contextlib.suppress(Exception):  # a size that it does not take
            _output(other, length, torch.float32)
            _output(other, length)
        yield "output after another mixer of this length", _output(subject, length), expected


@torch.no_grad()
def _output(subject: CheckSubject, length: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return call(
        subject.build(max_len=length, dtype=dtype), subject.tokens(1, length, dtype=dtype)
    ).out


def _in_a_fork(compute: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    """What a copy of this process computes, which leaves nothing in this one; nothing where it
    does not end. One thread computes, so that others are not missed.
    """
    read, write = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(SECONDS_APART)
        with contextlib.suppress(Exception), open(write, "wb") as file:
            torch.save(compute(), file)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        content = file.read()
    os.waitpid(process, 0)
    return torch.load(io.BytesIO(content)) if content else []


def _steps(subject: CheckSubject) -> Iterator[str]:
    """Uses a mixer; each step's name when it is done."""
    mixer = make_mixer(subject.resolved, subject.config, subject.site())
    yield "building it"
    x, keep = subject.pair(LENGTH, torch.float32)
    x.requires_grad_()
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
