"""Number formats: parameter type, autocast and the fp16 loss scaler."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from subquad.experiment.schema import Train

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def parameter_dtype(train: Train) -> torch.dtype:
    """Type of weights and inputs: float64 for fp64, else float32 (bf16 and fp16 are autocast)."""
    return torch.float64 if train.precision == "fp64" else torch.float32


def autocast(train: Train, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass."""
    dtype = _AUTOCAST.get(train.precision)
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype)


@dataclass
class LossScaler:
    """Dynamic loss scaling for fp16; scale 1 and switched off otherwise.

    Unlike torch's GradScaler it is told whether a step was finite, so that all ranks decide alike, and its state is
    two numbers in the checkpoint's JSON.

    Attributes:
        enabled: False keeps the scale at 1.
        scale: factor on the loss.
        good_steps: finite steps since the scale last changed.
    """

    enabled: bool
    scale: float = 1.0
    good_steps: int = 0

    GROWTH, BACKOFF, INTERVAL = 2.0, 0.5, 2000

    @staticmethod
    def of(train: Train) -> LossScaler:
        return LossScaler(train.precision == "fp16", 2.0**16 if train.precision == "fp16" else 1.0)

    def absorbs(self, finite: bool, loss_finite: bool) -> bool:
        """Take note of a step; True where non-finite gradients are answered by a smaller scale and so are no failure.

        A non-finite loss is a failure at any scale.
        """
        if not self.enabled or not loss_finite:
            return False
        if finite:
            self.good_steps += 1
            if self.good_steps == self.INTERVAL:
                self.scale, self.good_steps = self.scale * self.GROWTH, 0
            return False
        backed_off = self.scale > 1.0
        self.scale, self.good_steps = max(1.0, self.scale * self.BACKOFF), 0
        return backed_off
