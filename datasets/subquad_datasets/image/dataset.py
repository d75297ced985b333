"""Gray images as sequences of pixels. TEST is packed apart and opened only by `load("test")`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import Dataset, DataSpec, Split, SplitName, stratified_validation
from subquad.errors import DataError
from subquad_datasets.guesses import majority
from subquad_datasets.image import Config
from subquad_datasets.image.generate import GeneratedImages
from subquad_datasets.image.source import Source, SplitPart
from subquad_datasets.image.split import PixelSplit
from subquad_datasets.prepared import check_prepared, prepare_once, read_manifest

VERSION = 3
STAND_IN = "stand-in data: "


class Image(Dataset):
    """Images in classes, a pixel a token, row by row.

    Reference: Tay et al., 2021, section 2.4.
    Departures: the published validation part is the last tenth of TRAIN in TFDS's order, which the
    released files do not have; here it is the last tenth in the archive's order (`validation:
    last`) or drawn by class (the default). Black pixels are tokens like others unless `pixels:
    official` asks for the published rule.
    """

    config: Config

    def prepare(self) -> None:
        """Pack TRAIN and TEST, so that a fault in either shows before anything is trained."""
        _ = self._train_folder
        self.prepared_test()

    def prepared_test(self) -> PixelSplit:
        return self._test()

    def describe(self) -> DataSpec:
        shifted = self._shifted
        classes = tuple(self._facts["classes"])
        return DataSpec.tokens(
            max_len=self.config.side**2,
            vocab_size=256 + shifted,
            num_classes=len(classes),
            class_names=classes,
            sizes=self._sizes(),
            equal_length=shifted,
            benchmark="image",
            notes=tuple(
                note for note in (self._facts["note"], _PADDING if not shifted else "") if note
            ),
        )

    def load(self, name: SplitName) -> PixelSplit:
        """Open a split.

        Raises:
            DataError: malformed or missing files, or no validation part can be cut.
        """
        if name == "test":
            return self._test()
        if name == "trainval":
            return self._train
        part = self._cut[("train", "validation").index(name)]
        return PixelSplit(self._train_folder, self._shifted, part)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self._train, split)

    @property
    def _shifted(self) -> bool:
        return self.config.pixels == "shifted"

    @cached_property
    def _source(self) -> Source | GeneratedImages:
        config = self.config
        if config.path is None:
            return GeneratedImages(
                config.seed, {"train": config.train_size, "test": config.test_size}, config.side
            )
        return Source(Path(config.path), config.side)

    def _prepared(self, split: SplitPart) -> Path:
        source = self._source
        files = source.fingerprint(split)
        key = {
            "set": "image",
            "version": VERSION,
            "split": split,
            "side": self.config.side,
            "files": files,
        }
        return prepare_once(self.root / "lra-image", key, lambda folder: source.pack(folder, split))

    @cached_property
    def _train_folder(self) -> Path:
        return self._prepared("train")

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        return check_prepared(self._train_folder).facts

    @cached_property
    def _train(self) -> PixelSplit:
        return PixelSplit(self._train_folder, self._shifted)

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self._train)}
        if self.config.validation == "last":
            self._check_order()
        try:
            return {"train": len(self._cut[0]), "validation": len(self._cut[1]), **sizes}
        # too few images of a class: `trainval` still works, `load("train")` says why it does not
        except DataError:
            return sizes

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        config = self.config
        labels = self._train.labels
        if config.validation == "stratified":
            digests = self._train.digests()
            return stratified_validation(
                labels, config.validation_fraction, config.split_seed, digests
            )
        self._check_order()
        count = round(config.validation_fraction * len(labels))
        if not 0 < count < len(labels):
            raise DataError(
                f"validation_fraction {config.validation_fraction} of "
                f"{len(labels)} images leaves one part empty; "
                "use protocol: fixed (all of TRAIN, a fixed number of epochs)"
            )
        rows = np.arange(len(labels))
        return rows[:-count], rows[-count:]

    def _check_order(self) -> None:
        if not self._facts["ordered"]:
            raise DataError(
                "dataset.params.validation: last needs the archive's order; "
                f"the images of {self.config.path} come class by class, so "
                "the last ones are of few classes: use validation stratified"
            )

    def _test(self) -> PixelSplit:
        folder = self._prepared("test")
        facts = read_manifest(folder).facts
        classes = self._facts["classes"]
        if facts["classes"] != classes:
            raise DataError(
                f"{self.config.path}: TEST has the classes {facts['classes']}, TRAIN has {classes}"
            )
        # Where TRAIN is a stand-in the description says so already.
        alone = facts["note"].startswith(STAND_IN) and not self._facts["note"].startswith(STAND_IN)
        return PixelSplit(folder, self._shifted, notes=(facts["note"],) if alone else ())


_PADDING = "pixels official: black pixels count as padding, as in the published code"
