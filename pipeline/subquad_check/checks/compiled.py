"""Compiled by torch: the same numbers, and how much of the mixer's own code is in graphs."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from subquad.nn import AttentionMixer, TokenMixer
from subquad.registry import build_class
from subquad_check.calls import outputs, settled_modes, tensors_of, values_and_gradients
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
    mixer = subject.build()
    x, keep = subject.pair(13)
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
                f"{_NOT_TESTED}: {type(error).__name__}: {' '.join(said.split())}"
            ) from error
    for mine, wanted in zip(got, expected, strict=True):
        yield from each(mine, wanted, f" compiled by {subject.compiler}")
    called = _count_calls(mixer.train(trains), x, keep)
    return Finding(
        f"{_share(tracing, called)}{subject.compiler}, {tracing}",
        {"operations": called, "compiled": tracing.operations},
    )


_NOT_TESTED = "not tested, because torch's compiler fails where the same call works without it"


def _share(tracing: _Tracing, called: int) -> str:
    """A word of warning where little or nothing was compiled."""
    if tracing.failure:
        return f"nothing was compiled, torch's compiler leaves it as it is: {tracing.failure}; "
    if called > 1 and tracing.operations < COMPILED * called:
        return f"hardly anything was compiled: {tracing.operations} of {called} operations; "
    return ""


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
        self.graphs = 0
        self.breaks = 0
        self.fallbacks = 0
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
        counters = self.known.counters
        self.breaks = counters["graph_break"].total()
        frames = counters["frames"]
        self.fallbacks = frames["total"] - frames["ok"]
        torch._dynamo.reset()

    def __call__(self, graph: Any, inputs: Any) -> Any:
        calls = []
        for part in graph.modules():
            if isinstance(part, GraphModule):
                calls += [node for node in part.graph.nodes if node.op.startswith("call_")]
        self.graphs += 1
        if len(calls) > 1:  # one alone is as it was
            for node in calls:
                self.operations += self.own in (node.stack_trace or self.own)
        return self.compile(graph, inputs)

    def __str__(self) -> str:
        counts = {"graph": self.graphs, "graph break": self.breaks, "fallback": self.fallbacks}
        words = []
        for name, count in counts.items():
            words.append(f"{count} {name}{'' if count == 1 else 's'}")
        return ", ".join(words)


class _Calls(TorchFunctionMode):
    """Counts calls of torch that make tensors."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += bool(tensors_of(result))
        return result


def _count_calls(mixer: TokenMixer, x: Tensor, keep: Tensor) -> int:
    """Of torch, in the mixer's own code."""
    calls = _Calls()
    own = mixer.core if isinstance(mixer, AttentionMixer) else mixer

    def start(*_: Any) -> None:
        calls.__enter__()

    def end(*_: Any) -> None:
        calls.__exit__(None, None, None)

    before = own.register_forward_pre_hook(start)
    behind = own.register_forward_hook(end)
    outputs(mixer, x, keep)
    before.remove()
    behind.remove()
    return calls.count
