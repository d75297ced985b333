"""Compiled by torch: the same numbers, and how much of the mixer's own code is in graphs."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.fx import GraphModule

from subquad.nn import AttentionMixer, TokenMixer
from subquad.output.terminal import quantity
from subquad.registry import build_class
from subquad_check.calls import (
    Intercepting,
    outputs,
    settled_modes,
    tensors_of,
    values_and_gradients,
)
from subquad_check.cases import compares
from subquad_check.meter import Comparisons, Finding, NotApplicable, each
from subquad_check.subject import CheckSubject

COMPILED = 0.5
"""Where less of a mixer's operations is in compiled graphs, of two operations or more, it is told.
"""


@compares("where torch.compile takes the mixer, outputs and gradients are the same")
def _compiled(subject: CheckSubject) -> Comparisons:
    """Outputs, extra losses and gradients, with a mask; in training if nothing is drawn or kept
    there.

    torch's compiler takes gradients of a buffer that the same call changes from what it was changed
    to.
    """
    mixer, x, keep = subject.case(13)
    trains = "training" in settled_modes(mixer, x) and not subject.facts.stateful
    expected = values_and_gradients(subject.build().train(trains), x, keep)
    with _Tracing(subject) as tracing:
        compiled: Any = torch.compile(subject.build().train(trains), backend=tracing)
        try:
            got = values_and_gradients(compiled, x, keep)
        except Exception as error:
            # without torch's advice on how to see more
            said, *_ = str(error).split("\n\nSet TORCH")
            raise NotApplicable(
                "not tested, because torch's compiler fails where the same call works without it: "
                f"{type(error).__name__}: {' '.join(said.split())}"
            ) from error
    yield from each(got, expected, f" compiled by {subject.compiler}")
    called = _count_calls(mixer.train(trains), x, keep)
    warning = ""
    if tracing.failure:
        warning = f"nothing was compiled, torch's compiler leaves it as it is: {tracing.failure}; "
    elif called > 1 and tracing.operations < COMPILED * called:
        warning = f"hardly anything was compiled: {tracing.operations} of {called} operations; "
    return Finding(
        f"{warning}{subject.compiler}, {tracing}",
        {"operations": called, "compiled": tracing.operations},
    )


class _Tracing:
    """A backend of torch.compile that counts what reaches it. Inside, the compiler starts with an
    empty memory.

    Attributes:
        operations: of the mixer's own code, an attention core's without its projections; in graphs
            of two or more.
        failure: why the whole call fell back to eager; "" where it did not.
    """

    def __init__(self, subject: CheckSubject):
        from torch._dynamo import utils  # here: they take seconds to import
        from torch._dynamo.backends.registry import lookup_backend

        self.__name__ = subject.compiler  # as torch calls it in its messages
        self.compile = lookup_backend(subject.compiler)
        self.known = utils
        self.own = inspect.unwrap(build_class(subject.resolved).forward).__code__.co_filename
        self.operations = 0
        self.counts = dict.fromkeys(("graph", "graph break", "fallback"), 0)
        self.failure = ""

    def __enter__(self) -> _Tracing:
        torch._dynamo.reset()
        self.known.counters.clear()
        self.known.clear_compilation_metrics()
        return self

    def __exit__(self, *error: object) -> None:
        metrics = self.known.get_compilation_metrics()
        if metrics and metrics[0].fail_type:
            self.failure, *_ = str(metrics[0].fail_reason).split("\n")
        frames = self.known.counters["frames"]
        self.counts["graph break"] = self.known.counters["graph_break"].total()
        self.counts["fallback"] = frames["total"] - frames["ok"]
        torch._dynamo.reset()

    def __call__(self, graph: Any, inputs: Any) -> Any:
        calls = [
            node
            for part in graph.modules()
            if isinstance(part, GraphModule)
            for node in part.graph.nodes
            if node.op.startswith("call_")
        ]
        self.counts["graph"] += 1
        if len(calls) > 1:  # one alone is as it was
            for node in calls:
                self.operations += self.own in (node.stack_trace or self.own)
        return self.compile(graph, inputs)

    def __str__(self) -> str:
        return ", ".join(map(quantity, self.counts.values(), self.counts))


def _count_calls(mixer: TokenMixer, x: Tensor, keep: Tensor) -> int:
    """Calls of torch that make tensors, in the mixer's own code."""
    count = 0

    def note(result: Any, args: Any) -> Any:
        nonlocal count
        count += bool(tensors_of(result))
        return result

    own = mixer.core if isinstance(mixer, AttentionMixer) else mixer
    forward = own.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        with Intercepting(note):
            return forward(*args, **kwargs)

    with mock.patch.object(own, "forward", counted):
        outputs(mixer, x, keep)
    return count
