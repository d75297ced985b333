"""The Pathfinder data set: prepared once into columns `trainval` and `test`, opened
memory-mapped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import Dataset, DataSpec, Split, SplitName
from subquad.errors import DataError
from subquad_datasets.guesses import majority
from subquad_datasets.pathfinder import Config
from subquad_datasets.pathfinder.discs import find_discs, guess
from subquad_datasets.pathfinder.drawing import drawing
from subquad_datasets.pathfinder.images import read_images
from subquad_datasets.pathfinder.official import (
    FOLDERS,
    OFFICIAL_COUNT,
    Listing,
    find_folder,
    metadata_files,
    read_listing,
)
from subquad_datasets.pathfinder.pixels import PixelSplit, vocabulary, write_pixels
from subquad_datasets.pathfinder.worker import Block, Order, blocks
from subquad_datasets.prepared import (
    SEALED,
    file_content,
    fingerprint,
    prepare_once,
    prepared_content,
    read_manifest,
    sha256_of,
)

VERSION = 2
"""Of what is prepared: raise it where the same key would give other bytes."""

FILES_VERSION = 3
"""The same of what is read from files."""

_PUBLISHED = (32, "hard", "official")
_OF_DISCS = {
    "official": "where the two discs stand says something about "
    "the label: see the reference disc positions",
    "balanced": "balanced variant, not the published task: where the two discs stand says "
    "nothing about the label",
}
_STREAMS = {"train": 0, "validation": 1, "test": 2}
_FIRST_TENTHS = (8, 9)
_BLOCKS_WORTH_A_PROCESS = 2


class Pathfinder(Dataset):
    """Pathfinder, from the official images or generated.

    Of the official release, metadata decide the splits; images of TEST are not touched before it is
    opened.

    Reference: Tay et al., 2021, arXiv:2011.04006, sections 2.2.5 and 2.2.6.
    """

    config: Config

    def prepare(self) -> None:
        """Read or generate what is not there yet.

        Raises:
            DataError: a missing or malformed file.
        """
        _ = self._folder

    def describe(self) -> DataSpec:
        config = self.config
        facts = read_manifest(self._folder).facts
        sizes = {name: int(facts["sizes"][name]) for name in ("train", "validation")}
        notes = [_OF_DISCS[config.discs]]
        if config.pixels == "official":
            notes += ["black pixels count as padding, as in the published code"]
        return DataSpec.tokens(
            max_len=config.resolution**2,
            vocab_size=vocabulary(config.pixels),
            num_classes=2,
            class_names=("apart", "connected"),
            sizes={**sizes, "trainval": sum(sizes.values())},
            equal_length=config.pixels == "shifted",
            benchmark="pathfinder"
            if (config.resolution, config.difficulty, config.discs) == _PUBLISHED
            else "",
            notes=(f"Pathfinder {config.resolution}, {config.difficulty}", *facts["notes"], *notes),
        )

    def load(self, name: SplitName) -> PixelSplit:
        """Open a split.

        Raises:
            DataError: damaged prepared data, or an image of TEST that cannot be read.
        """
        rule = self.config.pixels
        if name == "test":
            return PixelSplit(self._test_folder(), "test", rule)
        sizes = read_manifest(self._folder).facts["sizes"]
        train = int(sizes["train"])
        both = int(sizes["train"]) + int(sizes["validation"])
        parts = {"train": (0, train), "validation": (train, both)}
        return PixelSplit(self._folder, "trainval", rule, parts.get(name))

    def test_content(self) -> str:
        """Of the official images' files alone."""
        if self.config.path:
            return file_content(self._home, self._files("test"))
        return prepared_content(self._folder)

    def files_read(self) -> tuple[str, ...]:
        if self.config.path is None:
            return ()
        return (SEALED,)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class; `disc_positions`: see
        `subquad_datasets.pathfinder.discs`.
        """
        assert isinstance(split, PixelSplit)
        train = self.load("trainval")
        right = guess(train.discs, train.labels, split.discs) == split.labels
        return {**majority(train, split), "disc_positions": float(np.mean(right))}

    @property
    def _home(self) -> Path:
        return self.root / "lra-pathfinder"

    @cached_property
    def _folder(self) -> Path:
        if self.config.path is None:
            return prepare_once(
                self._home, {"version": VERSION, "generated": self._recipe()}, self._generate
            )
        return prepare_once(self._home, self._source("trainval"), self._read_trainval)

    def _test_folder(self) -> Path:
        if self.config.path is None:
            return self._folder
        return prepare_once(self._home, self._source("test"), self._read_test)

    def _recipe(self) -> dict[str, Any]:
        """Every parameter that decides what is generated."""
        return self.config.model_dump(
            exclude={"path", "pixels", "split", "split_seed", "processes"}
        )

    def _generate(self, part: Path) -> dict[str, Any]:
        config = self.config
        sizes = {"train": config.train_size, "validation": config.validation_size}
        for column, counts in {"trainval": sizes, "test": {"test": config.test_size}}.items():
            drawn = (block for split, count in counts.items() for block in self._draw(split, count))
            self._keep(part, column, sum(counts.values()), drawn)
        return {
            "sizes": sizes,
            "notes": ["stand-in data: generated Pathfinder, not the official files"],
        }

    def _draw(self, split: str, count: int) -> Iterator[Block]:
        config = self.config
        balanced = config.discs == "balanced"
        order = Order(
            config.resolution,
            config.difficulty,
            config.seed,
            _STREAMS[split],
            count,
            balanced=balanced,
        )
        return blocks(order, config.processes or _processes(count // order.in_block))

    def _keep(self, part: Path, column: str, count: int, images: Iterator[Block]) -> None:
        """Pack images, and the places of their discs."""
        size = self.config.resolution
        places = [np.zeros((0, 4), np.uint8)]
        radius = drawing(size, self.config.difficulty).marker_radius

        def blocks() -> Iterator[Block]:
            for pixels, labels in images:
                places.append(find_discs(pixels, size, radius))
                yield pixels, labels

        write_pixels(part, column, count, size**2, blocks())
        np.save(part / f"{column}.discs.npy", np.concatenate(places))

    @cached_property
    def _official(self) -> Path:
        return find_folder(
            Path(self.config.path or ""), self.config.resolution, self.config.difficulty
        )

    @cached_property
    def _listing(self) -> Listing:
        listing = read_listing(self._official, self.config.resolution, self.config.difficulty)
        if len(listing.names) < 10:
            raise DataError(
                f"{self._official}: {len(listing.names)} images, too few to cut 80/10/10 %"
            )
        return listing

    def _source(self, column: str) -> dict[str, Any]:
        """Tells the images of one folder, cut in one way, from any others."""
        files = metadata_files(self._official)
        sums = hashlib.sha256(
            "".join(f"{path.name} {sha256_of(path)}\n" for path in files).encode()
        ).hexdigest()
        cut = self.config.model_dump(include={"resolution", "difficulty", "split", "split_seed"})
        return {
            "version": FILES_VERSION,
            "folder": str(self._official.resolve()),
            "metadata": sums,
            "column": column,
            "images": fingerprint(self._files(column)),
            **cut,
        }

    def _files(self, column: str) -> Iterator[Path]:
        """The images of TRAIN and its validation part, or of TEST, that are there."""
        train, validation, test = self._cut()
        rows = test if column == "test" else np.concatenate([train, validation])
        paths = (self._official / self._listing.names[row] for row in rows.tolist())
        return filter(Path.exists, paths)

    def _read_trainval(self, part: Path) -> dict[str, Any]:
        train, validation, _ = self._cut()
        both = np.concatenate([train, validation])
        sources = self._write(part, "trainval", both)
        sizes = {"train": len(train), "validation": len(validation)}
        return {
            "sizes": sizes,
            "notes": self._notes(),
            "skipped": list(self._listing.skipped),
            "sources": sources,
        }

    def _read_test(self, part: Path) -> dict[str, Any]:
        return {"sources": self._write(part, "test", self._cut()[2])}

    def _write(self, part: Path, column: str, rows: np.ndarray) -> dict[str, str]:
        """Pack these images; sha256 over what was read of them, a line `<sha256>  <name>` for
        each.
        """
        lines = hashlib.sha256()
        self._keep(
            part,
            column,
            len(rows),
            read_images(self._listing, rows, self.config.resolution, lines.update),
        )
        return {f"{self._official.name}: {len(rows)} images": lines.hexdigest()}

    def _cut(self) -> list[np.ndarray]:
        """Rows of the listing for train, validation and test, each in the listing's order."""
        count = len(self._listing.names)
        if self.config.split == "google":
            order = np.arange(count)
        else:
            order = shuffled(count, self.config.split_seed)
        bounds = [count * tenths // 10 for tenths in _FIRST_TENTHS]
        return [np.sort(rows) for rows in np.split(order, bounds)]

    def _notes(self) -> list[str]:
        config = self.config
        count = len(self._listing.names)
        skipped = len(self._listing.skipped)
        notes = [
            "split: 80/10/10 % in the order of the files"
            if config.split == "google"
            else f"split: shuffled with split_seed {config.split_seed}, then 80/10/10 %"
        ]
        if skipped:
            notes.append(f"{skipped} known empty image skipped")
        if count + skipped != OFFICIAL_COUNT:
            notes.append(
                f"stand-in data: {FOLDERS[config.difficulty]} lists {count + skipped:,} images, "
                f"the release {OFFICIAL_COUNT:,}"
            )
        return notes


def shuffled(count: int, seed: int) -> np.ndarray:
    """(count,) int64: 0 .. count - 1 in an order that is the same with every release of NumPy."""
    return np.argsort(np.random.Philox(key=seed).random_raw(count), kind="stable")


def _processes(num_blocks: int) -> int:
    """One for each CPU, but none that would hardly start before the work is done."""
    return max(1, min(len(os.sched_getaffinity(0)), num_blocks // _BLOCKS_WORTH_A_PROCESS))
