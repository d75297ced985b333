"""Pictures of a split: decoded, changed by what belongs to a sample, mixed in pairs. B batch, S
= size.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, ArrayBatch, Split, digest_of
from subquad.errors import DataError
from subquad.plan import Permutation, Plan, PlanSettings
from subquad_datasets.augment import AugmentConfig
from subquad_datasets.decode import UnreadableImage


@dataclass(frozen=True, eq=False)
class Repeated(Permutation):
    """Several changed copies of each picture near each other, which is repeated augmentation.

    Copy k of sample i has the index i + k N. An epoch is N samples as before, of the first N /
    `repeats` pictures of another plan's epoch. Copies stand a part of a batch apart, so that mixing
    does not pair them.

    Attributes:
        once: the order that is repeated.
        repeats: copies.

    Reference: Hoffer et al., 2020, Augment your batch; Touvron et al., 2021, DeiT, whose code deals
        the copies out to
    processes: its order depends on their number.
    """

    once: Permutation
    repeats: int

    def order(self, epoch: int) -> np.ndarray:
        size = -(-self.batch_size // self.repeats)
        pictures = self.once.order(epoch)[: -(-self.num_samples // self.repeats)]
        parts = [pictures[start : start + size] for start in range(0, len(pictures), size)]
        copies = [part + copy * self.num_samples for part in parts for copy in range(self.repeats)]
        return np.concatenate([pictures[:0], *copies])[: self.num_samples]


@dataclass(frozen=True, kw_only=True)
class PictureSplit(Split):
    """A split of pictures with a class each. Subclasses say where pictures come from.

    Attributes:
        config: see `AugmentConfig`.
        labels: (n,) int64.
        training: whether pictures are changed at random and mixed; else all are treated as for
            evaluation.
        strict: a picture that cannot be read is an error, not a `bad` sample.
        notes: what a reader of a number on this split needs.
    """

    config: AugmentConfig
    labels: np.ndarray
    training: bool = False
    strict: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def picture(self, index: int) -> np.ndarray:
        """(height, width, 3) uint8, of any size.

        Raises:
            UnreadableImage: it cannot be read.
        """

    def content(self) -> str:
        """Of the bytes of the pictures, and of their classes."""
        return digest_of((self.digests(), self.labels))

    @property
    def mixes(self) -> bool:
        """Whether pairs are mixed."""
        return self.training and self.config.mixes

    @property
    def together(self) -> int:
        return 2 if self.mixes else 1

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """`inputs` (B, 3, S, S) uint8, `labels` (B,) int64, `bad` (B,) bool, and what
        `draw_pairs` gives.
        """
        # Here, as timm's import takes seconds, which what only describes a data set need not wait
        # for.
        from subquad_datasets.augment.mix import draw_pairs
        from subquad_datasets.augment.pictures import randomness_kept

        inputs = np.zeros((len(indices), 3, self.config.size, self.config.size), np.uint8)
        bad = np.zeros(len(indices), bool)
        with randomness_kept():
            for row, index in enumerate(indices.tolist()):
                try:
                    inputs[row] = self._transformed(index, (seed, epoch, index))
                except UnreadableImage as error:
                    if self.strict:
                        raise DataError(f"{self.name(index)}: {error}") from None
                    bad[row] = True
            labels = np.where(bad, NO_LABEL, self.labels[indices % len(self)])
            if self.mixes:
                mixing = draw_pairs(self.config, labels, indices, epoch=epoch, seed=seed)
            else:
                mixing = {}
        return {"inputs": inputs, "labels": labels, "bad": bad, **mixing}

    def plan(self, settings: PlanSettings) -> Plan:
        """The order of the pictures, each `repeats` times."""
        once = self.shuffled(settings)
        if self.config.repeats == 1:
            return once
        return Repeated(len(self), settings, once, self.config.repeats)

    def shuffled(self, settings: PlanSettings) -> Permutation:
        """The order of the pictures, each once.

        Raises:
            ConfigError: batches of like length are asked for, and pictures have none.
        """
        plan = super().plan(settings)
        assert isinstance(plan, Permutation)
        return plan

    def finish(self, batch: Any) -> Any:
        if "mix_box" not in batch:
            return batch
        from subquad_datasets.augment.mix import mix

        return mix(batch)

    def _transformed(self, index: int, key: tuple[int, int, int]) -> np.ndarray:
        from subquad_datasets.augment.pictures import evaluation, seed_generators, training

        picture = self.picture(index % len(self))
        if not self.training:
            return evaluation(self.config)(picture)  # type: ignore[arg-type]
        seed_generators(*key)
        return training(self.config)(picture)  # type: ignore[arg-type]
