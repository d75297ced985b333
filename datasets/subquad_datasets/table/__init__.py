"""Series of one's own: CSV, Parquet or NPZ files. Light half."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal, Self

from pydantic import model_validator

from subquad.plugin import DatasetConfig, DatasetPlugin, param


class Config(DatasetConfig):
    """Which columns are what, how TEST and a validation part are cut, and what is done to
    values.
    """

    path: str = param(
        meaning="folder with train and test (optionally validation) as .csv, .csv.gz, .tsv, .txt, "
        ".parquet or .npz; or one such file with a column that says the split, or with "
        "test_fraction",
        path=True,
        min_length=1,
    )
    target: Literal["class", "values", "multilabel"] = param(
        "class",
        meaning="what is learned of a series: a class, one number "
        "or several, or several classes (0 or 1 each)",
    )
    labels: tuple[str, ...] = param(
        ("label",),
        meaning="columns of what is learned; one for target class; of .npz the array y",
        min_length=1,
    )
    id: str = param(
        "id", meaning="column whose equal values make the rows of one series", min_length=1
    )
    time: str | None = param(
        None,
        meaning="column that orders the rows of a series; "
        "null: they stand together, in their order",
        min_length=1,
    )
    channels: tuple[str, ...] | None = param(
        None, meaning="columns of numbers that a model sees; null: all others", min_length=1
    )
    split: str | None = param(
        None,
        meaning="column, or array of .npz, that says train, validation or test of each series",
        min_length=1,
    )
    group: str | None = param(
        None,
        meaning="column, or array of .npz: series with equal "
        "values stay together where parts are drawn",
        min_length=1,
    )
    test_fraction: float | None = param(
        None,
        meaning="share of the series that becomes the sealed "
        "test split, where nothing else says it",
        gt=0,
        lt=1,
    )
    validation_fraction: float = param(
        0.2,
        meaning="share of TRAIN that selects checkpoints, where nothing else says it",
        gt=0,
        lt=1,
    )
    split_seed: int = param(
        0, meaning="seed for drawing a validation part and a test part", ge=0, lt=2**32
    )
    normalize: bool = param(
        True, meaning="z-score each channel with TRAIN's mean and standard deviation"
    )
    missing: Literal["refuse", "interpolate"] = param(
        "refuse",
        meaning="missing values: an error, or linear interpolation within series and channel",
    )
    max_len: int | None = param(
        None,
        meaning="padded length; longer series are clipped and counted; null: longest of TRAIN",
        unit="steps",
        ge=1,
    )

    @staticmethod
    def label(path: str) -> str:
        return PurePath(path).name.partition(".")[0]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        named = [self.id, self.time, self.split, self.group, *self.labels, *(self.channels or ())]
        given = [name for name in named if name is not None]
        if twice := sorted({name for name in given if given.count(name) > 1}):
            raise ValueError(f"column {twice[0]!r} is named twice: give each column one meaning")
        if self.target == "class" and len(self.labels) > 1:
            raise ValueError(
                f"labels has {len(self.labels)} columns: "
                "target class has 1, or use target multilabel"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.table.dataset:Table",
    summary="series of one's own from CSV, Parquet or NPZ "
    "files: classes, numbers or several labels",
    inputs="series",
    targets=("class", "values", "multilabel"),
    from_python="subquad_datasets.table.from_python:write_series",
)
