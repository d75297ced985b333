"""Calls of a mixer, in evaluation and in training, with their gradients.

Shape letters: B batch, L length, D model width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from subquad.nn import MixerOutput, TokenMixer, as_output
from subquad_check.meter import CheckFailed, Comparison, finite, looked, word

Mask = Tensor | None
"""(B, L), true at real tokens; None where all are."""
Tensors = dict[str, Tensor]

MODES = {"evaluation": False, "training": True}
"""Most properties have to hold in both."""


def padded(length: int, real: Sequence[int], *, lead: Sequence[int] = ()) -> Tensor:
    """Masks (B, L): `real` tokens of each sample after `lead` padded ones, none where that is
    empty.
    """
    place = torch.arange(length)
    start = torch.tensor(lead or [0] * len(real))[:, None]
    return (place >= start) & (place < start + torch.tensor(real)[:, None])


def call(
    mixer: Callable[..., Any],
    x: Tensor,
    keep: Mask = None,
    *,
    seed: int = 0,
    autocast: bool = False,
    dropout: bool = True,
) -> MixerOutput:
    """What the mixer returns.

    Args:
        seed: random numbers that it draws start from it.
        autocast: to bf16, as the engine uses it: around the forward pass only.
        dropout: False: torch's dropout does nothing.
    """
    # `torch.manual_seed` would write down the stack for each kind of device that is not in use,
    # which takes a fifth of a certificate's time
    (torch.default_generator if x.device.type == "cpu" else torch).manual_seed(seed)
    # what `afresh` makes is made in training only
    looked().note(
        length=x.shape[1],
        format="bf16 autocast" if autocast else word(x.dtype),
        mode="training" if getattr(mixer, "training", True) else "evaluation",
    )
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        result = as_output(mixer(x, keep=keep))
        # to look at each function takes longer than many a call
        if dropout or not _has_drawn(seed):
            return result
        with NoDropout():
            return as_output(mixer(x, keep=keep))


def _has_drawn(seed: int) -> bool:
    """Whether torch's generator is no longer as this seed makes it, as which it is left."""
    after = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    return not torch.equal(after, torch.get_rng_state())


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Into a number format, complex numbers into that of equal precision: `Module.to` would make
    them real.
    """

    def converted(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(dtype.to_complex())
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    module._apply(converted)


def afresh(mixer: nn.Module) -> Callable[..., Any]:
    """The mixer for one call, which leaves its buffers as they are in training, too, and what it
    notes of them: how far a table in a buffer goes.
    """
    buffers = dict(mixer.named_buffers())
    if not buffers or not mixer.training:
        return mixer

    def called(x: Tensor, *, keep: Mask) -> Any:
        kept = {name: buffer.clone() for name, buffer in buffers.items()}
        noted = {module: dict(vars(module)) for module in mixer.modules()}
        try:
            return functional_call(mixer, kept, (x,), {"keep": keep})
        finally:
            for module, attributes in noted.items():
                vars(module).clear()
                vars(module).update(attributes)

    return called


def outputs(mixer: nn.Module, x: Tensor, keep: Mask = None, *, dropout: bool = True) -> Tensor:
    """(B, L, D), without a trace in the mixer's buffers, and detached from the graph that
    training makes.
    """
    with torch.set_grad_enabled(mixer.training):
        return call(afresh(mixer), x, keep, dropout=dropout).out.detach()


class Intercepting(TorchFunctionMode):
    """Inside, torch's functions return what another makes of their result and arguments."""

    def __init__(self, seen: Callable[[Any, Any], Any]):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.seen(func(*args, **(kwargs or {})), args)


class NoDropout(TorchFunctionMode):
    """Inside, torch's dropout does nothing, nor where a checkpoint computes once more, which no
    mode reaches.
    """

    def __enter__(self) -> NoDropout:
        self._replaced = contextlib.ExitStack()
        for name, func in list(vars(functional).items()):
            if "dropout" in name or name == _ATTENTION:
                self._replaced.enter_context(
                    mock.patch.object(functional, name, partial(_undropped, func))
                )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._replaced.close()
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _undropped(func, *args, **(kwargs or {}))


_ATTENTION = "scaled_dot_product_attention"


def _undropped(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of torch without its dropout."""
    name = getattr(func, "__name__", "")
    if "dropout" in name and args:
        return args[0]
    if name == _ATTENTION:
        behind = dict(zip(("dropout_p", "is_causal"), args[4:], strict=False))
        return func(*args[:4], **{**kwargs, **behind, "dropout_p": 0.0})
    return func(*args, **kwargs)


def modes(mixer: TokenMixer) -> Iterator[str]:
    """The modes' names, each after putting the mixer into it; it ends in evaluation."""
    for mode, training in MODES.items():
        mixer.train(training)
        yield mode
    mixer.eval()


def settled_modes(mixer: TokenMixer, x: Tensor) -> Iterator[str]:
    """`modes` without training where the mixer draws random numbers there besides torch's dropout.

    Without these and without dropout, sequences of two shapes can be compared.
    """
    for mode in modes(mixer):
        if mixer.training and draws(mixer, x):
            looked().note(skipped=mode)
        else:
            yield mode


class Form(NamedTuple):
    """A call in another form.

    Attributes:
        x, keep: its tokens and mask.
        own, plain: which of its outputs have to equal which of the plain call's.
    """

    x: Tensor
    keep: Mask = None
    own: Any = ...
    plain: Any = ...


def alike(
    mixer: TokenMixer,
    x: Tensor,
    keep: Mask,
    forms: Mapping[str, Form],
    *,
    about: str = "",
    dropout: bool = True,
) -> Iterator[Comparison]:
    """Outputs of a call in other forms against those of the plain one, in both modes.

    Args:
        forms: by what is special about them.
        about: what is special about all of them.
        dropout: False: see `settled_modes`.
    """
    for mode in modes(mixer) if dropout else settled_modes(mixer, x):
        expected = outputs(mixer, x, keep, dropout=dropout)
        for what, form in forms.items():
            got = outputs(mixer, form.x, form.keep, dropout=dropout)
            yield f"output {what} in {mode}{about}", got[form.own], expected[form.plain], expected


def draws(mixer: TokenMixer, x: Tensor) -> bool:
    """Whether it draws random numbers besides torch's dropout in the mode in which it is."""
    outputs(mixer, x[:1], dropout=False)
    return _has_drawn(0)  # the seed of such a call


def normal(shape: Sequence[int], seed: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def beginning(x: Tensor, length: int) -> Tensor:
    """The first tokens alone."""
    return x[:, :length].contiguous()


def changed(x: Tensor, where: Tensor, size: float = 3.0) -> Tensor:
    """Tokens (B, L, D) with others, so much larger, where a mask (B, L) says so."""
    return torch.where(where[..., None], size * normal(x.shape, 3).to(x), x)


def weighted(x: Tensor) -> Tensor:
    """`x` times fixed random numbers: the gradient of a sum of such has nothing that cancels."""
    return x * normal(x.shape, 11).to(x)


def total(result: MixerOutput, chosen: Tensor | slice = slice(None)) -> Tensor:
    """A scalar that the chosen outputs and all extra losses count in.

    Args:
        chosen: (B, L) bool, all where it is not given.
    """
    losses = [i * loss.sum() for i, loss in enumerate(result.losses.values(), 1)]
    return sum(losses, weighted(result.out)[chosen].sum())


def passes(what: str, mixer: TokenMixer, x: Tensor, keep: Mask, *, autocast: bool = False) -> None:
    """A forward pass in evaluation, and one with its backward pass in training.

    Raises:
        CheckFailed: the output has another shape, or something is not finite.
    """
    for mode in modes(mixer):
        training = mixer.training
        tokens = x.clone().requires_grad_(training)
        with torch.set_grad_enabled(training):
            result = call(afresh(mixer), tokens, keep, autocast=autocast)
        where = f"{what} in {mode}: output"
        if result.out.shape != x.shape:
            raise CheckFailed(f"{where} {tuple(result.out.shape)}, expected {tuple(x.shape)}")
        finite(f"{where} and losses", result.out, *result.losses.values())
        if training:
            grads = gradients(total(result), {"tokens": tokens, **trainable(mixer)})
            finite(f"{what}: gradients", *grads.values())


def trainable(mixer: nn.Module) -> dict[str, nn.Parameter]:
    """Weights with a gradient, by name; not those without a number in them."""
    return {
        name: weight
        for name, weight in mixer.named_parameters()
        if weight.requires_grad and weight.numel()
    }


def values_and_gradients(mixer: nn.Module, x: Tensor, keep: Tensor, *, seed: int = 0) -> Tensors:
    """Output and extra losses, and gradients of their weighted sum by tokens and weights; by
    name.
    """
    x = x.clone().requires_grad_()
    result = call(mixer, x, keep, seed=seed)
    found = {"output": result.out.detach()}
    for name, loss in result.losses.items():
        found[f"loss {name!r}"] = loss.detach()
    return found | gradients(total(result), {"tokens": x, **trainable(mixer)})


def slope(
    function: Callable[[], float],
    inputs: Sequence[Tensor],
    directions: Sequence[Tensor],
    step: float,
) -> float:
    """The derivative along a direction by a step ahead and one behind; the inputs come back to
    where they were.
    """
    before = [tensor.detach().clone() for tensor in inputs]
    apart = 0.0
    for sign in (1, -1, 0):
        with torch.no_grad():
            for tensor, known, direction in zip(inputs, before, directions, strict=True):
                tensor.copy_(known + sign * step * direction)
        if sign:
            apart += sign * function()
    return apart / (2 * step)


@torch.no_grad()
def decoded(mixer: TokenMixer, x: Tensor, start: int) -> Tensor:
    """Outputs (B, L, D) in decoding: `start` tokens by a prefill, each later one by a step."""
    first, cache = mixer.prefill(beginning(x, start))
    outs = [first]
    for token in x[:, start:].unbind(1):
        out, cache = mixer.step(token.contiguous(), cache)
        outs.append(out[:, None])
    return torch.cat(outs, 1)


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors among a tree's leaves."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def gradients(value: Tensor, inputs: Mapping[str, Tensor], grad: Tensor | None = None) -> Tensors:
    """See `backward`; by names as "gradient by tokens", zeros where there is none."""
    return {
        f"gradient by {name.removeprefix('_orig_mod.')}": (
            torch.zeros_like(inputs[name]) if found is None else found
        )
        for name, found in backward(value, inputs, grad).items()
    }


def input_gradient(mixer: nn.Module, x: Tensor, keep: Mask, watched: Tensor) -> Tensor:
    """Gradient in training by tokens of a weighted sum of the outputs that are watched, (B, L)
    bool.
    """
    x = x.detach().clone().requires_grad_()
    value = weighted(call(afresh(mixer.train()), x, keep).out)[watched].sum()
    return gradients(value, {"tokens": x})["gradient by tokens"]


def backward(
    value: Tensor, inputs: Mapping[str, Tensor], grad: Tensor | None = None
) -> dict[str, Tensor | None]:
    """Gradients by name, as training takes them: reentrant checkpoints know no other way. None
    where the value does not depend on an input.

    Args:
        inputs: leaves of the graph; their `grad` stays as it was.
        grad: by the value, if that is no scalar.
    """
    if not value.requires_grad:
        return dict.fromkeys(inputs)
    before = {name: tensor.grad for name, tensor in inputs.items()}
    for tensor in inputs.values():
        tensor.grad = None
    torch.autograd.backward(value, grad, retain_graph=True)
    found = {name: tensor.grad for name, tensor in inputs.items()}
    for name, tensor in inputs.items():
        tensor.grad = before[name]
    return found
