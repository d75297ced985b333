"""Tables as a data set: which file is what, splits, statistics of TRAIN. N series, L padded
length, V labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, Dataset, DataSpec, Split, SplitName, stratified_validation
from subquad.errors import DataError
from subquad_datasets.guesses import labels_of, majority, majority_labels, mean_values
from subquad_datasets.table import Config
from subquad_datasets.table.from_columns import read_table
from subquad_datasets.table.from_npz import read_windows
from subquad_datasets.table.series import PARTS, Series, unknown_class
from subquad_datasets.text.lines import find_file
from subquad_datasets.uea.arrays import Normalizer, fit_normalizer, no_normalizer, pad
from subquad_datasets.uea.dataset import SeriesSplit, series_notes

ENDINGS = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".npz")
_SHEETS = (".xlsx", ".xls", ".ods", ".numbers")


@dataclass(frozen=True, kw_only=True)
class TableSplit(SeriesSplit):
    """Padded series in memory.

    Attributes:
        ids: (N,) what the file calls each.
    """

    ids: np.ndarray

    def name(self, index: int) -> str:
        return str(self.ids[index])


@dataclass(frozen=True)
class Train:
    """What is kept of TRAIN, with its validation part.

    Attributes:
        series: the validation part last, where it is given.
        validation: (N,) bool, the validation part; None: it is drawn.
        test: the series of TEST where they stand in the same file.
        reading: how the files were read.
    """

    series: Series
    validation: np.ndarray | None
    test: Series | None
    reading: tuple[str, ...]


class Table(Dataset):
    """Series from files of one's own. A file of TEST alone is opened by `load("test")` only.

    Statistics, length and classes come from TRAIN with its validation part.
    """

    config: Config

    def describe(self) -> DataSpec:
        target = self.config.target
        more: dict[str, Any] = {"sizes": self._sizes(), "notes": self._notes, "target": target}
        if target == "values":
            more["values"] = self._values
        else:
            names = self._classes if target == "class" else self._train.series.names
            more |= {"num_classes": len(names), "class_names": names}
        return DataSpec.series(self._max_len, self._train.series.values.shape[1], **more)

    def load(self, name: SplitName) -> TableSplit:
        """Open a split.

        Raises:
            DataError: malformed or missing files, or too few series to cut a part.
        """
        if name == "test":
            return self._test()
        whole = self._split(self._train.series, "TRAIN")
        if name == "trainval":
            return whole
        chosen = self._cut[("train", "validation").index(name)]
        arrays = {key: values[chosen] for key, values in whole.arrays.items()}
        return replace(whole, arrays=arrays, ids=whole.ids[chosen])

    def open_file(self, path: Path, *, labelled: bool) -> TableSplit:
        """A file of the same columns; unlabelled ones need no labels."""
        series = read_series(path, self.config, self._train.series, labelled=labelled, parts=False)
        return self._split(series, path.name)

    def prepared_test(self) -> TableSplit:
        """TEST, read so that its faults show before anything is trained."""
        return self._test()

    def files_read(self) -> tuple[str, ...]:
        """Of TRAIN, and of the file of the validation part."""
        return self._train.reading

    def reference_scores(self, split: Split) -> Mapping[str, float | Mapping[str, float]]:
        """`majority`, always the commonest class, or the commoner answer for each of several;
        `mean` of numbers.
        """
        train = self.load("trainval")
        if self.config.target == "class":
            return majority(train, split)
        guess = mean_values if self.config.target == "values" else majority_labels
        return guess(train.labels, labels_of(split))

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        """The file of each split; one file with all of them is "train"."""
        path = Path(self.config.path)
        config = self.config
        if not path.exists():
            raise DataError(f"dataset.params.path: {path} does not exist")
        files = {"train": path}
        if path.is_dir():
            files = {name: file for name in PARTS if (file := _file_of(path, name))}
        if "train" not in files:
            raise DataError(
                f"dataset.params.path: {path} has no train{ENDINGS[0]} ({', '.join(ENDINGS[1:])})"
            )
        ways = [name for name in ("split", "test_fraction") if getattr(config, name) is not None]
        if "test" in files:
            ways += ["a test file"]
        if len(ways) != 1:
            if not ways:
                said = "nothing says"
            else:
                said = f"{' and '.join(ways)} both say"
            raise DataError(
                f"{path}: {said} which series are the test split; give a test "
                "file, dataset.params.split=COLUMN or "
                "dataset.params.test_fraction=0.2"
            )
        if config.split and "validation" in files:
            raise DataError(
                f"{files['validation']}: dataset.params.split says the validation "
                "part; leave one of them out"
            )
        return files

    @cached_property
    def _train(self) -> Train:
        files = self._files
        config = self.config
        series = read_series(files["train"], config)
        if "validation" in files:
            held = read_series(files["validation"], config, replace(series, labels=None))
            return Train(*_joined(series, held), None, (*series.reading, *held.reading))
        if series.splits is None:
            if "test" not in files:
                return self._held(series)
            return Train(series, None, None, series.reading)
        parts = {name: np.flatnonzero(series.splits == name) for name in PARTS}
        if empty := [name for name in ("train", "test") if not len(parts[name])]:
            raise DataError(
                f"{series.path}: no series of split {empty[0]} in column {config.split!r}"
            )
        rest = series.take(np.flatnonzero(series.splits != "test"))
        if len(parts["validation"]):
            validation = rest.splits == "validation"
        else:
            validation = None
        return Train(rest, validation, series.take(parts["test"]), series.reading)

    def _held(self, series: Series) -> Train:
        assert self.config.test_fraction is not None
        rest, held = self._drawn(series, self.config.test_fraction)
        return Train(series.take(rest), None, series.take(held), series.reading)

    def _drawn(self, series: Series, fraction: float) -> tuple[np.ndarray, np.ndarray]:
        """A part drawn by class, or of all; copies, or whole groups, stay together."""
        keys = series.digests()
        if series.groups is not None:
            keys = np.unique(series.groups, return_inverse=True)[1].astype(np.uint64)
        assert series.labels is not None
        if series.labels.ndim == 1:
            classes = np.unique(series.labels, return_inverse=True)[1]
        else:
            classes = np.zeros(len(series))
        return stratified_validation(
            classes.astype(np.int64), fraction, self.config.split_seed, keys
        )

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        train = self._train
        if train.validation is None:
            return self._drawn(train.series, self.config.validation_fraction)
        return np.flatnonzero(~train.validation), np.flatnonzero(train.validation)

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self._train.series)}
        try:
            return {**dict(zip(("train", "validation"), map(len, self._cut), strict=True)), **sizes}
        # too few series of a class: `trainval` still works, `load("train")` says why it does not
        except DataError:
            return sizes

    @cached_property
    def _normalizer(self) -> Normalizer:
        values = self._train.series.values
        if self.config.normalize:
            return fit_normalizer(values)
        return no_normalizer(values.shape[1])

    @property
    def _max_len(self) -> int:
        return self.config.max_len or int(self._train.series.lengths.max())

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        return tuple(sorted(set(self._train.series.labels.tolist())))  # type: ignore[union-attr]

    @cached_property
    def _values(self) -> dict[str, tuple[float, float]]:
        """Mean and deviation of each value over the labels that TRAIN has."""
        series = self._train.series
        values = dict[str, tuple[float, float]]()
        assert series.labels is not None
        for name, column in zip(series.names, series.labels.T, strict=True):
            known = column[~np.isnan(column)]
            if not len(known) or known.min() == known.max():
                raise DataError(
                    f"{series.path}: {name!r} has "
                    f"{'one value' if len(known) else 'no value'} in TRAIN"
                )
            values[name] = float(known.mean()), float(known.std())
        return values

    @property
    def _notes(self) -> tuple[str, ...]:
        train = self._train
        notes = [*self._split(self._train.series, "TRAIN").notes]
        if self.config.test_fraction is not None and train.test is not None:
            count = f"{len(train.test)} of {len(train.series) + len(train.test)}"
            notes.append(
                f"TEST is a part of the series ({count}), drawn with seed {self.config.split_seed}"
            )
        return (*notes, *self._normalizer.notes)

    def _test(self) -> TableSplit:
        series = self._train.test
        if series is None:
            series = read_series(self._files["test"], self.config, self._train.series)
        return self._split(series, "TEST")

    def _split(self, series: Series, name: str) -> TableSplit:
        """Series with the statistics, the length and the classes of TRAIN."""
        train = self._train.series
        if series.values.shape[1] != train.values.shape[1]:
            raise DataError(
                f"{series.path}: {series.values.shape[1]} channels, TRAIN has "
                f"{train.values.shape[1]}"
            )
        inputs, keep = pad(self._normalizer(series.values), series.lengths, self._max_len)
        if not np.isfinite(inputs).all():
            raise DataError(f"{series.path}: values too large for float32 arithmetic; rescale them")
        notes = series_notes(name, series.lengths, series.filled, series.ended, self._max_len)
        arrays = {"inputs": inputs, "keep": keep, "labels": self._labels(series)}
        return TableSplit(arrays, notes, ids=series.ids)

    def _labels(self, series: Series) -> np.ndarray:
        """(N,) int64, or (N, V) float32."""
        target = self.config.target
        labels = series.labels
        if labels is None:
            missing = np.full((len(series), len(self._train.series.names)), np.nan, np.float32)
            if target == "class":
                return np.full(len(series), NO_LABEL)
            return missing
        if target == "class":
            if wrong := sorted(set(labels.tolist()) - set(self._classes)):
                raise DataError(f"{series.path}: {unknown_class(wrong[0], self._classes)}")
            return np.searchsorted(np.array(self._classes), labels).astype(np.int64)
        if labels.shape[1] != len(self._train.series.names):
            raise DataError(
                f"{series.path}: {labels.shape[1]} labels, TRAIN has "
                f"{len(self._train.series.names)}"
            )
        return labels.astype(np.float32)


def read_series(
    path: Path,
    config: Config,
    train: Series | None = None,
    *,
    labelled: bool = True,
    parts: bool = True,
) -> Series:
    """Read a file.

    Args:
        path: one of `ENDINGS`.
        config: what its columns are.
        train: TRAIN, whose channels and classes the file must have; None: this is TRAIN, or its
            validation part.
        labelled: there must be labels; else they are not looked at.
        parts: there must be what says splits and groups.

    Raises:
        DataError: anything wrong with it, with its line or row.
    """
    if not path.name.endswith(ENDINGS):
        is_sheet = path.name.lower().endswith(_SHEETS)
        remedy = "; save the sheet as CSV in UTF-8" if is_sheet else ""
        raise DataError(f"{path}: tables end in {', '.join(ENDINGS)}{remedy}")
    read = read_windows if path.suffix == ".npz" else read_table
    return read(path, config, train, labelled, parts)


def _file_of(folder: Path, name: str) -> Path | None:
    files = [file for end in ENDINGS if (file := find_file(folder, name, endings=(end,)))]
    if len(files) > 1:
        raise DataError(f"{files[0]}: is there twice, also as {files[1].name}")
    if files:
        return files[0]
    return None


def _joined(first: Series, second: Series) -> tuple[Series, np.ndarray]:
    """One after the other, and which are the second's, (N,) bool."""
    if first.values.shape[1] != second.values.shape[1]:
        raise DataError(
            f"{second.path}: {second.values.shape[1]} channels, {first.path.name} "
            f"has {first.values.shape[1]}"
        )
    pairs = {
        name: (getattr(first, name), getattr(second, name))
        for name in ("values", "lengths", "labels", "ids", "filled", "ended")
    }
    groups = None if first.groups is None else np.concatenate([first.groups, second.groups])  # type: ignore[list-item]
    joined = replace(
        first, groups=groups, **{name: np.concatenate(pair) for name, pair in pairs.items()}
    )
    return joined, np.arange(len(joined)) >= len(first)
