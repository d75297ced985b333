"""What tests and pages know of a built-in mixer beside its descriptor: `ABOUT` of its `about.py`.

Nothing that trains imports these files. What each way of building claims is a second record:
whoever weakens a fact, or lets a check be excluded, has to change it there too.

Letters: B batch, L length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad.plugin import Facts

Params = Mapping[str, Any]
Result = tuple[Tensor, dict[str, Tensor]]
"""The output, and the extra losses."""

Defined = Callable[[Any, Any, Tensor, Tensor | None], Result]
"""Mixer, its config, x (B, L, D) and keep (B, L) to what it shall give."""

HEADS = 3
"""Of the mixers that are held against their oracles."""

LENGTHS: Sequence[tuple[int, Params]] = ((71, {}), (520, {}))
"""Of sequences whose operations are compared on a GPU, at the defaults."""

CAUSAL = {"causal": True}
UNKNOWN = "the length of the longest sequence is not known"

CAUSALITY = {"causal-outputs", "causal-gradients", "causal-lengths"}
CACHE = {"cache-prefill", "cache-step", "cache-functional", "cache-beams"}
PADDING = {"padding-content", "padding-amount"}
LOSSES = {"losses"}
CROSS = {"cross", "cross-cache"}
NEITHER = {"state-declared", "carry"}
"""No built-in keeps state, and few hand anything on."""

TOKEN_MIXER = NEITHER | CROSS
SEES_ALL = CAUSALITY | CACHE

PADDED: dict[str, Any] = {"padding_invariant": True}
SET: dict[str, Any] = {"padding_invariant": True, "permutation_equivariant": True}
BOUND: dict[str, Any] = {**PADDED, "max_length": "site"}
L_LOG_L: dict[str, Any] = {"complexity": "L log L", "leak": 1e-12}


@dataclass(frozen=True)
class Expected:
    """What one way of building claims, and the checks that do not apply to it."""

    facts: Facts
    excluded: frozenset[str]


Rows = dict[str, Expected]


def ways(*names: str, without: set[str], **facts: Any) -> Rows:
    """Ways of building that claim the same. What is excluded follows from no fact here: it is
    written down.
    """
    return {name: Expected(Facts(**facts), frozenset(without)) for name in names}


def unordered(*variants: str, without: set[str] = LOSSES, **facts: Any) -> Rows:
    """Token mixers that see all positions."""
    across = CROSS if facts.get("cross") else set()
    return ways(*variants, without=(TOKEN_MIXER - across) | SEES_ALL | without, **facts)


def causal(*variants: str, without: set[str] = LOSSES, **facts: Any) -> Rows:
    """Token mixers that are causal, with a decode cache."""
    return ways(
        *(f"{variant}, causal" for variant in variants), without=TOKEN_MIXER | without, **facts
    )


def handing_on(*variants: str, **facts: Any) -> Rows:
    """Token mixers that see all positions and give the next layer something."""
    return ways(*variants, without=(TOKEN_MIXER - {"carry"}) | SEES_ALL | LOSSES, **facts)


def both(*variants: str, **facts: Any) -> Rows:
    """Token mixers that are causal where the site asks, with a decode cache then."""
    facts = {"causal": "optional", **facts}
    return unordered(*variants, **facts) | causal(*variants, **facts)


def core(*variants: str, without: set[str] | None = None, **facts: Any) -> Rows:
    """Attention cores that see all positions."""
    return ways(*variants, without=NEITHER | LOSSES | SEES_ALL | (without or set()), **facts)


def features(*variants: str, across: bool = True, **facts: Any) -> Rows:
    """Attention cores that are causal where the site asks, and else let one sequence see another.

    Args:
        across: whether they offer decoding across two sequences.
    """
    facts = {"causal": "optional", "cross": True, **facts}
    running = causal(*variants, **facts)
    return core(*variants, without=None if across else {"cross-cache"}, **facts) | running


def sliding(*variants: str, **facts: Any) -> Rows:
    """Attention cores that are causal where the site asks, with a decode cache then, and take
    one sequence alone.
    """
    facts = {"causal": "optional", **facts}
    return core(*variants, without=CROSS, **facts) | causal(*variants, **facts)


@dataclass(frozen=True)
class Oracle:
    """What a mixer is compared with.

    Attributes:
        define: what the mixer computes, by `naive.py`.
        settings: each as it is where it is not causal.
        causal: each where it is.
        tolerance: of what is compared, absolute and relative.
        of_gradients: the same for gradients.
        max_len: of the longest sequence.
        lengths: of the sequences.
        gaps: whether padding may stand between real tokens.
    """

    define: Defined
    settings: Sequence[Params] = ()
    causal: Sequence[Params] = ()
    tolerance: float = 1e-12
    of_gradients: float = 1e-11
    max_len: int = 32
    lengths: Sequence[int] = (1, 2, 13, 32)
    gaps: bool = True


@dataclass(frozen=True)
class Refused:
    """Settings at a place, and what is said of them: a pattern."""

    message: str
    params: Params = field(default_factory=dict)
    site: Params = field(default_factory=dict)

    def __str__(self) -> str:
        place = f" at {self.site}" if self.site else ""
        return f"{self.params}{place}"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a kernel loads and stores, each a share of the numbers of its first tensor.

    Attributes:
        given: arguments by name, of float32.
        forward: loaded and stored by a call.
        backward: by its gradients; None: they are not counted.
        patched: limits of the kernel by their full names, and what they are meanwhile.
    """

    given: Params
    forward: tuple[float, float]
    backward: tuple[float, float] | None = None
    patched: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A Triton kernel of an operation, and what tests without a GPU give it.

    Attributes:
        operation: that it is an implementation of.
        given: arguments by name that it takes, with tensors on the CPU. Other arguments stand in
            the place of some of these.
        masked: further arguments that it takes: masks.
        taken: others.
        beyond: arguments that it leaves to another form.
        instead: that form.
        refused: arguments that nothing can compute, and what is said of them: a pattern.
        call: the operation's arguments, made of those by name.
        start: starts the kernel for tokens of a dtype and a shape, with settings.
        compiled: settings by name, and how many kinds of kernels each starts at most, gradients
            included.
        smallest: shape that it takes.
        moved: by name: what it loads and stores, the figures of its docstring.
    """

    operation: Operation
    given: Params
    masked: Params = field(default_factory=dict)
    taken: Sequence[Params] = ()
    beyond: Sequence[Params] = ()
    instead: str = "reference"
    refused: Sequence[tuple[Params, str]] = ()
    call: Callable[[Params], Sequence[Any]] = lambda given: tuple(given.values())
    start: Callable[..., Tensor] | None = None
    compiled: Mapping[str, tuple[Params, int]] = field(default_factory=dict)
    smallest: Sequence[int] = (1, 1, 1)
    moved: Mapping[str, Moved] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class About:
    """What tests and pages know of a mixer.

    Attributes:
        ways: what each way of building claims.
        operations: ways with an operation of several implementations that the CPU can run.
        follows: parameters, and facts that follow from them.
        further: settings that are tried beside the variants.
        oracles: what it is held against; "" or what differs, to it.
        searched: whether there is something to search.
        small: parameters that fit 9 tokens.
        needs_length: whether it is built only where the longest sequence is known.
        refused_settings: what cannot work anywhere.
        refused_places: what cannot work where the mixer would stand.
        refused_builds: what cannot be built.
        accepted: settings and places at their limits.
        multiplies: whether it has a product of its own beside the projections.
        casts: whether it gives its tokens the format of autocast itself.
        kernels: in Triton; one that several mixers share stands with the first of them.
        compared: lengths and parameters with which its operations are compared on a GPU, one by
            one.
        first: what of its operations runs on CUDA where nothing is forced.
        fla: operations that flash-linear-attention computes where the mixer is causal.
    """

    ways: Rows
    operations: Collection[str] = ()
    follows: Sequence[tuple[Params, Mapping[str, Any]]] = ()
    further: Sequence[Params] = ()
    oracles: Mapping[str, Oracle] = field(default_factory=dict)
    searched: bool = True
    small: Params = field(default_factory=dict)
    needs_length: bool = False
    refused_settings: Sequence[Refused] = ()
    refused_places: Sequence[Refused] = ()
    refused_builds: Sequence[Refused] = ()
    accepted: Sequence[tuple[Params, Params]] = ()
    multiplies: bool = True
    casts: bool = False
    kernels: Sequence[Kernel] = ()
    compared: Sequence[tuple[int, Params]] = ()
    first: Mapping[str, str] = field(default_factory=dict)
    fla: Sequence[str] = ()


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same random numbers for each shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def mask(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    """The first token is padding. Rows start at odd addresses, with gaps between them."""
    whole = torch.ones(*shape[:-1], shape[-1] + 3, dtype=dtype)
    whole[..., 3] = 0
    return whole[..., 3:]


def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
    """Tokens of a kernel that is compiled and not run."""
    return torch.zeros(shape, dtype=dtype, requires_grad=True)
