"""Counts what a pass, and a training step, costs: FLOPs, and bytes read and written, operation by
operation.

Counted where torch dispatches to a kernel, so autograd's backward pass and custom autograd
functions are seen. Bytes are what each operation has to touch: its inputs once, its outputs once, a
broadcast dimension not at all; a fused kernel's inner results do not appear. Reading a number with
`.item()` is free. Functions compiled with torch.compile run as they were written: Dynamo steps
aside under a dispatch mode.

Not seen: what leaves torch (numpy, ctypes, Python lists of numbers). That is noticed, named and
never called proven. Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._C._dynamo.eval_frame import _FrameExecStrategy as FrameExecStrategy
from torch._C._dynamo.eval_frame import set_code_exec_strategy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.cost.formulas import stored, tensors_in
from subquad.cost.operations import SPARSE, Rule, rule_of
from subquad.errors import UserError
from subquad.nn import Batch, as_output
from subquad.nn.kernels import counted

_SMALL = 64
"""A tensor of so few numbers may be handed to Python: a length, a step size, one number a sample
or head.
"""

_FEW = 2
"""Samples that a step is counted with, and once more with one sample more; some layers need more
than one.
"""


@dataclass(kw_only=True)
class Count:
    """The cost of one pass, as it is counted.

    Attributes:
        flops: floating-point operations.
        moved: bytes read and written.
        moved_by: the same of each operation, by its name.
        operations: how many there were, views left out.
        largest: elements of the largest tensor that each operation made, by the operation's name.
        unknown: what could not be counted, by name.
        has_entered: whether numbers came from Python or NumPy, where they may have been worked out.
    """

    flops: int = 0
    moved: int = 0
    operations: int = 0
    moved_by: Counter[str] = field(default_factory=Counter)
    largest: Counter[str] = field(default_factory=Counter)
    unknown: tuple[str, ...] = ()
    has_entered: bool = False

    @property
    def peak(self) -> int:
        """Elements of the largest tensor that was made."""
        return max(self.largest.values(), default=0)

    def __add__(self, other: Count) -> Count:
        return Count(
            flops=self.flops + other.flops,
            moved=self.moved + other.moved,
            moved_by=self.moved_by + other.moved_by,
            operations=self.operations + other.operations,
            largest=Counter(self.largest) | Counter(other.largest),
            unknown=tuple(sorted({*self.unknown, *other.unknown})),
            has_entered=self.has_entered or other.has_entered,
        )

    def note_unknown(self, name: str) -> None:
        self.unknown = tuple(sorted({*self.unknown, name}))

    def note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Add one operation that ran."""
        name, rule, places = _known(func)
        if rule and rule.traffic == "none":
            return
        given = tensors_in(args)
        made = tensors_in(out)
        if any(tensor.layout != torch.strided for tensor in given + made):
            rule = SPARSE.get(name.removeprefix("aten::"))
            name = f"{name} of COO tensors"
        if rule is None:
            self.note_unknown(name)
        else:
            changed = tensors_in([args[place] for place in places if place < len(args)])
            written = made or changed or tensors_in([*kwargs.values()])
            moved = _moved(rule, changed, given, written)
            self.flops += rule.flops(args, out)
            self.moved += moved
            self.moved_by[name] += moved
        self.operations += 1
        for tensor in made:
            for part in stored(tensor):
                self.largest[name] = max(self.largest[name], part.numel())


@contextmanager
def counting() -> Iterator[Count]:
    """Count what runs in here."""
    count = Count()
    with counted(), _Borders(count), _Dispatch(count):
        yield count


def count_pass(
    mixer: nn.Module, x: Tensor, *, keep: Tensor | None = None, backward: bool = True
) -> Count:
    """Count one call of a mixer, with its backward pass to the input and all parameters.

    The gradient of every output, extra losses that carry a weight included, is 1. Each `.grad` of
    the mixer stays as it was.

    Args:
        x: (B, L, D).
        keep: (B, L) bool, True = real token.
        backward: whether to count it.
    """
    x = x.detach().requires_grad_(backward)
    with counting() as forward, torch.set_grad_enabled(backward):
        out = as_output(mixer(x, keep=keep))
    if not backward:
        return forward
    weights = getattr(mixer, "loss_weights", {})
    losses = [loss for name, loss in out.losses.items() if weights.get(name)]
    ends = [result for result in (out.out, *losses) if result.requires_grad]
    ones = [torch.ones_like(end) for end in ends]
    kept = {parameter: parameter.grad for parameter in mixer.parameters()}
    mixer.zero_grad(set_to_none=True)
    with counting() as back:
        torch.autograd.backward(ends, ones)  # reentrant checkpoints know no other way
    for parameter, grad in kept.items():
        parameter.grad = grad
    return forward + back


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a training step.

    Attributes:
        parameters: trainable numbers in the model.
        flops_per_step: floating-point operations, forward and backward over the global batch; None
            where not known.
        bytes_per_step: bytes that these operations read and write; None where not known.
        uncounted: why it is not known: the operations that nobody can count, or what stopped the
            pass.
    """

    parameters: int
    flops_per_step: int | None = None
    bytes_per_step: int | None = None
    uncounted: tuple[str, ...] = ()


def step_cost(
    model: nn.Module,
    objective: Callable[[Batch], Tensor],
    example: Callable[[int], Batch],
    batch_size: int,
) -> Cost:
    """Count the forward and backward pass over a global batch, without the optimiser's update.

    Every element-wise operation, FFT, convolution, matrix product and attention counts, see
    `subquad.cost.operations`. The passes run at full length with `_FEW` samples and with one more.
    As samples have nothing to do with each other, each one adds the same, and what is computed of
    the weights alone comes once: so the whole batch follows. That is exact, but for the rounding of
    each n log n to a whole number and for reads of a table (embeddings, say) that a few samples do
    not read whole. How the batch is cut among ranks and into micro-batches makes no difference.

    Args:
        model: on the device where it is to be counted; its `.grad`s are None afterwards.
        objective: the loss of a batch, a scalar, by a pass through the model.
        example: makes a batch of so many samples, of full length.
        batch_size: samples of the global batch.

    Raises:
        UserError: a part of the model refuses its place, as no training step could be made either.
    """
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    parameters = sum(weight.numel() for weight in weights)
    try:
        few = _pass(model, objective, example(min(_FEW, batch_size)))
        more = few
        if batch_size > _FEW:
            more = _pass(model, objective, example(_FEW + 1))
    except UserError:
        raise
    except Exception as error:
        # a plugin's: a kernel that needs a GPU, a layer that needs more samples, ...
        text = " ".join(str(error).split())
        return Cost(parameters=parameters, uncounted=(f"{type(error).__name__}: {text[:200]}",))
    unknown = (few + more).unknown
    if unknown:
        return Cost(parameters=parameters, uncounted=unknown)
    extra = max(batch_size - _FEW, 0)
    return Cost(
        parameters=parameters,
        flops_per_step=few.flops + extra * (more.flops - few.flops),
        bytes_per_step=few.moved + extra * (more.moved - few.moved),
    )


def _pass(model: nn.Module, objective: Callable[[Batch], Tensor], batch: Batch) -> Count:
    with counting() as count:
        objective(batch).backward()
    model.zero_grad(set_to_none=True)
    return count


@functools.cache
def _known(func: Any) -> tuple[str, Rule | None, list[int]]:
    """An operator's name and rule, and which of its arguments it changes."""
    schema = func._schema
    changed = [
        place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info and argument.alias_info.is_write
    ]
    return schema.name, rule_of(func), changed


def _moved(rule: Rule, changed: list[Tensor], given: list[Tensor], written: list[Tensor]) -> int:
    """Bytes read and written."""
    reads = []
    scattered = 0
    for tensor in given:
        size = _touched(tensor)
        is_changed = any(tensor is other for other in changed)
        if not is_changed:
            scattered = max(scattered, size)
        if not (is_changed and rule.overwrites):
            reads.append(size)
    writes = sum(map(_touched, written))
    if rule.traffic == "gather" and reads:
        reads[0] = min(reads[0], writes)
    if rule.traffic == "scatter" and changed:
        writes = min(reads[0], scattered)
        reads[0] = writes
    return writes + sum(reads)


def _touched(x: Tensor) -> int:
    """Bytes of a tensor's own elements: broadcast dimensions (stride 0) and overlaps are held
    once.
    """
    if x.layout != torch.strided:
        return sum(map(_touched, stored(x)))
    if x.is_contiguous():
        return x.nbytes
    own = x.element_size()
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if stride or not size:
            own *= size
    return min(own, x.untyped_storage().nbytes())


_PLAIN = {Tensor, torch.nn.Parameter}


class _Dispatch(TorchDispatchMode):
    """Counts each operation.

    torch would wrap `__torch_dispatch__`, so that Dynamo leaves it alone where a compiled function
    calls it; the first call then imports Dynamo, which takes longer than most counts. Its code is
    marked instead, which is what the wrapper comes to.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, count: Count):
        super().__init__()
        self.count = count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _PLAIN.issuperset(types):  # it comes again, in its own tensors
            return NotImplemented
        # a higher-order operator: what it runs inside is hidden
        if not isinstance(func, torch._ops.OpOverload):
            self.count.note_unknown(str(func))
            return func(*args, **kwargs)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self.count.note(func, args, kwargs, out)
        return out


_SKIPPED = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
set_code_exec_strategy(_Dispatch.__torch_dispatch__.__code__, _SKIPPED)


@functools.cache
def _is_composite(func: Any) -> bool:
    """Made of other operations, which are counted instead."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


class _Borders(TorchFunctionMode):
    """Notes tensors that leave torch, where what is done with them cannot be counted, and numbers
    that come from there.
    """

    entrances = (torch.tensor, torch.as_tensor, torch.asarray)
    names = ("numpy", "__array__", "__dlpack__", "tolist", "data_ptr")

    def __init__(self, count: Count):
        super().__init__()
        self.count = count
        self.exits = {getattr(Tensor, name): name for name in self.names}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = self.exits.get(func)
        if name and args[0].numel() > _SMALL:
            self.count.note_unknown(f"Tensor.{name}")
        result = func(*args, **kwargs)
        if func in self.entrances and result.numel() > _SMALL:
            self.count.has_entered |= not tensors_in([*args, *kwargs.values()])
        return result
