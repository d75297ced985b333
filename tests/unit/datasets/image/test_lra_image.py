"""LRA Image: the archive, image files, tars, gray values, pixel rules, splits and bad files."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
from fractions import Fraction
from math import floor
from pathlib import Path

import cifar_layouts as layouts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splits import KEY, REAL_DATA, batch, dataset_of, of_real_data

from subquad.errors import DataError
from subquad_datasets.image.gray import to_gray

SIDE = 4
DATASET = ("lra-image", {"side": SIDE, "validation_fraction": 0.2})


def read(dataset, name: str) -> tuple[np.ndarray, list[int]]:
    found = batch(dataset, name)
    return found["inputs"], found["labels"].tolist()


def gray_of(colours: np.ndarray) -> np.ndarray:
    """(N, 3, side, side) to (N, side side): the formula in fractions, one pixel after the other."""
    weights = [Fraction(2989, 10_000), Fraction(5870, 10_000), Fraction(1140, 10_000)]
    rows = colours.transpose(0, 2, 3, 1).reshape(len(colours), -1, 3).tolist()
    return np.array([[_gray(weights, pixel) for pixel in row] for row in rows])


def _gray(weights: list[Fraction], pixel: list[int]) -> int:
    total = sum((weight * value for weight, value in zip(weights, pixel, strict=True)), Fraction(0))
    return floor(total / 255 * Fraction(2555, 10))


def encode(colours: np.ndarray, kind: str) -> bytes:
    """(3, side, side) uint8 as an image file."""
    image_module = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image_module.fromarray(colours.transpose(1, 2, 0).copy()).save(stream, kind)
    return stream.getvalue()


def write_files(root: Path, kind: str = "PNG", ending: str = ".png") -> np.ndarray:
    """Two classes with 5 TRAIN and 1 TEST images each; returns TRAIN's colours in the order of
    the data set.
    """
    colours = layouts.images(3, 12, SIDE)
    for index, image in enumerate(colours):
        split, label = ("train", "ab"[index // 5]) if index < 10 else ("test", "ab"[index - 10])
        path = root / split / label / f"{index:03}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image, kind))
    return colours[:10]


def pack_tar(folder: Path, path: Path, mode: str = "w:xz") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for file in sorted(folder.rglob("*"), reverse=True):
            tar.add(file, arcname=str(file.relative_to(folder)), recursive=False)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_gray_values_follow_the_formula(colour: tuple[int, int, int]):
    image = np.array([[[[value]] for value in colour]], dtype=np.uint8)
    assert to_gray(image.transpose(0, 2, 3, 1)).item() == gray_of(image).item()


def test_gray_of_gray_is_itself():
    values = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    assert np.array_equal(to_gray(values), np.arange(256))


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_the_archive_as_a_folder(make, data, inside: str):
    colours, labels = layouts.write_archive(data / inside, SIDE)
    dataset = make()
    dataset.prepare()
    inputs, found = read(dataset, "trainval")
    assert np.array_equal(inputs, gray_of(colours) + 1)
    assert found == labels
    spec = dataset.describe()
    assert (spec.target, spec.max_len, spec.vocab_size, spec.equal_length) == (
        "class",
        16,
        257,
        True,
    )
    assert spec.class_names == ("frog", "cat")
    assert spec.sizes == {"train": 16, "validation": 4, "trainval": 20}
    assert spec.notes == (
        "stand-in data: laid out as CIFAR-10, but batches.meta, data_batch_1, "
        "data_batch_2, data_batch_3, "
        "data_batch_4, data_batch_5 differ from the released files (md5)",
    )
    assert read(dataset, "test")[1] == [1, 0]


@pytest.mark.parametrize(("name", "mode"), [("c.tar.gz", "w:gz"), ("c.tar", "w")])
def test_the_archive_as_a_tar(make, data, tmp_path, name: str, mode: str):
    colours, _ = layouts.write_archive(data / "cifar-10-batches-py", SIDE)
    pack_tar(data, tmp_path / name, mode)
    dataset = make(path=str(tmp_path / name))
    dataset.prepare()
    assert np.array_equal(read(dataset, "trainval")[0], gray_of(colours) + 1)
    assert len(read(dataset, "test")[1]) == 2


def test_released_files_need_no_note(make, data, monkeypatch):
    import hashlib

    from subquad_datasets.image import archive

    layouts.write_archive(data, SIDE)
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in data.iterdir()}
    monkeypatch.setattr(archive, "OFFICIAL", sums)
    assert make().describe().notes == ()


@pytest.mark.parametrize("tarred", [False, True])
def test_png_files(make, data, tmp_path, tarred: bool):
    colours = write_files(data)
    if tarred:
        pack_tar(data, tmp_path / "images.tar.xz")
    dataset = make(path=str(tmp_path / "images.tar.xz")) if tarred else make()
    dataset.prepare()
    inputs, labels = read(dataset, "trainval")
    assert np.array_equal(inputs, gray_of(colours) + 1)
    assert labels == [0] * 5 + [1] * 5
    assert len(read(dataset, "test")[1]) == 2
    name = "images.tar.xz" if tarred else "data"
    assert dataset.describe().notes == (
        f"stand-in data: 10 train images of {name} (PNG), not CIFAR-10",
    )


def test_jpeg_files_are_near_and_labelled(make, data, monkeypatch):
    from subquad_datasets.image import source

    write_files(data, "JPEG", ".jpg")
    assert make().describe().notes == (
        "stand-in data: 10 train images of data (JPEG), not CIFAR-10",
    )
    monkeypatch.setattr(source, "CLASSES", ("a", "b"))
    monkeypatch.setattr(source, "_PER_CLASS", {"train": 5})
    made = make()
    made.root = made.root / "anew"
    assert made.describe().notes == (
        "stand-in data: CIFAR-10 (JPEG), a lossy copy of the released images",
    )


def test_the_official_pixel_rule(make, data):
    colours, _ = layouts.write_archive(data, SIDE)
    dataset = make(pixels="official")
    batch = dataset.load("trainval").fetch(np.arange(20), epoch=0, seed=0)
    assert np.array_equal(batch["inputs"], gray_of(colours))
    assert np.array_equal(batch["keep"], gray_of(colours) != 0)
    assert not batch["keep"].all()
    spec = dataset.describe()
    assert (spec.vocab_size, spec.equal_length) == (256, False)
    assert spec.notes[1:] == (
        "pixels official: black pixels count as padding, as in the published code",
    )
    assert make().load("train").fetch(np.arange(3), epoch=0, seed=0)["keep"].all()


def test_the_validation_part(make, data):
    layouts.write_archive(data, SIDE)
    every = [row.tobytes() for row in read(make(), "trainval")[0]]
    train, validation = (
        [row.tobytes() for row in read(make(validation="last"), name)[0]]
        for name in ("train", "validation")
    )
    assert train + validation == every
    assert len(validation) == 4
    assert sorted(read(make(), "validation")[1]) == [0, 0, 1, 1]
    assert (
        read(make(split_seed=1), "validation")[0].tolist() != read(make(), "validation")[0].tolist()
    )
    with pytest.raises(
        DataError, match=r"validation_fraction 0\.01 of 20 images leaves one part empty"
    ):
        make(validation="last", validation_fraction=0.01).load("train")


def test_image_files_have_no_order_to_take_the_last_of(make, data):
    write_files(data)
    with pytest.raises(
        DataError,
        match=r"params\.validation: last needs the archive's order; .* come class by class",
    ):
        make(validation="last").describe()


def test_other_classes_in_test(make, data):
    write_files(data)
    (data / "test" / "b").rename(data / "test" / "c")
    with pytest.raises(
        DataError, match=r"TEST has the classes \['a', 'c'\], TRAIN has \['a', 'b'\]"
    ):
        make().split("test", KEY)


BATCH = layouts.images(5, 2, SIDE).reshape(2, -1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (layouts.batch(BATCH, [0, 2]), r"data_batch_3: label 2 of image 1 must be 0 to 1$"),
        (layouts.batch(BATCH, [0, -1]), r"data_batch_3: label -1 of image 1 must be 0 to 1$"),
        (
            layouts.batch(BATCH, [0]),
            r"data_batch_3: 'labels' must be a list with one entry for each of 2 images",
        ),
        (
            layouts.batch(BATCH[:, :-1], [0, 1]),
            r"data_batch_3: 'data' must be .* \(images, 48\) with side 4, not \(2, 47",
        ),
        (
            layouts.mapping(labels=layouts.listing([])),
            r"data_batch_3: 'data' must be .*, not NoneType",
        ),
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", r"data_batch_3: refused: it asks for os\.system"),
        (None, r"data: data_batch_3 is missing$"),
    ],
)
def test_bad_batches(make, data, tmp_path, content: bytes | None, message: str):
    layouts.write_archive(data, SIDE)
    path = data / "data_batch_3"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        make().prepare()
    assert list((tmp_path / "root").rglob("*.npy")) == []
    layouts.write_archive(data, SIDE)
    assert len(read(make(), "trainval")[1]) == 20


def test_a_bad_list_of_classes(make, data):
    layouts.write_archive(data, SIDE)
    (data / "batches.meta").write_bytes(layouts.mapping(label_names=layouts.listing([])))
    with pytest.raises(
        DataError, match=r"batches\.meta: no list of class names under 'label_names'"
    ):
        make().prepare()


def test_bad_image_files(make, data):
    write_files(data)
    bad = data / "train" / "b" / "007.png"
    good = bad.read_bytes()
    bad.write_bytes(good[:40])
    with pytest.raises(DataError, match=r"train/b/007\.png: not a readable PNG or JPEG image"):
        make().prepare()
    bad.write_bytes(encode(layouts.images(0, 1, 5)[0], "PNG"))
    with pytest.raises(DataError, match=r"007\.png: 5 x 5 pixels, must be 4 x 4 \(params\.side\)"):
        make().prepare()
    bad.write_bytes(encode(layouts.images(0, 1, 4)[0], "GIF"))
    with pytest.raises(
        DataError,
        match=r"007\.png: not a readable PNG or JPEG image \(another format, or damaged\)$",
    ):
        make().prepare()
    bad.write_bytes(good)
    make().prepare()


def test_a_format_is_told_by_content(make, data, tmp_path):
    write_files(data, "JPEG", ".png")
    assert make().describe().notes == (
        "stand-in data: 10 train images of data (JPEG), not CIFAR-10",
    )


def test_a_lossy_test_split_is_labelled_when_it_is_opened(make, data, monkeypatch):
    from subquad_datasets.image import source

    monkeypatch.setattr(source, "CLASSES", ("a", "b"))
    monkeypatch.setattr(source, "_PER_CLASS", {"train": 5, "test": 1})
    write_files(data)
    assert make().describe().notes == (
        "CIFAR-10 (PNG files, not compared with the released archive)",
    )
    assert make().load("test").notes == ()
    (data / "test" / "b" / "011.png").write_bytes(encode(layouts.images(0, 1, SIDE)[0], "JPEG"))
    again = make().load("test")
    for split in (again, pickle.loads(pickle.dumps(again))):  # noqa: S301  (our own bytes)
        assert split.notes == (
            "stand-in data: CIFAR-10 (JPEG and PNG), a lossy copy of the released images",
        )


def test_the_manifest_holds_the_sum_of_a_tar(make, data, tmp_path):
    write_files(data)
    path = tmp_path / "images.tar"
    pack_tar(data, path, "w")
    make(path=str(path)).prepare()
    found = [
        json.loads(each.read_text())["facts"]["sources"]
        for each in (tmp_path / "root").rglob("manifest.json")
    ]
    assert found == 2 * [{"images.tar": hashlib.sha256(path.read_bytes()).hexdigest()}]


def test_bad_tars(make, data, tmp_path):
    write_files(data)
    path = tmp_path / "images.tar.xz"
    pack_tar(data, path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"images\.tar\.xz: not a readable tar, or cut off"):
        make(path=str(path)).prepare()
    with tarfile.open(path, "w:xz") as tar:
        for _ in range(2):
            tar.add(data / "train" / "a" / "000.png", arcname="train/a/000.png")
    with pytest.raises(DataError, match=r"images\.tar\.xz: member train/a/000\.png is there twice"):
        make(path=str(path)).prepare()


def test_a_link_in_a_tar_is_no_image(make, data, tmp_path):
    write_files(data)
    path = tmp_path / "images.tar"
    pack_tar(data, path, "w")
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("train/a/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    assert make(path=str(path)).describe().sizes["trainval"] == 10


def test_nothing_there(make, data):
    data.rmdir()
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*data does not exist"):
        make().prepare()
    data.mkdir()
    with pytest.raises(
        DataError,
        match=r"has neither CIFAR-10's batches of train nor train/<class>/\*\.png, \*\.jpg",
    ):
        make().prepare()


@of_real_data
def test_cifar_10_as_jpeg(tmp_path):
    path = str(REAL_DATA / "cifar10_jpeg" / "cifar10_jpeg.tar.xz")
    dataset = dataset_of("lra-image", tmp_path, path=path)
    dataset.prepare()
    spec = dataset.describe()
    assert spec.sizes == {"train": 45_000, "validation": 5_000, "trainval": 50_000}
    assert spec.notes == ("stand-in data: CIFAR-10 (JPEG), a lossy copy of the released images",)
    inputs, labels = read(dataset, "test")
    assert np.array_equal(np.bincount(labels), [1000] * 10)
    # of the channels' means .491, .482 and .447
    assert abs((inputs - 1).mean() / 255 - 0.48) < 0.01
