"""Real data read as one's own: by hand, with SUBQUAD_REAL_DATA=FOLDER of the files."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import subquad
from subquad.data import TestKey
from subquad_datasets.image_folder import Config as ImageConfig
from subquad_datasets.image_folder.dataset import ImageFolder
from subquad_datasets.table import Config as TableConfig
from subquad_datasets.table.dataset import Table
from subquad_datasets.text.lines import json_rows
from subquad_datasets.text_files import Config as TextConfig
from subquad_datasets.text_files.dataset import TextFiles
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset

SHARED = Path(os.environ.get("SUBQUAD_REAL_DATA", "nowhere"))
KEY = TestKey("own", "test of the data set")
pytestmark = pytest.mark.extended


def need(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not here")
    return SHARED / name


def test_tiny_imagenet_as_folders(tmp_path: Path):
    source = need("tiny_imagenet_20")
    for part, archive in (("train", "train.tar"), ("test", "val.tar")):
        with tarfile.open(source / archive) as tar:
            tar.extractall(tmp_path / "tiny" / part, filter="data")
    dataset = ImageFolder(ImageConfig(path=str(tmp_path / "tiny"), size=64), tmp_path / "root")
    spec = dataset.describe()
    assert (spec.num_classes, spec.sizes) == (
        20,
        {"train": 9000, "validation": 1000, "trainval": 10_000},
    )
    for name, count in (("train", 9000), ("test", 1000)):
        split = dataset.split(name, KEY)
        batch = split.fetch(np.arange(len(split)), epoch=0, seed=0)
        assert (len(split), batch["bad"].sum()) == (count, 0)


@pytest.mark.parametrize(
    "problem", ["ArticularyWordRecognition", "BasicMotions", "ERing", "JapaneseVowels", "Libras"]
)
def test_a_uea_problem_as_csv(problem: str, tmp_path: Path):
    need(f"uea/{problem}")
    raw, uea = (
        UeaDataset(UeaConfig(problem=problem, path=str(SHARED / "uea"), normalize=scaled), tmp_path)
        for scaled in (False, True)
    )
    names, folder = uea.describe().class_names, tmp_path / "csv"
    folder.mkdir()
    for part, name in (("trainval", "train"), ("test", "test")):
        split = raw.split(part, KEY)
        whole = split.fetch(np.arange(len(split)), epoch=0, seed=0)
        channels = [f"c{c}" for c in range(whole["inputs"].shape[2])]
        rows = [",".join(["id", *channels, "label"])]
        for n, step in np.argwhere(whole["keep"]):
            values = [repr(float(input)) for input in whole["inputs"][n, step]]
            rows.append(",".join([f"s{n}", *values, names[whole["labels"][n]]]))
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    table = Table(TableConfig(path=str(folder)), tmp_path)
    for part in ("train", "validation", "test"):
        expected, found = (
            source.split(part, KEY).fetch(np.arange(len(source.split(part, KEY))), epoch=0, seed=0)
            for source in (uea, table)
        )
        assert np.array_equal(found["keep"], expected["keep"])
        assert np.array_equal(found["labels"], expected["labels"])
        # raw values went through float32
        np.testing.assert_allclose(found["inputs"], expected["inputs"], atol=1e-4)


def test_reviews_as_json_lines(tmp_path: Path):
    source, folder = need("imdb"), tmp_path / "imdb"
    folder.mkdir()
    for part in ("train", "test"):
        with (folder / f"{part}.jsonl").open("w") as stream:
            for label in ("neg", "pos"):
                for number, (text,) in json_rows(source / f"{part}_{label}.jsonl.xz", "text"):
                    if number <= 300:
                        stream.write(json.dumps({"text": text.decode(), "label": label}) + "\n")
    dataset = TextFiles(
        TextConfig(path=str(folder), tokenizer="bpe", vocab_size=2000), tmp_path / "root"
    )
    assert dataset.describe().sizes["trainval"] == 600
    text = (
        f"dataset: {{name: text-files, params: {{path: {folder}, max_len: "
        f"128}}}}\ntask: classification\n"
        "mixer: linear\n"
        "backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2}}\n"
        "train: {epochs: 1, batch_size: 32, lr: 1e-3}\n"
    )
    (tmp_path / "own.yaml").write_text(text)
    (result,) = subquad.train(tmp_path / "own.yaml", [], root=tmp_path)
    assert result["test"]["samples"] == 600
