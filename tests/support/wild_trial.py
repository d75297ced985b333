"""A trial of a published module: how it is built and called, and what it was found not to keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from wild_experiments import Call, Make

Experiment = Callable[[Make], float]


@dataclass(frozen=True)
class Fault:
    """What a module does not keep.

    Attributes:
        checks: that fail.
        experiment: that shows it.
        figure: what it gives.
        causal: whether the module was built causal.
    """

    checks: tuple[str, ...]
    experiment: Experiment
    figure: float
    causal: bool = False


@dataclass(frozen=True)
class Trial:
    """A published module.

    Attributes:
        pin: the package and its version.
        mixer: the wrapper's class.
        address: where the package has the module.
        given: what the experiments build the module with.
        takes_causal: whether `causal` says how it is built.
        mask: its argument for the mask of real tokens; "" where it takes none.
        faults: what it does not keep.
        note: a sentence for the page.
    """

    pin: str
    mixer: str
    address: str
    given: dict[str, Any] | None = None
    takes_causal: bool = False
    mask: str = ""
    faults: tuple[Fault, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return f"{self.package}-{self.name}"

    @property
    def package(self) -> str:
        return self.pin.partition("==")[0]

    @property
    def version(self) -> str:
        return self.pin.partition("==")[2]

    @property
    def name(self) -> str:
        """The module's class."""
        return self.address.partition(":")[2]

    def published(self, causal: bool) -> Make:
        """What builds the module as its package has it, and calls it; of a tuple the first element
        is its output.
        """
        how = {"causal": causal} if self.takes_causal else {}

        def make() -> tuple[nn.Module, Call]:
            torch.manual_seed(0)
            package, _, name = self.address.partition(":")
            module = getattr(import_module(package), name)(**(self.given or {}), **how)

            def call(x: Tensor, keep: Tensor | None) -> Tensor:
                if self.mask == "key_padding_mask":
                    out = module(x, x, x, key_padding_mask=None if keep is None else ~keep)
                elif self.name == "MultiScaleRetention":
                    out = module(x, x, x)
                elif self.name == "FastAttention":
                    real = torch.ones_like(x[..., 0], dtype=torch.bool) if keep is None else keep
                    out = module(x, mask=real)
                else:
                    out = module(x, **({self.mask: keep} if self.mask else {}))
                return out[0] if isinstance(out, tuple) else out

            return module, call

        return make
