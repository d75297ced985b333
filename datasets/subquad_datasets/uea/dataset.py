"""The UEA data set: splits, statistics and what is reported of them. N series, L padded length,
C channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from subquad.data import (
    NO_LABEL,
    ArrayBatch,
    ArraySplit,
    Dataset,
    DataSpec,
    Split,
    SplitName,
    stratified_validation,
)
from subquad.errors import DataError
from subquad_datasets.guesses import MAX_PRODUCTS, majority, nearest
from subquad_datasets.prepared import SEALED, alike, file_content
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.arrays import Normalizer, fit_normalizer, no_normalizer, to_arrays
from subquad_datasets.uea.download import download, verify
from subquad_datasets.uea.header import Header, check_agree
from subquad_datasets.uea.held_out import check_testable, hold_out, no_test, note
from subquad_datasets.uea.kept import WORTH_KEEPING, kept_cases
from subquad_datasets.uea.source import (
    Files,
    archive_problems,
    bundled_folder,
    find_below,
    find_in,
    not_here,
)
from subquad_datasets.uea.ts import Cases, read_ts


@dataclass(frozen=True)
class SeriesSplit(ArraySplit):
    """Padded series in memory.

    Attributes:
        notes: what a reader of a number on this split needs, such as how many series were clipped.
    """

    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Train:
    """What is kept of the TRAIN file: arrays, and what TEST has to be treated with."""

    arrays: ArrayBatch
    normalizer: Normalizer
    max_len: int
    header: Header
    notes: tuple[str, ...]


class UeaDataset(Dataset):
    """One problem of the UEA archive. TRAIN is read once, TEST only by `load("test")`.

    With `test_fraction` a part of the TRAIN file is TEST: neither training nor statistics see it.

    Reference: Bagnall et al., 2018, arXiv:1811.00075; preparation as in Zerveas et al., 2021,
    arXiv:2010.02803.
    """

    config: UeaConfig

    def prepare(self) -> None:
        """Download, where `download` is set and the files are nowhere yet.

        Raises:
            DataError: there is no test split, though every protocol ends with it.
        """
        files = self._find()
        if files is None and self.config.download and self.config.problem in archive_problems():
            download(self.config.problem, self._downloaded)
            files = self._find()
        if files is not None:
            check_testable(files, self.config.test_fraction)

    def describe(self) -> DataSpec:
        train = self._train
        total = len(train.arrays["labels"])
        try:
            cut = [len(part) for part in self._cut]
        # too few series of a class: `trainval` still works, `load("train")` says why it does not
        except DataError:
            cut = []
        return DataSpec.series(
            max_len=train.max_len,
            channels=train.arrays["inputs"].shape[2],
            num_classes=len(train.header.class_names),
            class_names=train.header.class_names,
            sizes={**dict(zip(("train", "validation"), cut, strict=False)), "trainval": total},
            notes=train.notes,
        )

    def load(self, name: SplitName) -> SeriesSplit:
        """Open a split.

        Raises:
            DataError: malformed or missing files, or too few series to cut a validation part.
        """
        if name == "test":
            return self._test()
        arrays = self._train.arrays
        if name == "trainval":
            return SeriesSplit(arrays, self._train.notes)
        chosen = self._cut[("train", "validation").index(name)]
        return SeriesSplit(
            {key: values[chosen] for key, values in arrays.items()}, self._train.notes
        )

    def open_file(self, path: Path, *, labelled: bool) -> SeriesSplit:
        """The series of a .ts file, treated as TEST is. Without labels it may have no @classLabel,
        and rows no class.

        Raises:
            DataError: as for `read_ts`, or it has other channels or classes than TRAIN.
        """
        cases = read_ts(path, missing=self.config.missing, labelled=labelled)
        _check_fits(path, cases, self._train, labelled=labelled)
        if not labelled:
            cases = replace(cases, labels=np.full(len(cases), NO_LABEL))
        return self._treated(path, cases, path.name)

    def prepared_test(self) -> SeriesSplit | None:
        files = self._files
        if files.test and alike(files.train, files.test):
            return self._test()
        return None

    def test_content(self) -> str:
        """Of the file alone, which also opens nothing where TEST is a part of TRAIN's."""
        files = self._files
        return file_content(self.root / "uea", [files.test or files.train])

    def files_read(self) -> tuple[str, ...]:
        if self.config.path is None:
            return ()
        return (SEALED,)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`, and `one_nn` where all series have one length and the search is not too long.

        `one_nn`: the class of the nearest series of all of TRAIN, by the Euclidean distance of the
        values before normalisation; of equally near ones the first.
        """
        assert isinstance(split, ArraySplit)
        train = self._train.arrays
        scores = majority(self.load("trainval"), split)
        series = train["inputs"][0].size
        full = bool(train["keep"].all() and split.arrays["keep"].all())
        if full and len(train["labels"]) * len(split) * series <= MAX_PRODUCTS:
            guesses = train["labels"][nearest(*map(self._raw, (train, split.arrays)))]
            scores["one_nn"] = float(np.mean(split.labels == guesses))
        return scores

    def _raw(self, arrays: ArrayBatch) -> np.ndarray:
        """(N, L * C): values before normalisation but for the mean, which no distance depends
        on.
        """
        inputs = arrays["inputs"]
        return (inputs * self._train.normalizer.std.astype(np.float32)).reshape(len(inputs), -1)

    @property
    def _downloaded(self) -> Path:
        return self.root / "uea" / self.config.problem

    def _find(self) -> Files | None:
        problem = self.config.problem
        if self.config.path is not None:
            return find_below(Path(self.config.path), problem)
        bundled = bundled_folder()
        return (find_in(bundled / problem, problem) if bundled else None) or find_in(
            self._downloaded, problem
        )

    @cached_property
    def _files(self) -> Files:
        files = self._find()
        if files is None and self.config.download and self.config.problem in archive_problems():
            raise DataError(
                f"uea problem {self.config.problem!r} is not in "
                f"{self._downloaded.parent}: prepare() fetches it"
            )
        if files is None:
            raise not_here(self.config.problem)
        if files.test is not None:
            check_testable(files, self.config.test_fraction)
        return files

    @cached_property
    def _train(self) -> Train:
        path = self._files.train
        file_notes = _file_notes(self._files)
        cases = self._read(path)
        if self.config.test_fraction is not None:
            whole = cases
            cases, held = self._hold_out(cases)
            file_notes = [*file_notes, note(held, whole)]
        elif self._files.test is None:
            file_notes = [*file_notes, f"no TEST file: not to be reported as {self._files.stem}"]
        if self.config.normalize:
            normalizer = fit_normalizer(cases.values)
        else:
            normalizer = no_normalizer(cases.values.shape[1])
        _check_finite(path, normalizer.std)
        max_len = self.config.max_len or int(cases.lengths.max())
        arrays = to_arrays(cases, normalizer, max_len)
        _check_finite(path, arrays["inputs"])
        notes = [
            *file_notes,
            *_train_notes(cases, normalizer),
            *series_notes("TRAIN", cases.lengths, cases.filled, cases.ended, max_len),
        ]
        return Train(arrays, normalizer, max_len, cases.header, tuple(notes))

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        config = self.config
        train = self.load("trainval")
        return stratified_validation(
            train.labels, config.validation_fraction, config.split_seed, train.digests()
        )

    def _test(self) -> SeriesSplit:
        files = self._files
        if self.config.test_fraction is not None:
            path = files.train
            _, cases = self._hold_out(self._read(files.train))
        elif files.test is not None:
            path = files.test
            cases = self._read(files.test)
            _check_fits(path, cases, self._train)
        else:
            raise no_test(files)
        return self._treated(path, cases, "TEST")

    def _treated(self, path: Path, cases: Cases, name: str) -> SeriesSplit:
        """Series that are not for training, with the statistics and the length of TRAIN."""
        train = self._train
        arrays = to_arrays(cases, train.normalizer, train.max_len)
        _check_finite(path, arrays["inputs"])
        notes = series_notes(name, cases.lengths, cases.filled, cases.ended, train.max_len)
        return SeriesSplit(arrays, notes)

    def _hold_out(self, cases: Cases) -> tuple[Cases, Cases]:
        assert self.config.test_fraction is not None
        return hold_out(cases, self.config.test_fraction, self.config.split_seed)

    def _read(self, path: Path) -> Cases:
        def read() -> Cases:
            verify(path)
            return read_ts(path, missing=self.config.missing)

        is_large = path.exists() and path.stat().st_size >= WORTH_KEEPING
        if is_large:
            return kept_cases(self.root / "uea", path, self.config.missing, read)
        return read()


def _check_fits(path: Path, cases: Cases, train: Train, *, labelled: bool = True) -> None:
    if labelled:
        check_agree(train.header, cases.header, path)
    if cases.header.channels != train.header.channels:
        raise DataError(
            f"{path}: {cases.header.channels} channels, TRAIN has {train.header.channels}"
        )


def _check_finite(path: Path, values: np.ndarray) -> None:
    """Refuse an overflow in statistics (C,) or inputs (N, L, C)."""
    finite = np.isfinite(values)
    if not finite.all():
        channel = int(np.argmin(finite.reshape(-1, values.shape[-1]).all(axis=0))) + 1
        raise DataError(
            f"{path}: channel {channel} holds values too large for float32 arithmetic; rescale them"
        )


def _file_notes(files: Files) -> list[str]:
    if files.stem == files.problem:
        return []
    return [f"the files of {files.problem} are named {files.stem}"]


def _train_notes(cases: Cases, normalizer: Normalizer) -> list[str]:
    names = cases.header.class_names
    absent = [name for index, name in enumerate(names) if index not in set(cases.labels.tolist())]
    if absent:
        notes = [f"no TRAIN series of class {', '.join(absent)}"]
    else:
        notes = []
    return notes + normalizer.notes


def series_notes(
    name: str, lengths: np.ndarray, filled: np.ndarray, ended: np.ndarray, max_len: int
) -> tuple[str, ...]:
    """What was done to the series of a part, (N,) each, in words."""
    count = len(lengths)
    notes = {
        f"of {count} {name} series clipped to {max_len} steps": np.count_nonzero(lengths > max_len),
        f"{name} values interpolated": filled.sum(),
        f"of {count} {name} series end in steps without a value, which are read as padding": (
            np.count_nonzero(ended)
        ),
    }
    return tuple(f"{number} {text}" for text, number in notes.items() if number)
