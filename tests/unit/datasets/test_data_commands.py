"""`subquad data list|prepare|show`: what lies prepared, preparing without training, descriptions
and pictures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from command import cli
from pictures import write_folder
from PIL import Image

import subquad
from subquad.data import ArraySplit, Dataset, DataSpec, SplitName
from subquad.errors import ConfigError, DataError, UserError
from subquad.experiment import load_study
from subquad.plugin import Config
from subquad.preparation.preflight import check_parts
from subquad_datasets.commands import data_command
from subquad_datasets.shown import described, draw_samples, length_quantiles, prepared_folders


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def pets(tmp_path: Path) -> str:
    for part in ("train", "test"):
        write_folder(tmp_path / f"pets/{part}", {"cat": 6, "dog": 6}, seed=len(part))
    return f"dataset.params.path={tmp_path / 'pets'}"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(data_command, arguments, catch_exceptions=False)


class Known(Dataset):
    """Six samples of what a test says."""

    spec: DataSpec
    arrays: dict[str, np.ndarray]

    def describe(self) -> DataSpec:
        return self.spec

    def load(self, name: SplitName) -> ArraySplit:
        assert name != "test"
        return ArraySplit(self.arrays)


def drawn(spec: DataSpec, labels: np.ndarray, folder: Path) -> tuple[int, int]:
    """Width and height of the picture of six samples."""
    dataset = Known(Config(), Path())
    dataset.spec, dataset.arrays = spec, {**spec.example(6), "labels": labels}
    draw_samples(dataset, folder / "new/some.png", 6)
    with Image.open(folder / "new/some.png") as picture:
        assert len(set(picture.convert("L").tobytes())) > 1
        return picture.size


KINDS = [
    (DataSpec.images(8, 8, num_classes=2, class_names=("a$", "b")), np.array([0, 1, -1, 0, 1, 0])),
    (
        DataSpec.images(8, 8, 1, target="values", values={"age": (1.0, 2.0)}),
        np.full((6, 1), 3.0, np.float32),
    ),
    (
        DataSpec.series(5, 2, target="multilabel", num_classes=2, class_names=("a", "b")),
        np.eye(2, dtype=np.float32)[[0] * 6],
    ),
    (DataSpec.tokens(7, 9, num_classes=2, class_names=("a", "b")), np.zeros(6, np.int64)),
    (
        DataSpec.tokens(7, 9, target="next-token", text=lambda ids: "$x\x1b" * len(ids)),
        np.zeros((6, 7), np.int64),
    ),
]


@pytest.mark.parametrize(("spec", "labels"), KINDS)
def test_samples_of_every_kind_are_drawn(spec: DataSpec, labels: np.ndarray, tmp_path: Path):
    assert drawn(spec, labels, tmp_path) == (1280, 480)


def test_a_description_is_plain_and_leaves_out_what_is_empty():
    about = described(DataSpec.tokens(7, 9, num_classes=2, text=str, token_bytes=(1,) * 9))
    assert json.loads(json.dumps(about)) == {
        "arrays": {"inputs": ["length", "int64"], "keep": ["length", "bool"], "labels": ["int64"]},
        "lengths": {"length": 7},
        "target": "class",
        "vocab_size": 9,
        "num_classes": 2,
    }


def test_show_describes_and_draws_a_data_set(root: Path, pets: str, tmp_path: Path):
    given = ["image-folder", pets, "dataset.params.size=16", "dataset.params.mixup=1.0"]
    found = json.loads(
        call("show", *given, "--out", str(tmp_path), "--json", "--samples", "4").stdout
    )
    assert list(found) == ["pets"]
    assert found["pets"]["sizes"] == {"train": 10, "validation": 2, "trainval": 12}
    assert Path(found["pets"]["picture"]).read_bytes().startswith(b"\x89PNG")
    text = call("show", *given, "--out", str(tmp_path)).stdout
    assert '  class_names: ["cat", "dog"]\n' in text


def test_names_of_classes_are_printed_with_their_letters(root: Path, tmp_path: Path):
    rows = "".join(f"s{n};{n};{('läuft', 'Füße')[n % 2]}\r\n" for n in range(20))
    (tmp_path / "own.csv").write_text(f"id;x;label\r\n{rows}", "utf-16")
    given = ("table", f"dataset.params.path={tmp_path}/own.csv", "dataset.params.test_fraction=0.3")
    text = call("show", *given, "--out", str(tmp_path)).stdout
    assert '\n  class_names: ["Füße", "läuft"]\n' in text
    assert "own.csv: CSV in UTF-16, separated by semicolons, 20 rows of 20 series" in text


def test_show_says_quantiles_of_the_lengths_of_training_samples(root: Path, tmp_path: Path):
    given = ["uea", "dataset.params.problem=JapaneseVowels", "--out", str(tmp_path)]
    found = json.loads(call("show", *given, "--json").stdout)["JapaneseVowels"]
    split = subquad.datasets("uea", given[1:2])["JapaneseVowels"].split("train")
    lengths = split.lengths()
    assert lengths is not None
    ordered = sorted(lengths.tolist())
    quantiles = found["training_lengths"]
    assert list(quantiles) == ["min", "10 %", "50 %", "90 %", "99 %", "max"]
    assert (quantiles["min"], quantiles["max"]) == (ordered[0], ordered[-1])
    assert quantiles["50 %"] == ordered[(len(ordered) + 1) // 2 - 1]
    assert "  training_lengths: {" in call("show", *given).stdout


def test_equal_or_unknown_lengths_have_no_quantiles(root: Path, pets: str):
    (pictures,) = subquad.datasets("image-folder", [pets, "dataset.params.size=16"]).values()
    assert length_quantiles(pictures) == {}
    (equal,) = subquad.datasets("uea", ["dataset.params.problem=BasicMotions"]).values()
    assert length_quantiles(equal) == {}


def test_prepared_data_are_listed_and_damage_is_told(root: Path, pets: str):
    assert "0 data sets" in call("list").stdout
    assert (
        call("prepare", "image-folder", pets).stdout
        == "pets: train 10, validation 2, trainval 12\n"
    )
    found = json.loads(call("list", "--json").stdout)
    assert [(line["about"]["pictures"], line["fault"]) for line in found] == [(12, ""), (12, "")]
    assert "2 data sets" in call("list").stdout
    file = root / found[0]["folder"] / "digests.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert [folder["fault"] for folder in prepared_folders(root, sums=True)].count(
        "digests.npy: changed since it was written"
    ) == 1
    (root / found[1]["folder"] / "manifest.json").write_text("{}")
    assert any("missing or damaged" in folder["fault"] for folder in prepared_folders(root))


def test_data_sets_of_a_recipe_and_of_a_name(root: Path):
    assert list(subquad.datasets("quickstart")) == ["JapaneseVowels", "recall"]
    found = subquad.datasets("copy", ["dataset.params.train_size=20"])
    assert found["copy"].describe().sizes["train"] == 20


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ("prepare", "copy", "train.lr=1"),
            ConfigError,
            "copy is a data set, which has dataset.params.KEY=VALUE only",
        ),
        (
            ("prepare", "copy", "dataset.params.train_sze=1"),
            ConfigError,
            "train_sze.*did you mean 'train_size'",
        ),
        (("prepare", "quickstrt"), UserError, "quickstart"),
        (
            ("show", "image-folder", "dataset.params.path=/nowhere"),
            DataError,
            "/nowhere is not a folder",
        ),
    ],
)
def test_mistakes_are_told(root, arguments, error, message):
    with pytest.raises(error, match=message):
        call(*arguments)


def test_settings_alone_are_no_target(root: Path):
    done: Any = call("prepare", "dataset.params.path=x")
    assert done.exit_code == 2
    assert "Missing argument 'TARGET...'" in done.stderr


def test_a_name_that_nothing_has_gets_the_nearest(tmp_path):
    done = cli(["data", "show", "imagnet"], tmp_path, check=2)
    assert (
        done.stderr
        == "subquad: 'imagnet': no such recipe, file or data set; did you mean 'imagenet'?\n"
    )


OWN = """
name: own
dataset: {name: DATA, params: {path: PATH, MORE}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 8, num_heads: 1}}
mixer: identity
train: {epochs: 1, batch_size: 4, lr: 1.0e-3}
"""


def test_show_refuses_what_training_refuses(root: Path, pets: str, tmp_path: Path):
    folder = Path(pets.partition("=")[2])
    text = (
        OWN.replace("DATA", "image-folder").replace("PATH", str(folder)).replace("MORE", "size: 8")
    )
    encoder = "{name: encoder, params: {num_layers: 1, dim: 8, num_heads: 1}}"
    text = text.replace(
        encoder, "{name: timm-vit, params: {model: deit_tiny_patch16_224, patch_size: 4, depth: 1}}"
    )
    (tmp_path / "own.yaml").write_text(text)
    picture = next((folder / "train").glob("*/*.png"))
    picture.write_bytes(picture.read_bytes()[:60])
    with pytest.raises(
        DataError, match=rf"1 of \d+ samples cannot be read, the last .*{picture.name}"
    ):
        call("show", str(tmp_path / "own.yaml"), "--out", str(tmp_path))
    shown = call("show", str(tmp_path / "own.yaml"), "train.max_bad=0.5", "--out", str(tmp_path))
    assert f"pictures that cannot be read: 1 of 12 ({picture})" in shown.stdout


def test_a_test_file_that_cannot_be_read_is_refused_before_training(root: Path, tmp_path: Path):
    folder = tmp_path / "walks"
    folder.mkdir()
    rows = [f"s{n},{t},{n + t},{'xy'[n % 2]}\n" for n in range(8) for t in range(3)]
    (folder / "train.csv").write_text("id,t,a,label\n" + "".join(rows))
    (folder / "test.csv").write_text("id,t,a,label\ns0,0,1,x\ns0,soon,2,x\n")
    text = OWN.replace("DATA", "table").replace("PATH", str(folder)).replace("MORE", "time: t")
    (tmp_path / "own.yaml").write_text(text)
    message = r"test\.csv:3: column 't': 'soon' is text"
    for target in (
        ["table", f"dataset.params.path={folder}", "dataset.params.time=t"],
        [str(tmp_path / "own.yaml")],
    ):
        with pytest.raises(DataError, match=message):
            call("show", *target, "--out", str(tmp_path))
    with pytest.raises(DataError, match=message):
        check_parts(load_study(str(tmp_path / "own.yaml")))
