"""UEA multivariate time series classification: parameters and descriptor. Imports neither sktime
nor torch.
"""

from __future__ import annotations

from typing import Literal

from subquad.plugin import DatasetConfig, DatasetPlugin, param


class UeaConfig(DatasetConfig):
    """Which problem, where its files are, and how they become arrays."""

    problem: str = param(
        meaning="name in the archive, such as JapaneseVowels; files "
        "are <problem>_TRAIN.ts and <problem>_TEST.ts",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    )
    path: str | None = param(
        None,
        meaning="folder with <problem>/<problem>_TRAIN.ts or <problem>_TRAIN.ts (also .xz, "
        ".gz, .bz2); "
        "null: what ships with sktime or was downloaded",
        path=True,
        min_length=1,
    )
    download: bool = param(
        False, meaning="fetch the files with sktime's downloader where they are not here yet"
    )
    validation_fraction: float = param(
        0.2, meaning="share of TRAIN, by class, that selects checkpoints", gt=0, lt=1
    )
    test_fraction: float | None = param(
        None,
        meaning="share of TRAIN, by class, that takes TEST's place where there is no TEST "
        "file; null: TEST is needed",
        gt=0,
        lt=1,
    )
    split_seed: int = param(
        0, meaning="seed for drawing the validation part, and of a test part", ge=0, lt=2**32
    )
    normalize: bool = param(
        True, meaning="z-score each channel with TRAIN's mean and standard deviation"
    )
    missing: Literal["refuse", "interpolate"] = param(
        "refuse",
        meaning="missing values (? or NaN): an error, or linear "
        "interpolation within series and channel",
    )
    max_len: int | None = param(
        None,
        meaning="padded length; longer series are clipped and counted; null: longest of TRAIN",
        unit="steps",
        ge=1,
    )

    @staticmethod
    def label(problem: str) -> str:
        return problem


PLUGIN = DatasetPlugin(
    config=UeaConfig,
    build="subquad_datasets.uea.dataset:UeaDataset",
    summary="UEA archive: multivariate time series classification from .ts files",
    paper="Bagnall et al., 2018, The UEA multivariate time series classification "
    "archive, arXiv:1811.00075",
    inputs="series",
    targets=("class",),
)
