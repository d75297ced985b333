"""Any torch module that maps (B, L, D) to (B, L, D), as a token mixer: no base class, no facts.

What it is given is found by the names of the parameters of its constructor and of its forward.

Shape letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, ClassVar

import torch
from pydantic import create_model
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn.mixer import AttentionCore, MixerOutput, TokenMixer
from subquad.plugin import Facts, Misfit, MixerConfig, Site, param

WIDTHS = (
    *("dim", "d_model", "model_dim", "embed_dim", "embedding_dim", "emb_dim", "n_embd"),
    *("hidden_size", "hidden_dim", "input_size", "input_dim", "width", "channels"),
)
HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads")
LENGTHS = (
    *("max_len", "max_length", "max_seq_len", "max_seq_length", "max_sequence_length"),
    *("seq_len", "seq_length", "sequence_length", "max_position_embeddings"),
)
CAUSAL = ("causal", "is_causal")
KEPT = ("keep", "mask", "attention_mask", "input_mask", "keep_mask")
"""Masks (B, L) that are True at real tokens."""
PADDED = ("key_padding_mask", "src_key_padding_mask", "padding_mask")
"""Masks (B, L) that are True at padding."""
MASKS = (*PADDED, *KEPT)
TRIPLES = (("query", "key", "value"), ("queries", "keys", "values"), ("q", "k", "v"))
"""Names of the first parameters of a forward to which all three are given the tokens."""
FIXED = {"batch_first": True, "need_weights": False}
"""What is given wherever there is a parameter of this name."""

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_OWN = {*WIDTHS, *HEADS, *LENGTHS, *CAUSAL, *FIXED, "device", "dtype"}


def is_bare(thing: Any) -> bool:
    """Whether it is a class of torch modules that knows nothing of subquad."""
    if not isinstance(thing, type) or not issubclass(thing, nn.Module):
        return False
    return not issubclass(thing, (TokenMixer, AttentionCore))


class BareConfig(MixerConfig):
    """What else a constructor takes; what has no default there is None until it is given."""

    needed: ClassVar[tuple[str, ...]] = ()
    owner: ClassVar[str]

    def check(self, site: Site) -> None:
        super().check(site)
        for name in self.needed:
            if getattr(self, name, None) is None:
                raise Misfit(
                    f"{self.owner}.__init__ needs {name} and has no default: give it one, or a "
                    f"value with the mixer, as in {name}=1",
                    name,
                )


class BareMixer(TokenMixer):
    """A module of somebody's class as a mixer. Without facts in its class it claims nothing.

    Attributes:
        bare: the class.
        claims: whether the class has facts.
    """

    bare: ClassVar[type[nn.Module]]
    claims: ClassVar[bool]

    def __init__(self, config: MixerConfig, site: Site):
        super().__init__()
        self.module = self.bare(**_arguments(self.bare, config, site))
        takes = _parameters(self.bare, "forward")
        self._copies = _copies(takes)
        self._fixed = _fixed(takes)
        self._mask = _first(takes, MASKS)
        self._needs_mask = False
        if self._mask:
            self._needs_mask = _is_needed(takes[self._mask])

    def forward(
        self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None
    ) -> Tensor | MixerOutput:
        given: dict[str, Any] = dict(self._fixed)
        if keep is None and self._needs_mask:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if keep is not None and self._mask:
            # A sample without a real token would be a softmax over nothing.
            is_empty = ~keep.any(1, keepdim=True)
            keep = keep | is_empty
            given[self._mask] = ~keep if self._mask in PADDED else keep
        tokens = [x] * self._copies
        result = self.module(*tokens, **given)
        out = result[0] if isinstance(result, (tuple, list)) else result
        got: Any = f"a {type(out).__name__}"
        if isinstance(out, Tensor):
            if out.shape == x.shape:
                return result if isinstance(result, MixerOutput) else out
            got = tuple(out.shape)
        raise PluginError(
            f"{self.bare.__name__}.forward returns {got} "
            f"for tokens {tuple(x.shape)}: a mixer "
            "returns a tensor of their shape (batch, length, width), "
            "or a tuple that starts with it"
        )


@cache
def bare_mixer(cls: type[nn.Module]) -> type[BareMixer]:
    """The mixer of somebody's class; `fault_of` says why there may be none."""
    takes = _parameters(cls)
    claimed = getattr(cls, "facts", None)
    at_most = "site" if _first(takes, LENGTHS) else None
    members = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "bare": cls,
        "claims": claimed is not None,
        "facts": claimed or Facts(complexity=None, max_length=at_most),
        "Config": _config(cls, takes),
    }
    for name in ("api", "paper", "variants"):
        if hasattr(cls, name):
            members[name] = getattr(cls, name)
    return type(cls.__name__, (BareMixer,), members)


def fault_of(cls: type[nn.Module]) -> str:
    """Why a class cannot be a mixer as it is; "" where it can."""
    if not _first(_parameters(cls), WIDTHS):
        return (
            f"{cls.__name__}.__init__ takes no width: call it dim, d_model, embed_dim, hidden_size "
            "or input_size, or extend subquad.nn.TokenMixer"
        )
    takes = _parameters(cls, "forward")
    others = list(takes.values())[_copies(takes) :]
    needed = [entry.name for entry in others if _is_needed(entry) and entry.name not in MASKS]
    if needed:
        return (
            f"{cls.__name__}.forward needs {', '.join(needed)}: a mixer is called with tokens "
            "(batch, length, width), and with a mask where it takes one of "
            f"{', '.join(MASKS)}"
        )
    return ""


def _copies(takes: Iterable[str]) -> int:
    """How many of the first parameters of a forward are given the tokens."""
    if tuple(takes)[:3] in TRIPLES:
        return 3
    return 1


def _fixed(takes: Iterable[str]) -> dict[str, bool]:
    return {name: value for name, value in FIXED.items() if name in takes}


def takes_causal(cls: type[nn.Module]) -> bool:
    """Whether it is told if it must see no later position."""
    return bool(_first(_parameters(cls), CAUSAL))


def takes_mask(cls: type[nn.Module]) -> bool:
    """Whether it is told which tokens are real."""
    return bool(_first(_parameters(cls, "forward"), MASKS))


def _is_needed(entry: Parameter) -> bool:
    return entry.default is Parameter.empty and entry.kind in _NAMED


def _first(takes: Iterable[str], names: Iterable[str]) -> str:
    """The first of some names that is taken; "" where none is."""
    for name in names:
        if name in takes:
            return name
    return ""


def _parameters(cls: type, method: str = "__init__") -> dict[str, Parameter]:
    """What a method takes by name; where it hands on **kwargs, also what those of bases take."""
    found: dict[str, Parameter] = {}
    owners = [base for base in cls.__mro__ if method in vars(base)]
    for owner in owners:
        _, *entries = signature(vars(owner)[method]).parameters.values()
        for entry in entries:
            if entry.kind not in _NAMED:
                continue
            # What a base needs besides a width, the class itself gives it.
            if owner is owners[0] or entry.name in _OWN or not _is_needed(entry):
                found.setdefault(entry.name, entry)
        if Parameter.VAR_KEYWORD not in [entry.kind for entry in entries]:
            break
    return found


def _config(cls: type[nn.Module], takes: Mapping[str, Parameter]) -> type[BareConfig]:
    """Its parameters: what else the constructor takes, as far as it is a number, a word or a
    switch.
    """
    fields: dict[str, Any] = {}
    needed = []
    for name, entry in takes.items():
        if name in _OWN or name.startswith("_") or hasattr(MixerConfig, name):
            continue
        default = None
        if _is_needed(entry):
            needed.append(name)
        else:
            default = entry.default
        if default is None:
            allowed = bool | int | float | str | None
        elif isinstance(default, (bool, str)):
            allowed = type(default)
        elif isinstance(default, (int, float)):
            allowed = int | float
        else:
            continue
        fields[name] = (allowed, param(default, meaning=f"as {cls.__name__} has it"))
    config = create_model("Config", __base__=BareConfig, __module__=cls.__module__, **fields)
    config.needed = tuple(needed)
    config.owner = cls.__name__
    return config


def _arguments(cls: type[nn.Module], config: MixerConfig, site: Site) -> dict[str, Any]:
    """What a module is built with at a site.

    Raises:
        PluginError: it needs the longest sequence, which is not known.
    """
    takes = _parameters(cls)
    needed = [name for name, entry in takes.items() if _is_needed(entry)]
    given = {name: value for name, value in config if not config.is_default(name)}
    given |= _fixed(takes)
    widths = [name for name in WIDTHS if name in needed]
    for width in widths or [_first(takes, WIDTHS)]:
        given[width] = site.dim
    heads = _first(takes, HEADS)
    if heads:
        given[heads] = site.num_heads
    causal = _first(takes, CAUSAL)
    if causal and takes[causal].default is not site.causal:
        given[causal] = site.causal
    length = _first(takes, LENGTHS)
    if length and site.max_len:
        given[length] = site.max_len
    elif length in needed:
        raise PluginError(f"{cls.__name__} needs {length}: give the longest sequence as max_len")
    return given
