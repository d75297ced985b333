"""Small drawn data in the places and layouts that the recipes name."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cifar_layouts import write_archive
from pictures import write_folder

from subquad.cli.main import main
from subquad.experiment import Run

WORDS = ["the", "of", "and", "to", "in", "patients", "were", "study", "results", "treatment"]

UEA_SHAPES = {
    "ArticularyWordRecognition": (144, 9),
    "ERing": (65, 4),
    "EthanolConcentration": (1751, 3),
    "FaceDetection": (62, 144),
    "Handwriting": (152, 3),
    "Heartbeat": (405, 61),
    "JapaneseVowels": (29, 12),
    "Libras": (45, 2),
    "NATOPS": (51, 24),
    "PEMS-SF": (144, 963),
    "PenDigits": (8, 2),
    "SelfRegulationSCP1": (896, 6),
    "SelfRegulationSCP2": (1152, 7),
    "SpokenArabicDigits": (93, 13),
    "UWaveGestureLibrary": (315, 3),
}
"""Length and channels of problems that recipes may download (Bagnall et al., 2018, table 1)."""


def text_of(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def draw_reviews(folder: Path, rng: random.Random) -> None:
    """aclImdb: a file for each text, in folders of split and class."""
    for split in ("train", "test"):
        for kind in ("pos", "neg"):
            place = folder / split / kind
            place.mkdir(parents=True)
            for number in range(20):
                (place / f"{number}.txt").write_text(text_of(rng, 40))


def draw_pairs(folder: Path, rng: random.Random) -> None:
    """lra_release: label, two names, two texts."""
    folder.mkdir(parents=True)
    for split in ("train", "eval", "test"):
        rows = [
            f"{number % 2:.1f}\t{number}\t{number + 1}\t{text_of(rng, 30)}\t{text_of(rng, 30)}\n"
            for number in range(40)
        ]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(rows))


def draw_articles(folder: Path, rng: random.Random) -> None:
    """Articles and summaries of Cohan et al."""
    folder.mkdir(parents=True)
    for split in ("train", "val", "test"):
        rows = [
            {
                "article_text": [text_of(rng, 20) + " ." for _ in range(5)],
                "abstract_text": [f"<S> {text_of(rng, 10)} . </S>"],
                "section_names": ["introduction", "results"],
            }
            for _ in range(40)
        ]
        (folder / f"{split}.txt").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def draw_abstracts(folder: Path, rng: random.Random) -> None:
    """PubMed RCT: labelled sentences of abstracts."""
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        abstracts = [
            f"###{number}\nMETHODS\t{text_of(rng, 20)} .\nCONCLUSIONS\t{text_of(rng, 10)} .\n\n"
            for number in range(40)
        ]
        (folder / f"{split}.txt").write_text("".join(abstracts))


def draw_texts(folder: Path, rng: random.Random) -> None:
    """WikiText: a file for each split, long enough for windows of 512 tokens."""
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        lines = [text_of(rng, 200) for _ in range(40)]
        (folder / f"wiki.{split}.tokens").write_text("\n".join(lines))


def draw_shards(folder: Path, _: random.Random) -> None:
    """ImageNet: a shard of each split with pictures of four classes; a list names three of them."""
    pictures = folder.parent / "pictures"
    for split in ("train", "val"):
        write_folder(pictures / split, {f"n{number}": 16 for number in range(4)}, len(split))
        drawn = [str(pictures / split), str(folder), "--split", split, "--jobs", "1"]
        assert main(["data", "shard", *drawn]) == 0
    (folder.parent / "imagenet-100.txt").write_text("n0\nn1\nn2\n")


def draw_archive(folder: Path, _: random.Random) -> None:
    """CIFAR-10: the batches of its archive."""
    write_archive(folder, side=32, per_batch=20)


def draw_series(folder: Path, rng: random.Random) -> None:
    """UEA: the two files of each problem, four series of each of two classes."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    for problem, (length, channels) in UEA_SHAPES.items():
        (folder / problem).mkdir(parents=True)
        for split in ("TRAIN", "TEST"):
            head = f"@problemName {problem}\n@classLabel true one two\n@data\n"
            rows = [f"{_series(numbers, length, channels)}:{kind}\n" for kind in 4 * ["one", "two"]]
            with lzma.open(folder / problem / f"{problem}_{split}.ts.xz", "wt", preset=0) as file:
                file.write(head + "".join(rows))


def _series(numbers: np.random.Generator, length: int, channels: int) -> str:
    """A series as a .ts file has it: the values of each channel, with a colon between channels."""
    drawn = numbers.normal(size=(channels, length)).round(2).tolist()
    return ":".join(",".join(map(str, values)) for values in drawn)


DRAWN: dict[str, Callable[[Path, random.Random], None]] = {
    "data/aclImdb": draw_reviews,
    "data/lra_release": draw_pairs,
    "data/pubmed-dataset": draw_articles,
    "data/PubMed_200k_RCT": draw_abstracts,
    "data/wikitext-103": draw_texts,
    "data/cifar-10-batches-py": draw_archive,
    "data/imagenet": draw_shards,
    "data/uea": draw_series,
}
"""What draws the data of each place."""

GENERATED = {"train_size": 64, "validation_size": 16, "test_size": 16}
"""Samples of data that are generated; data sets have some of these settings."""


def draw_data(folder: Path) -> None:
    """Everything that recipes read, below `folder`."""
    rng = random.Random(0)
    for place, draw in DRAWN.items():
        draw(folder / place, rng)


def overrides_for(runs: list[Run]) -> list[str]:
    """Settings with which the runs of a recipe read drawn data, or generate few samples.

    They change no model. A recipe that names a `path` needs none, as its data are drawn there.
    Weights of another run are left out.
    """
    own = [run for run in runs if run.experiment.init and ":" not in run.experiment.init.source]
    given = [setting for run in runs for setting in _overrides(run)]
    return list(dict.fromkeys([*given, *(["init=null"] if own else [])]))


def _overrides(run: Run) -> list[str]:
    key = f"matrix.dataset.{run.axes['dataset']}" if "dataset" in run.axes else "dataset"
    given = dict(run.dataset_config)
    if given.get("path"):
        return []
    if given.get("download"):
        return [f"{key}.params.path=data/uea"]
    sizes = [name for name in GENERATED if name in given]
    return [f"{key}.params.{name}={min(GENERATED[name], given[name])}" for name in sizes]
