"""What is known of a data set without opening its test split. Imports numpy, not torch.

Letters: B batch, L length, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ArrayBatch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Array:
    """One array of a batch.

    Attributes:
        axes: the names of its axes after the first, which is the batch; none for one value per
            sample.
        dtype: NumPy's name of its type.
    """

    axes: tuple[str, ...] = ()
    dtype: str = "float32"


_CLASS_NUMBERS = Array(dtype="int64")
_LABELS = {
    "positions": Array(("length",), "int64"),
    "next-token": Array(("length",), "int64"),
    "sequence": Array(("target",), "int64"),
    "values": Array(("values",)),
    "multilabel": Array(("classes",)),
}
"""The array `labels` of targets that are more than the number of a class for each sample."""


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What is known of a data set without opening its test split.

    `series`, `tokens` and `images` make those of the usual kinds.

    Attributes:
        arrays: what a batch holds, by name. A bool array says which positions of its axis are real;
            it is `keep`, or `keep_b` for the second sequence of a pair. Images have none.
        lengths: the length of each axis, from TRAIN only: the longest, where samples are padded.
        target: what `labels` are: "class", "positions" (labels (B, L), `NO_LABEL` where there is
            none), "pair", "next-token" (labels (B, L), the token after each position, `NO_LABEL`
            where none is asked for), "sequence" (labels (B, T) on the axis "target": the tokens of
            another text with the `end_token`, then `NO_LABEL`), "values" (labels (B, V) float32 on
            the axis "values", NaN where there is none), "multilabel" (labels (B, C) float32 on the
            axis "classes": 1 where a sample is of a class, else 0, NaN where it is not known), or
            another of the plugin's targets.
        vocab_size: number of token ids for tokens (0 = padding), 0 for others.
        num_classes: classes, 0 where there are none.
        class_names: labels in index order.
        values: of the target "values" the names, in index order, each with its mean and deviation
            over TRAIN.
        sizes: samples of train, validation and trainval, never of test; train and validation are
            absent where TRAIN is too small to cut a validation part.
        end_token: the id that ends a text, and stands before its first token; 0 where texts have
            none.
        token_bytes: bytes of text that each token id stands for, (V,), for bits per byte; empty
            where tokens are no text.
        text: from token ids to their text; None where tokens are no text. It is pickled to other
            processes.
        equal_length: every sequence of every split is `max_len` long, so that no mixer needs a
            mask.
        benchmark: name of the data set in published tables, where it is not that of our own; ""
            where it is, or where nothing is published.
        notes: facts a reader of a number needs, such as "stand-in data" or "12 series clipped".
    """

    arrays: Mapping[str, Array]
    lengths: Mapping[str, int] = field(default_factory=dict)
    target: str = "class"
    vocab_size: int = 0
    num_classes: int = 0
    class_names: tuple[str, ...] = ()
    values: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    end_token: int = 0
    token_bytes: tuple[int, ...] = ()
    text: Callable[[Sequence[int]], str] | None = None
    equal_length: bool = False
    benchmark: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def series(cls, max_len: int, channels: int, *, target: str = "class", **more: Any) -> DataSpec:
        """A description of series: `inputs` (B, L, C) float32, `keep` (B, L) and `labels`.

        `more` is the other attributes.
        """
        inputs = Array(("length", "channels"))
        return cls._of(inputs, {"length": max_len, "channels": channels}, target, more)

    @classmethod
    def tokens(
        cls, max_len: int, vocab_size: int, *, target: str = "class", **more: Any
    ) -> DataSpec:
        """A description of token ids: `inputs` (B, L) int64, `keep` (B, L) and `labels`.

        `more` is the other attributes. `arrays` and `lengths` among them come on top: others may be
        given, and "sequence" needs the length of the axis "target".
        """
        inputs = Array(("length",), "int64")
        more["vocab_size"] = vocab_size
        return cls._of(inputs, {"length": max_len}, target, more)

    @classmethod
    def images(
        cls, height: int, width: int, channels: int = 3, *, target: str = "class", **more: Any
    ) -> DataSpec:
        """A description of images: `inputs` (B, C, H, W) uint8 and `labels`.

        `more` is the other attributes. A backbone scales pixels and subtracts their mean itself, so
        that a quarter of the bytes travels to the device.
        """
        lengths = {"channels": channels, "height": height, "width": width}
        inputs = Array(tuple(lengths), "uint8")
        more["equal_length"] = True
        return cls._of(inputs, lengths, target, more)

    @classmethod
    def _of(
        cls, inputs: Array, lengths: dict[str, int], target: str, more: dict[str, Any]
    ) -> DataSpec:
        """A description of these inputs, with the labels and masks that belong to them."""
        arrays = {"inputs": inputs}
        if "length" in lengths:
            arrays["keep"] = Array(("length",), "bool")
        if target == "pair":
            arrays |= {f"{name}_b": array for name, array in arrays.items()}
        arrays["labels"] = _LABELS.get(target, _CLASS_NUMBERS)
        if target == "values":
            lengths["values"] = len(more.get("values", ()))
        if target == "multilabel":
            lengths["classes"] = more.get("num_classes", 0)
        arrays |= more.pop("arrays", {})
        lengths |= more.pop("lengths", {})
        return cls(arrays=arrays, lengths=lengths, target=target, **more)

    @property
    def max_len(self) -> int:
        """Padded length of the sequences; 0 for data without an axis "length"."""
        return self.lengths.get("length", 0)

    @property
    def channels(self) -> int:
        """C, 0 for data without an axis "channels"."""
        return self.lengths.get("channels", 0)

    def example(self, batch_size: int = 2, lengths: Mapping[str, int] | None = None) -> ArrayBatch:
        """A batch of ones with the shapes and types of this data set: to count and to measure with.

        Args:
            batch_size: B.
            lengths: of some axes, where they shall not be the data set's own.
        """
        known = dict(self.lengths)
        known |= lengths or {}
        batch = {}
        for name, array in self.arrays.items():
            shape = [batch_size]
            shape += [known[axis] for axis in array.axes]
            batch[name] = np.ones(shape, array.dtype)
        return batch
