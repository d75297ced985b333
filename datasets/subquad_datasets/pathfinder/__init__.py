"""Pathfinder of the Long Range Arena: do the two discs lie on one dashed curve? Light half.

Read from the official release, or generated: the original drawing, much faster, seeded. Resolution
128 is Path-X. Reference: Linsley et al., 2018, arXiv:1805.08315; Tay et al., 2021,
arXiv:2011.04006, sections 2.2.5 and 2.2.6.
"""

from __future__ import annotations

from typing import Literal

from subquad.plugin import DatasetConfig, DatasetPlugin, param
from subquad_datasets.origin import GENERATED, READ


class Config(DatasetConfig):
    """Which images, from where, and how their pixels become tokens."""

    resolution: Literal[32, 64, 128, 256] = param(
        32,
        meaning="height and width; a sequence has resolution * resolution tokens; 128 is Path-X",
        unit="pixels",
    )
    difficulty: Literal["easy", "intermediate", "hard"] = param(
        "hard", meaning="contours of 6, 9 or 14 paddles; published results are on hard"
    )
    path: str | None = param(
        None,
        meaning="folder of the official release, or one below it down to curv_...; null: generate",
        path=True,
        min_length=1,
    )
    pixels: Literal["shifted", "official"] = param(
        "shifted",
        meaning="shifted: token = value + 1, all real; official: "
        "token = value, black (0) counts as padding",
    )
    split: Literal["seeded", "google"] = param(
        "seeded",
        meaning="official images; seeded: shuffled, then 80/10/10 "
        "%; google: 80/10/10 % in the files' order",
        when=READ,
    )
    split_seed: int = param(
        0, meaning="seed of that shuffle", ge=0, lt=2**32, when={"split": ("seeded",)}
    )
    discs: Literal["official", "balanced"] = param(
        "official",
        meaning="generated images; official: where the two discs stand says "
        "something about the label, as the original draws them; "
        "balanced: it says nothing, which is not the published task",
        when=GENERATED,
    )
    train_size: int = param(
        160_000, meaning="images to train on", ge=1, le=10_000_000, when=GENERATED
    )
    validation_size: int = param(
        20_000, meaning="images for validation", ge=1, le=10_000_000, when=GENERATED
    )
    test_size: int = param(
        20_000, meaning="images of the sealed test split", ge=1, le=10_000_000, when=GENERATED
    )
    seed: int = param(
        0,
        meaning="seed of the images; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )
    processes: int | None = param(
        None,
        meaning="processes that generate; null: one for each CPU. The images do not depend on it",
        ge=1,
        le=1024,
        when=GENERATED,
    )

    @staticmethod
    def label(discs: str) -> str:
        return "lra-pathfinder-balanced" if discs == "balanced" else ""


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.pathfinder.dataset:Pathfinder",
    summary="Long Range Arena: two discs on one curve? 32 to 256 pixels (128 = Path-X), "
    "official images or generated",
    paper="Tay et al., 2021, Long Range Arena, arXiv:2011.04006; "
    "Linsley et al., 2018, arXiv:1805.08315",
    inputs="tokens",
    targets=("class", "next-token"),
)
