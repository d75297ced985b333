"""Pictures in shards: splits, classes, order, damage. What a sample looks like is the
augmentation's.
"""

import hashlib
import io
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from sharded import indexed, jpeg, picture_folder, shard_folder
from splits import KEY

from subquad.data import NO_LABEL
from subquad.data.copies import check_copies
from subquad.engine.feed import training_batches
from subquad.errors import ConfigError, DataError
from subquad.plan import Permutation, PlanSettings, ShardWindow
from subquad_datasets.augment.pictures import evaluation
from subquad_datasets.decode import decode
from subquad_datasets.imagenet import PLUGIN, Config
from subquad_datasets.imagenet.dataset import ImageNet

EPOCH = {"epoch": 0, "seed": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three classes of twelve pictures in six shards, and of four for TEST."""
    root = tmp_path_factory.mktemp("shards")
    shard_folder(picture_folder(root / "train", each=12), root / "shards")
    return shard_folder(picture_folder(root / "val", each=4, first=100), root / "shards", "val")


def opened(folder: Path, **params) -> ImageNet:
    return ImageNet(Config(path=str(folder), size=16, **params), folder.parent / "root")


def test_a_sample_is_the_picture_that_its_key_names(folder):
    dataset = opened(folder, validation_fraction=0.25)
    for name, split in (
        ("train", dataset.split("validation")),
        ("val", dataset.split("test", KEY)),
    ):
        batch = split.fetch(np.arange(len(split)), **EPOCH)
        assert batch["inputs"].shape == (len(split), 3, 16, 16)
        assert not batch["bad"].any()
        for index in range(len(split)):
            key = split.name(index).rpartition(": ")[2]
            picture = (folder.parent / name / f"{key}.JPEG").read_bytes()
            assert np.array_equal(
                batch["inputs"][index], evaluation(dataset.config)(decode(picture))
            )
            assert key.startswith(f"n{batch['labels'][index]:02d}/")
            assert (
                split.digests()[index : index + 1].tobytes() == hashlib.sha256(picture).digest()[:8]
            )


def test_splits_are_cut_by_class(folder):
    dataset = opened(folder, validation_fraction=0.25)
    spec = dataset.describe()
    assert spec.sizes == {"train": 27, "validation": 9, "trainval": 36}
    assert (spec.class_names, spec.benchmark) == (("n00", "n01", "n02"), "")
    assert spec.notes == ("stand-in data: 36 pictures of 3 classes in shards, not ImageNet",)
    parts = {name: dataset.split(name) for name in ("train", "validation", "trainval")}
    assert np.bincount(parts["validation"].labels).tolist() == [3, 3, 3]
    keys = {
        name: {split.name(index) for index in range(len(split))} for name, split in parts.items()
    }
    assert keys["train"] | keys["validation"] == keys["trainval"]
    assert not keys["train"] & keys["validation"]
    assert [parts[name].training for name in parts] == [True, False, True]
    other = opened(folder, validation_fraction=0.25, split_seed=1).split("validation")
    assert {other.name(index) for index in range(9)} != keys["validation"]
    assert dataset.reference_scores(dataset.split("test", KEY)) == {"majority": 1 / 3}
    assert check_copies(dataset, dataset.split("test", KEY), validation=True) == ()


def test_imagenet_is_known_by_its_classes_and_numbers(folder, monkeypatch):
    dataset = opened(folder)
    names = tuple(f"n{number:08d}" for number in range(100))
    monkeypatch.setattr(ImageNet, "_classes", names)
    monkeypatch.setattr(ImageNet, "_train", SimpleNamespace(labels=np.repeat(np.arange(100), 1300)))
    assert dataset._kind()[0] == "imagenet-100"
    monkeypatch.setattr(ImageNet, "_train", SimpleNamespace(labels=np.repeat(np.arange(100), 500)))
    assert dataset._kind() == (
        "",
        "stand-in data: 50,000 pictures of 100 classes in shards, not ImageNet",
    )


def test_some_classes_are_numbered_anew(folder, tmp_path):
    (tmp_path / "two.txt").write_text("n02 comment\nn00\n")
    dataset = opened(folder, classes=str(tmp_path / "two.txt"))
    assert PLUGIN.label(dataset.config) == "two"
    assert dataset.describe().class_names == ("n00", "n02")
    split = dataset.split("trainval")
    assert np.bincount(split.labels).tolist() == [12, 12]
    assert all(
        split.name(index).rpartition(": ")[2][:3] == ("n00", "n02")[split.labels[index]]
        for index in range(24)
    )
    (tmp_path / "two.txt").write_text("n00\nn0\n")
    with pytest.raises(
        DataError, match=r"two.txt: class n0 is not among the 3 there are; did you mean 'n00'"
    ):
        opened(folder, classes=str(tmp_path / "two.txt")).describe()


def test_labels_without_names_are_their_numbers(tmp_path):
    for name, labels in (("train-0.tar", (0, 2)), ("val-0.tar", (1,))):
        members = [(f"{i}.jpg", jpeg(i, i)) for i in labels] + [
            (f"{i}.cls", b"%d" % i) for i in labels
        ]
        indexed(tmp_path / name, dict(sorted(members)))
    assert opened(tmp_path).describe().class_names == ("0", "1", "2")
    assert opened(tmp_path).split("test", KEY).labels.tolist() == [1]
    with pytest.raises(DataError, match=r"train-0.tar: 2: has label 2, and TRAIN has 2 classes"):
        opened(tmp_path, train="val-0.tar", test="train-0.tar").prepare()


def test_shards_come_in_random_order_and_samples_within_windows(folder):
    split = opened(folder, window=7).split("train")
    plan = split.plan(PlanSettings(batch_size=7, seed=3, epochs=2))
    assert isinstance(plan, ShardWindow)
    first, second = (
        np.concatenate([plan.batch(epoch * 5 + step)[1] for step in range(5)]) for epoch in range(2)
    )
    assert sorted(first) == sorted(second) == list(range(len(split)))
    assert first.tolist() != second.tolist()
    assert len(set(split.shards.shard_of(split.rows[first[:7]]))) <= 3
    whole = (
        opened(folder, window=None)
        .split("train")
        .plan(PlanSettings(batch_size=7, seed=3, epochs=2))
    )
    assert type(whole) is Permutation


@pytest.mark.parametrize("window", [None, 12])
@pytest.mark.parametrize("batch_size", [4, 9, 36])
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_pictures_may_be_repeated(folder, window, batch_size, repeats):
    split = opened(folder, window=window, repeats=repeats, mixup=0.5).split("trainval")
    plan = split.plan(PlanSettings(batch_size=batch_size, seed=1, epochs=2))
    assert plan.total_steps == 2 * -(-36 // batch_size)
    for epoch in range(2):
        steps = [
            plan.batch(epoch * plan.steps_per_epoch + step)[1]
            for step in range(plan.steps_per_epoch)
        ]
        order = np.concatenate(steps)
        assert len(set(order)) == len(order) == 36
        assert np.bincount(order % 36).max() == repeats
        assert len(set(order % 36)) == -(-36 // repeats)
        if batch_size >= 2 * repeats:
            assert all(
                step[i] % 36 != step[i + 1] % 36
                for step in steps
                for i in range(0, len(step) - 1, 2)
            )


def test_copies_of_a_picture_are_changed_apart(folder):
    split = opened(folder, repeats=3, auto_augment="rand-m9-mstd0.5").split("trainval")
    batch = split.fetch(np.array([4, 40, 76]), **EPOCH)
    assert len(set(batch["labels"].tolist())) == 1
    assert len({pixels.tobytes() for pixels in batch["inputs"]}) == 3
    assert split.name(4) == split.name(40) == split.name(76)
    with pytest.raises(
        ConfigError, match=r"train.bucket_batches: got 2, needs the samples' lengths"
    ):
        split.plan(PlanSettings(batch_size=4, seed=0, epochs=1, bucket_batches=2))


def sequence(split, ranks: int, workers: int) -> list:
    """Keys and pixels of all samples that ranks train on, step by step."""
    steps = [[] for _ in range(8)]
    for rank in range(ranks):
        parts = SimpleNamespace(
            plan=split.plan(PlanSettings(batch_size=9, seed=5, epochs=2)),
            group=SimpleNamespace(rank=rank, world_size=ranks, device=torch.device("cpu")),
            training=split,
            train=SimpleNamespace(micro_batch=4),
            task=SimpleNamespace(spec=SimpleNamespace(arrays={})),
            on_device=lambda arrays: {
                name: torch.as_tensor(values) for name, values in arrays.items()
            },
        )
        for step, (micros, _) in enumerate(training_batches(parts, 0, workers)):
            for micro in micros:
                inputs = micro.batch["inputs"].numpy() if micro.real else ()
                steps[step] += [hashlib.sha256(pixels.tobytes()).hexdigest() for pixels in inputs]
    return steps


def test_any_number_of_ranks_trains_on_the_same_sequence(folder):
    split = opened(
        folder, train="train-00000.tar", auto_augment="rand-m9-mstd0.5", mixup=0.8, erase=0.25
    ).split("trainval")
    single = sequence(split, 1, 0)
    assert [len(step) for step in single] == [7, 7, 0, 0, 0, 0, 0, 0]
    assert single[0] != single[1]
    for ranks in (2, 4):
        assert sequence(split, ranks, 0) == single


@pytest.mark.ci
def test_loader_processes_change_nothing(folder):
    split = opened(folder, auto_augment="rand-m9-mstd0.5", mixup=0.8, erase=0.25).split("trainval")
    assert sequence(split, 1, 2) == sequence(split, 1, 0)


@pytest.mark.extended
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_and_loader_processes_change_nothing(folder, ranks, workers):
    split = opened(folder, auto_augment="rand-m9-mstd0.5", mixup=0.8, erase=0.25).split("trainval")
    assert sequence(split, ranks, workers) == sequence(split, 1, 0)


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


GOOD = {
    "a": jpeg(0, 0),
    "cmyk": encoded(Image.new("CMYK", (20, 20))),
    "gray": encoded(Image.new("L", (20, 20), 9)),
}
BAD = {
    "bomb": encoded(Image.new("L", (10_000, 9_000)), "PNG"),
    "cut": jpeg(0, 0)[:300],
    "deep": encoded(Image.new("I;16", (9, 9)), "PNG"),
    "empty": b"",
    "bmp": encoded(Image.new("L", (9, 9)), "BMP"),
    "junk": bytes(range(256)),
}


def test_pictures_that_cannot_be_read_are_left_out(tmp_path):
    samples = [(key, end) for key in {**GOOD, **BAD} for end in ("jpg", "cls")]
    members = {
        f"{key}.{end}": {**GOOD, **BAD}[key] if end == "jpg" else b"0" for key, end in samples
    }
    indexed(tmp_path / "train-0.tar", members)
    indexed(tmp_path / "val-0.tar", {"b.jpg": jpeg(0, 1), "b.cls": b"0"})
    split = opened(tmp_path).split("trainval")
    batch = split.fetch(np.arange(9), **EPOCH)
    assert batch["bad"].tolist() == [False] * 3 + [True] * 6
    assert batch["labels"].tolist() == [0] * 3 + [NO_LABEL] * 6
    assert split.name(4) == f"{tmp_path}/train-0.tar: cut"
    strict = replace(split, strict=True)
    with pytest.raises(
        DataError, match=r"train-0.tar: bomb: 10000 x 9000 pixels, more than 89,478,485"
    ):
        strict.fetch(np.array([3]), **EPOCH)


@pytest.fixture
def copied(folder, tmp_path) -> Path:
    """The shards, to be damaged; only the first for TRAIN."""
    for name in ("train-00000.tar", "val-00000.tar"):
        for path in (folder / name, folder / f"{name}.index"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "classes.txt").write_text("n00\nn01\nn02\n")
    return tmp_path


def damaged(copied: Path, count: int) -> tuple[int, int]:
    """How many of so many truncations, and of so many flipped bits, of a shard are found."""
    shard, generator = copied / "train-00000.tar", np.random.default_rng(0)
    whole = shard.read_bytes()
    plain = opened(copied).split("trainval")
    before, cuts, flips = plain.fetch(np.arange(len(plain)), **EPOCH), 0, 0
    for place, bit in zip(
        generator.integers(0, len(whole), count), generator.integers(0, 8, count), strict=True
    ):
        shard.write_bytes(whole[:place])
        with pytest.raises(DataError, match=rf"^{shard}: has {place:,} bytes, and its index says"):
            opened(copied).prepare()
        cuts += 1
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        with pytest.raises(
            DataError, match=rf"^{shard}: has sha256 \w+, its index says \w+: it has changed"
        ):
            opened(copied, verify="once").prepare()
        rows = plain.shards.rows
        hit = (rows["offset"] <= place) & (place < rows["offset"] + rows["size"])
        after = plain.fetch(np.arange(len(plain)), **EPOCH)
        assert after["bad"].tolist() == hit.tolist()
        assert np.array_equal(after["inputs"][~hit], before["inputs"][~hit])
        flips += 1
    shard.write_bytes(whole)
    opened(copied, verify="once").prepare()
    return cuts, flips


def test_truncations_and_flipped_bits_are_found(copied):
    assert damaged(copied, 20) == (20, 20)


@pytest.mark.extended
def test_four_hundred_damages_are_found(copied):
    assert damaged(copied, 200) == (200, 200)


def test_sums_are_taken_once(copied, monkeypatch):
    opened(copied, verify="once").prepare()
    monkeypatch.setattr(
        "subquad_datasets.shards.reader.sha256_of", lambda path: pytest.fail(f"read {path} again")
    )
    opened(copied, verify="once").prepare()


def test_never_takes_what_is_there(copied):
    shard, split = copied / "train-00000.tar", opened(copied, verify="never").split("trainval")
    place, whole = int(split.shards.rows["offset"][0]), shard.read_bytes()
    shard.write_bytes(whole[:place] + jpeg(7, 7)[:50] + whole[place + 50 :])
    assert split.shards.read(0, verify=False)[:50] == jpeg(7, 7)[:50]


def test_a_shard_that_goes_away_while_training_costs_its_samples(copied):
    split = opened(copied).split("trainval")
    (copied / "train-00000.tar").unlink()
    assert split.fetch(np.arange(3), **EPOCH)["bad"].all()
    (copied / "train-00000.tar").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"train-00000.tar: n\d\d/n\d\d_\d+: cut off: 0 of \d+ bytes"
    ):
        replace(split, strict=True).fetch(np.arange(3), **EPOCH)


def test_what_is_missing_is_told_before_training(copied):
    with pytest.raises(DataError, match=rf"^{copied}/trian-\*.tar: no shard has such a name$"):
        opened(copied, train="trian-*.tar").prepare()
    with pytest.raises(DataError, match=r"train-3.tar: does not exist$"):
        opened(copied, train="train-{3..4}.tar").prepare()
    (copied / "val-00000.tar.index").unlink()
    with pytest.raises(
        DataError, match=r"val-00000.tar.index: does not exist; make it: subquad data index"
    ):
        opened(copied).prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_shard_that_may_not_be_read_is_told(copied):
    (copied / "train-00000.tar.index").chmod(0)
    with pytest.raises(
        DataError, match=r"train-00000.tar.index: cannot be read: Permission denied"
    ):
        opened(copied).prepare()


@pytest.mark.parametrize("name", ["s3://bucket/train-*.tar", "/etc/train.tar", "../train-*.tar"])
def test_names_of_shards_lie_in_the_folder(name):
    with pytest.raises(
        ValidationError,
        match=f"train '{name}' must be the name of shards in the folder of path".replace(
            "*", r"\*"
        ),
    ):
        Config(path="folder", train=name)


def test_a_shard_can_be_predicted(folder):
    dataset = opened(folder)
    labelled = dataset.open_file(folder / "val-00000.tar", labelled=True)
    assert labelled.strict
    assert set(labelled.labels) <= {0, 1, 2}
    assert set(dataset.open_file(folder / "val-00000.tar", labelled=False).labels) == {NO_LABEL}


def test_a_file_of_names_that_is_none_is_not_passed_over(folder, tmp_path):
    home = tmp_path / "shards"
    home.mkdir()
    for path in folder.iterdir():
        (home / path.name).symlink_to(path)
    assert opened(home).files_read() == ("classes.txt: 3 names",)
    (home / "classes.txt").unlink()
    dataset = opened(home)
    assert dataset.files_read() == (
        "classes.txt: not there, so classes are called by their numbers",
    )
    assert dataset.describe().class_names == ("0", "1", "2")
    (home / "classes.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"classes\.txt: is a link that leads nowhere"):
        opened(home).describe()
