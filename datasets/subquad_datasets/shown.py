"""What `subquad data` shows: prepared folders, descriptions, and pictures of training samples. N
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, ArrayBatch, Dataset, DataSpec, Split
from subquad.errors import DataError
from subquad.record.files import touching
from subquad_datasets.prepared import MANIFEST, fault_of, read_manifest

_WIDTH = 62
_HEIGHT = 15
"""Letters of a line, and lines, of a text that is drawn."""

_QUANTILES = {"min": 0.0, "10 %": 0.1, "50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "max": 1.0}
"""Of the lengths of training samples."""

_UNTOLD = ("set", "version", "files")


def prepared_folders(root: Path, *, sums: bool = False) -> Iterator[dict[str, Any]]:
    """What lies prepared below a folder: `folder`, `bytes`, `time` of writing, `fault` ("" where
    none) and `about`.

    Args:
        sums: compare the sha256 of all files.
    """
    for path in sorted(root.glob(f"*/*/{MANIFEST}")):
        folder = path.parent
        try:
            manifest = read_manifest(folder)
        except DataError:
            said = {}
            size = 0
        else:
            said = {**manifest.key, **manifest.facts}
            size = sum(file["size"] for file in manifest.files.values())
        yield {
            "folder": folder.relative_to(root).as_posix(),
            "bytes": size,
            "time": datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "minutes"),
            "fault": fault_of(folder, sums=sums).removeprefix(f"{folder}").strip("/: "),
            "about": {
                name: value
                for name, value in said.items()
                if name not in _UNTOLD and _is_short(value)
            },
        }


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float) and 0 < len(str(value)) <= 60


def described(spec: DataSpec) -> dict[str, Any]:
    """A description as plain JSON values, without what is empty."""
    facts = asdict(spec) | {
        "arrays": {name: [*array.axes, array.dtype] for name, array in spec.arrays.items()}
    }
    left_out = {"text", "token_bytes"}
    return {name: value for name, value in facts.items() if value and name not in left_out}


def read_lines(dataset: Dataset) -> list[str]:
    """How the files were read, and what stands in the way of a validation part."""
    lines = list(dataset.files_read())
    if "train" not in dataset.describe().sizes:
        try:
            dataset.split("train")
        except DataError as error:
            lines.append(f"no validation part, which protocol honest needs: {error}")
    return lines


def length_quantiles(dataset: Dataset) -> dict[str, int]:
    """Tokens or steps that training samples need: the shortest, quantiles, the longest.

    A quantile is a length that a sample has. Empty where all are alike, or not known without
    reading all data.
    """
    lengths = _training_part(dataset).lengths()
    if lengths is None or len(lengths) == 0 or lengths.min() == lengths.max():
        return {}
    found = np.quantile(lengths, list(_QUANTILES.values()), method="inverted_cdf")
    return {name: int(length) for name, length in zip(_QUANTILES, found, strict=True)}


def _training_part(dataset: Dataset) -> Split:
    """The training part; all of TRAIN where no validation part can be cut."""
    return dataset.split("train" if "train" in dataset.describe().sizes else "trainval")


def draw_samples(dataset: Dataset, path: Path, count: int, *, seed: int = 0) -> None:
    """A PNG of training samples as a model sees them in the first epoch, with their labels.

    Args:
        count: most samples; they are drawn.
    """
    from matplotlib.figure import Figure

    spec = dataset.describe()
    batch = _samples(dataset, count, seed)
    shown = len(batch["inputs"])
    columns = min(shown, 4)
    figure = Figure(figsize=(3.2 * columns, 2.4 * -(-shown // columns)), layout="constrained")
    draw = _drawing(spec)
    for row in range(shown):
        axes = figure.add_subplot(-(-shown // columns), columns, row + 1)
        draw(axes, {name: values[row] for name, values in batch.items()})
        axes.set_title(
            _label(spec, {name: values[row] for name, values in batch.items()}),
            fontsize=8,
            parse_math=False,
        )
    with touching(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=100)


def _samples(dataset: Dataset, count: int, seed: int) -> ArrayBatch:
    """Some of the training part."""
    import torch

    split = _training_part(dataset)
    drawn = np.random.Generator(np.random.Philox(seed)).permutation(len(split))[:count]
    batch = split.fetch(drawn, epoch=0, seed=seed)
    finished = split.finish({name: torch.from_numpy(values) for name, values in batch.items()})
    return {name: values.numpy() for name, values in finished.items()}


def _drawing(spec: DataSpec) -> Callable[[Any, ArrayBatch], None]:
    if "height" in spec.arrays["inputs"].axes:
        return _image
    if not spec.vocab_size:
        return _lines
    if spec.text is not None:
        return lambda axes, sample: _text(axes, sample, spec)
    return _tokens


def _image(axes: Any, sample: ArrayBatch) -> None:
    axes.imshow(sample["inputs"].transpose(1, 2, 0).squeeze(), cmap="gray")
    axes.set_axis_off()


def _lines(axes: Any, sample: ArrayBatch) -> None:
    axes.plot(sample["inputs"][sample["keep"]], linewidth=0.8)
    axes.tick_params(labelsize=6)


def _text(axes: Any, sample: ArrayBatch, spec: DataSpec) -> None:
    assert spec.text is not None
    words = spec.text(sample["inputs"][sample["keep"]].tolist())
    shown = "".join(
        letter if letter.isprintable() and letter.isascii() else " " for letter in words
    )
    lines = "\n".join(wrap(shown, _WIDTH)[:_HEIGHT])
    axes.text(0, 1, lines, fontsize=6, va="top", parse_math=False, transform=axes.transAxes)
    axes.set_axis_off()


def _tokens(axes: Any, sample: ArrayBatch) -> None:
    """Ids from left to right and from top to bottom, in a square where they fill one."""
    ids = sample["inputs"].astype(float)
    ids[~sample["keep"]] = np.nan
    side = int(np.ceil(np.sqrt(len(ids))))
    square = np.full(side * side, np.nan)
    square[: len(ids)] = ids
    axes.imshow(square.reshape(side, side), interpolation="nearest")
    axes.set_axis_off()


def _label(spec: DataSpec, sample: Mapping[str, Any]) -> str:
    label = sample.get("labels")
    if label is None:
        return ""
    if spec.target == "values":
        return "\n".join(
            f"{name} {value:.4g}" for name, value in zip(spec.values, label, strict=True)
        )
    if spec.target == "multilabel":
        return (
            ", ".join(
                name for name, answer in zip(spec.class_names, label, strict=True) if answer == 1
            )
            or "none"
        )
    if np.ndim(label) or not spec.class_names:
        return ""
    if label == NO_LABEL:
        return "cannot be read" if sample.get("bad", False) else "no label"
    share = float(sample.get("other_share", 0))
    if share:
        other = f" + {share:.0%} {spec.class_names[sample['other_labels']]}"
    else:
        other = ""
    return f"{spec.class_names[label]}{other}"
