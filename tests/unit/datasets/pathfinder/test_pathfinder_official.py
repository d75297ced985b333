"""The official layout: both forms of metadata, splits, and faults with file and line."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import pytest
from splits import KEY, everything

from subquad.errors import DataError
from subquad_datasets.pathfinder import official
from subquad_datasets.pathfinder.dataset import shuffled
from subquad_datasets.pathfinder.official import find_folder, read_listing

HARD = "lra_release/pathfinder32/curv_contour_length_14"


def all_images(image_of) -> np.ndarray:
    """(20, 1024) in the order of the files."""
    return np.array(
        [image_of(folder, number).ravel() for folder in range(2) for number in range(10)]
    )


@pytest.mark.parametrize("form", ["text", "array"])
def test_both_forms_of_metadata_give_the_images_in_file_order(release, pathfinder, image_of, form):
    dataset = pathfinder(path=release(form), split="google", pixels="official")
    parts = [everything(dataset.split(name, KEY)) for name in ("train", "validation", "test")]
    assert [len(part["labels"]) for part in parts] == [16, 2, 2]
    assert np.array_equal(np.concatenate([part["inputs"] for part in parts]), all_images(image_of))
    assert np.concatenate([part["labels"] for part in parts]).tolist() == [0, 1] * 10
    assert np.array_equal(parts[0]["keep"], parts[0]["inputs"] > 0)


def test_the_seeded_split_is_a_shuffle_that_never_changes(release, pathfinder, image_of):
    dataset = pathfinder(path=release())
    parts = [
        everything(dataset.split(name, KEY))["inputs"] - 1
        for name in ("train", "validation", "test")
    ]
    order = shuffled(20, 0)
    rows = [np.sort(part) for part in (order[:16], order[16:18], order[18:])]
    assert [part.tolist() for part in rows[1:]] == [[6, 14], [7, 18]]
    for part, expected in zip(parts, rows, strict=True):
        assert np.array_equal(part, all_images(image_of)[expected])
    assert not np.array_equal(shuffled(20, 0), shuffled(20, 1))


def test_description_of_official_images(release, pathfinder):
    spec = pathfinder(path=release()).describe()
    assert spec.sizes == {"train": 16, "validation": 2, "trainval": 18}
    assert spec.notes == (
        "Pathfinder 32, hard",
        "split: shuffled with split_seed 0, then 80/10/10 %",
        "stand-in data: curv_contour_length_14 lists 20 images, the release 200,000",
        "where the two discs stand says something about the label: see the "
        "reference disc positions",
    )


def test_the_manifest_holds_one_sum_of_all_images(release, pathfinder):
    root = release()
    dataset = pathfinder(path=root, split="google")
    dataset.prepare()
    folder = find_folder(root, 32, "hard")
    names = [f"imgs/{number // 10}/sample_{number % 10}.png" for number in range(18)]
    listed = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names
    )
    (manifest,) = dataset.root.rglob("manifest.json")
    assert json.loads(manifest.read_text())["facts"]["sources"] == {
        "curv_contour_length_14: 18 images": hashlib.sha256(listed.encode()).hexdigest()
    }


def test_the_known_empty_image_is_skipped_and_counted(release, pathfinder, monkeypatch):
    root = release(leaf="curv_baseline")
    folder = find_folder(root, 32, "easy")
    monkeypatch.setitem(official.KNOWN_EMPTY, (32, "easy"), frozenset({"imgs/0/sample_7.png"}))
    (folder / "imgs/0/sample_7.png").write_bytes(b"")
    dataset = pathfinder(path=root, difficulty="easy", split="google")
    assert "1 known empty image skipped" in dataset.describe().notes
    assert sum(len(dataset.split(name, KEY)) for name in ("train", "validation", "test")) == 19


def test_the_published_empty_image_is_the_one():
    assert set(official.KNOWN_EMPTY) == {(32, "easy")}
    assert official.KNOWN_EMPTY[32, "easy"] == {"imgs/0/sample_172.png"}


def test_metadata_files_are_read_by_number(release):
    folder = find_folder(release(folders=3, each=1), 32, "hard")
    (folder / "metadata/2.npy").rename(folder / "metadata/10.npy")
    (folder / "metadata/notes.npy").write_text("not metadata")
    assert read_listing(folder, 32, "hard").names == tuple(
        f"imgs/{number}/sample_0.png" for number in range(3)
    )


def test_test_images_are_not_touched_before_test_is_opened(release, pathfinder):
    root = release()
    for number in (8, 9):
        (
            root / "lra_release/pathfinder32/curv_contour_length_14/imgs/1" / f"sample_{number}.png"
        ).write_bytes(b"junk")
    dataset = pathfinder(path=root, split="google")
    dataset.prepare()
    assert dataset.describe().sizes["trainval"] == 18
    with pytest.raises(
        DataError,
        match=r"imgs/1/sample_8.png: cannot be read as a PNG \(another format, or damaged\)$",
    ):
        dataset.split("test", KEY)


@pytest.mark.parametrize("below", ["", "lra_release", "lra_release/pathfinder32", HARD])
def test_any_folder_of_the_release_will_do(release, below):
    assert find_folder(release() / below, 32, "hard").name == "curv_contour_length_14"


def test_a_folder_without_these_images_is_refused(release):
    with pytest.raises(
        DataError,
        match="no pathfinder64/curv_baseline/metadata here; path is the folder of the Long",
    ):
        find_folder(release(), 64, "easy")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            b"imgs/0 sample_3.png 3 1 1.0 14 4",
            "metadata/0.npy:4: 7 columns, not 11; is the file complete?",
        ),
        (
            b"imgs/0 sample_3.png 3 2 1.0 14 4 2 0.5 1 1",
            "metadata/0.npy:4: label '2' in column 3, not 0 or 1",
        ),
        (
            b"imgs/0 sample_\xff.png 3 1 1.0 14 4 2 0.5 1 1",
            r"metadata/0.npy:4: not UTF-8 text \(invalid start byte\)",
        ),
        (b"", "metadata/0.npy:4: 0 columns, not 11"),
        (
            b"imgs/0 ../../x.png 3 1 1.0 14 4 2 0.5 1 1",
            "metadata/0.npy:4: 'imgs/0/../../x.png' is no PNG below",
        ),
        (
            b"/etc passwd 3 1 1.0 14 4 2 0.5 1 1",
            "metadata/0.npy:4: '/etc/passwd' is no PNG below the folder",
        ),
        (
            b"imgs/0 sample_1.png 3 1 1.0 14 4 2 0.5 1 1",
            r"0.npy:4: imgs/0/sample_1.png is listed in .*0.npy:2 already",
        ),
        (
            b"imgs/0 sample_77.png 3 1 1.0 14 4 2 0.5 1 1",
            r"metadata/0.npy:4: .*imgs/0/sample_77.png is missing",
        ),
    ],
)
def test_faulty_lines_are_named(release, pathfinder, line, fault):
    path = release() / HARD / "metadata/0.npy"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[4:]]) + b"\n")
    with pytest.raises(DataError, match=fault):
        pathfinder(path=path.parents[1], split="google").prepare()


def test_faulty_arrays_are_named(release, pathfinder):
    path = release("array") / HARD / "metadata/1.npy"
    whole = path.read_bytes()
    for content, fault in (
        (whole[:300], "1.npy: a damaged NumPy array"),
        (whole[:7], "1.npy: a damaged NumPy array"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=fault):
            pathfinder(path=path.parents[1]).prepare()
    np.save(path, np.zeros((10, 11)))
    with pytest.raises(
        DataError, match=r"1.npy: an array \(10, 11\) of float64, not \(images, 11\) of strings"
    ):
        pathfinder(path=path.parents[1]).prepare()
    np.save(path, np.array([[b"x"]], dtype=object), allow_pickle=True)
    with pytest.raises(
        DataError, match=r"1.npy: a damaged NumPy array \(shape \(1, 1\) and type object: "
    ):
        pathfinder(path=path.parents[1]).prepare()


def test_faulty_images_are_named_and_a_second_run_completes(release, pathfinder):
    from PIL import Image

    root = release()
    picture = root / HARD / "imgs/0/sample_2.png"
    whole = picture.read_bytes()

    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match):
            pathfinder(path=root, split="google").prepare()

    for content, reason in (
        (b"", "an empty file"),
        (b"junk", "another format, or damaged"),
        (whole[:200], "truncated"),
    ):
        picture.write_bytes(content)
        refused(rf"sample_2.png: cannot be read as a PNG \(.*{reason}")
    Image.new("L", (64, 64)).save(picture)
    refused("sample_2.png: 64 x 64 pixels of mode L, not 32 x 32 of mode L")
    Image.new("RGB", (32, 32)).save(picture)
    refused("sample_2.png: 32 x 32 pixels of mode RGB")
    picture.write_bytes(whole)
    assert len(pathfinder(path=root, split="google").split("train")) == 16


def test_other_metadata_or_another_cut_is_prepared_apart(release, pathfinder):
    root = release()
    first = everything(pathfinder(path=root, split="google").split("train"))
    path = root / HARD / "metadata/0.npy"
    path.write_text(path.read_text().replace("sample_0.png 0 0", "sample_0.png 0 1"))
    second = everything(pathfinder(path=root, split="google").split("train"))
    assert (first["labels"][0], second["labels"][0]) == (0, 1)
    assert not np.array_equal(
        first["inputs"], everything(pathfinder(path=root, split_seed=3).split("train"))["inputs"]
    )


def test_too_few_images_and_missing_metadata(release, pathfinder):
    root = release(each=4)
    with pytest.raises(DataError, match="8 images, too few to cut 80/10/10 %"):
        pathfinder(path=root).prepare()
    for path in (root / HARD / "metadata").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"metadata: no metadata files <number>.npy"):
        pathfinder(path=root).prepare()


def test_without_pillow_only_reading_is_refused(release, pathfinder, monkeypatch):
    root = release()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        DataError, match=r"needs Pillow: pip install 'subquad\[vision\]'; generated images do not"
    ):
        pathfinder(path=root).prepare()
    pathfinder().prepare()


def test_a_metadata_file_that_is_none_is_refused(release, pathfinder):
    root = release("text")
    path = next((root).rglob("metadata/1.npy"))
    path.unlink()
    path.mkdir()
    with pytest.raises(
        DataError, match=r"metadata/1\.npy: is no file, or a link that leads nowhere"
    ):
        pathfinder(path=root).prepare()
