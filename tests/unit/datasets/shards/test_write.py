"""`subquad data shard`: from folders and archives, parallel, stopped and taken up, refused."""

import hashlib
import io
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from PIL import Image
from sharded import jpeg, picture_folder, shard_folder, tar_of
from waiting import until

from subquad.cli.main import main
from subquad.errors import DataError
from subquad_datasets.shards.index import read_index
from subquad_datasets.shards.source import chosen_classes, find_pictures
from subquad_datasets.shards.write import _ending


def sums(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if ".lock" not in path.name
    }


def words(pictures, out, *more, split="train") -> list[str]:
    return ["data", "shard", *map(str, (pictures, out, "--split", split, *more))]


def cut_shards(*given, **split) -> int:
    return main(words(*given, **split))


@pytest.fixture
def pictures(tmp_path):
    return picture_folder(tmp_path / "pictures")


def test_a_folder_becomes_shards(pictures, tmp_path, capsys):
    out = tmp_path / "out"
    assert cut_shards(pictures, out, "--size", 8, "--jobs", 1) == 0
    told = capsys.readouterr().out
    assert told == f"{out}: 30 samples of 3 classes in 4 shards, split train\n"
    assert (tmp_path / "out" / "classes.txt").read_text() == "n00\nn01\nn02\n"
    found = {}
    for shard in sorted((tmp_path / "out").glob("*.tar")):
        data = shard.read_bytes()
        for row in read_index(shard).rows:
            found[row["key"]] = (row["label"], data[row["offset"] : row["offset"] + row["size"]])
    assert len(found) == 30
    for key, (label, data) in found.items():
        assert data == (pictures / f"{key.decode()}.JPEG").read_bytes()
        assert key.startswith(b"n%02d/" % label)


def test_samples_are_in_random_order(pictures, tmp_path):
    folder = shard_folder(pictures, tmp_path / "out", size=30)
    labels = read_index(folder / "train-00000.tar").rows["label"]
    assert np.abs(np.diff(labels)).sum() > 10


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it leaves files open
def test_webdataset_reads_them_as_its_own(pictures, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    folder = shard_folder(pictures, tmp_path / "out", size=10)
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    read = list(
        webdataset.WebDataset(shards, shardshuffle=False)
        .decode("pil")
        .to_tuple("__key__", "jpg", "cls")
    )
    assert len(read) == 30
    assert all(
        image.mode == "RGB" and key.startswith(f"n{label:02d}/") for key, image, label in read
    )


@pytest.mark.ci
def test_processes_give_the_same_bytes(pictures, tmp_path):
    alone = shard_folder(pictures, tmp_path / "alone", size=8)
    assert cut_shards(pictures, tmp_path / "two", "--size", 8, "--jobs", 2) == 0
    assert sums(alone) == sums(tmp_path / "two")


def test_a_stopped_call_is_taken_up(pictures, tmp_path):
    whole = sums(shard_folder(pictures, tmp_path / "out", size=8))
    out = tmp_path / "out"
    (out / "train-00001.tar").rename(out / "train-00001.tar.part")
    (out / "train-00001.tar.index").unlink()
    (out / "train-00002.tar.index").unlink()
    before = (out / "train-00000.tar").stat().st_mtime_ns
    assert sums(shard_folder(pictures, out, size=8)) == whole
    assert (out / "train-00000.tar").stat().st_mtime_ns == before


def test_what_a_kill_left_of_an_index_goes_away(pictures, tmp_path):
    folder = shard_folder(pictures, tmp_path / "out", size=8)
    whole = sums(folder)
    (folder / "train-00001.tar.index").rename(folder / ".train-00001.tar.index.01234567.tmp")
    assert sums(shard_folder(pictures, folder, size=8)) == whole


@pytest.mark.parametrize("ending", ["png", "gif", "webp", "jpg"])
def test_a_picture_in_a_shard_is_named_by_what_it_is(ending):
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG" if ending == "jpg" else ending)
    assert _ending(stream.getvalue()) == ending


@pytest.mark.ci
def test_a_killed_call_is_taken_up(tmp_path):
    pictures = picture_folder(tmp_path / "pictures", each=600)
    whole = sums(shard_folder(pictures, tmp_path / "whole", size=4))
    out = tmp_path / "out"
    given = words(pictures, out, "--size", 4, "--jobs", 2)
    command = [sys.executable, "-m", "subquad.cli.main", *given]
    process = subprocess.Popen(command)
    until(lambda: list(out.glob("*.index")), process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert len(children) >= 2
    assert psutil.wait_procs(children, timeout=30)[1] == []  # none goes on writing
    subprocess.run(command, check=True)
    assert sums(out) == whole


def test_the_archives_of_ilsvrc_are_read_in_place(tmp_path):
    inner = {
        f"n0{label}.tar": tar_of({f"n0{label}_{i}.JPEG": jpeg(label, i) for i in range(4)})
        for label in range(2)
    }
    train = tmp_path / "ILSVRC2012_img_train.tar"
    train.write_bytes(tar_of(inner))
    found = find_pictures(train)
    assert [sample.key for sample in found[:5]] == [
        "n00/n00_0",
        "n00/n00_1",
        "n00/n00_2",
        "n00/n00_3",
        "n01/n01_0",
    ]
    assert [sample.read() for sample in found] == [
        jpeg(label, i) for label in range(2) for i in range(4)
    ]
    assert list(tmp_path.iterdir()) == [train]


VALIDATION = {f"ILSVRC2012_val_0000000{i}.JPEG": jpeg(i % 2, i) for i in (2, 1, 3)}


@pytest.mark.parametrize(
    "labels",
    [
        "n01\nn00\nn01\n",
        "ILSVRC2012_val_00000003.JPEG n01\nILSVRC2012_val_00000001.JPEG "
        "n01\nILSVRC2012_val_00000002.JPEG n00\n",
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n01 1 2 3 "
        "4\nILSVRC2012_val_00000002,n00 1 2 3 4 n00 5 6 7\n"
        "ILSVRC2012_val_00000003,n01 3 4 5 6\n",
    ],
)
def test_the_validation_archive_has_its_classes_in_a_file(tmp_path, labels):
    (tmp_path / "val.tar").write_bytes(tar_of(VALIDATION))
    (tmp_path / "labels").write_text(labels)
    found = find_pictures(tmp_path / "val.tar", tmp_path / "labels")
    assert [(sample.kind, sample.key) for sample in found] == [
        ("n00", "ILSVRC2012_val_00000002"),
        ("n01", "ILSVRC2012_val_00000001"),
        ("n01", "ILSVRC2012_val_00000003"),
    ]


def test_another_split_takes_the_classes_that_are_there(pictures, tmp_path):
    out = shard_folder(pictures, tmp_path / "out")
    (tmp_path / "val.tar").write_bytes(tar_of(VALIDATION))
    (tmp_path / "labels").write_text("n02\nn00\nn02\n")
    given = ("--jobs", 1, "--labels", tmp_path / "labels")
    assert cut_shards(tmp_path / "val.tar", out, *given, split="val") == 0
    assert sorted(read_index(out / "val-00000.tar").rows["label"].tolist()) == [0, 2, 2]
    assert len(list(out.glob("train-*.tar"))) == 5


def test_some_classes_only(pictures, tmp_path):
    (tmp_path / "classes").write_text("n02 tench\nn00\n")
    given = ("--jobs", 1, "--classes", tmp_path / "classes")
    assert cut_shards(pictures, tmp_path / "out", *given) == 0
    assert (tmp_path / "out" / "classes.txt").read_text() == "n00\nn02\n"
    rows = read_index(tmp_path / "out" / "train-00000.tar").rows
    assert sorted(rows["label"].tolist()) == [0] * 10 + [1] * 10


def refused(capsys, *arguments) -> str:
    assert main(["data", "shard", *map(str, arguments), "--jobs", "1"]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    return errors


def test_what_cannot_be_sharded_is_refused_in_one_line(pictures, tmp_path, capsys):
    out, file, empty = tmp_path / "out", tmp_path / "file", tmp_path / "empty"
    empty.mkdir()
    file.write_text("n00\nn0\n")
    assert "needs <class>/*.jpg, *.jpeg, *.png, *.gif, *.webp, or tars of them" in refused(
        capsys, empty, out, "--split", "train"
    )
    assert "no folder and no plain tar" in refused(capsys, file, out, "--split", "train")
    assert "--labels has no effect with a folder" in refused(
        capsys, pictures, out, "--split", "val", "--labels", file
    )
    errors = refused(capsys, pictures, out, "--split", "train", "--classes", file)
    assert f"{file}: class n0 is not among the 3 there are; did you mean 'n00'?" in errors
    assert not out.exists()
    (tmp_path / "val.tar").write_bytes(tar_of(VALIDATION))
    errors = refused(capsys, tmp_path / "val.tar", out, "--split", "val", "--labels", file)
    assert f"{file}: 2 classes for 3 pictures" in errors
    file.write_text("ILSVRC2012_val_00000001.JPEG n00\n")
    errors = refused(capsys, tmp_path / "val.tar", out, "--split", "val", "--labels", file)
    assert f"{file}: names no class for ILSVRC2012_val_00000002.JPEG" in errors


def test_other_shards_in_the_folder_are_left_alone(pictures, tmp_path, capsys):
    out = shard_folder(pictures, tmp_path / "out", size=8)
    before = sums(out)
    arguments = (pictures, out, "--split", "train", "--size")
    assert "holds other samples than it should" in refused(capsys, *arguments, 7)
    assert "train-00002.tar: a shard of another call" in refused(capsys, *arguments, 15)
    picture_folder(tmp_path / "more", classes=4)
    assert "class n03 is not in" in refused(capsys, tmp_path / "more", out, "--split", "train")
    (tmp_path / "classes").write_text("n02\n")
    fewer = picture_folder(tmp_path / "fewer", classes=2)
    errors = refused(capsys, fewer, out, "--split", "train", "--classes", tmp_path / "classes")
    assert f"{out}: the source has no picture of these 1 classes" in errors
    assert sums(out) == before


def test_a_link_that_somebody_left_beside_a_shard_is_not_written_through(pictures, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out" / "train-00000.tar.part").symlink_to(tmp_path / "victim")
    shard_folder(pictures, tmp_path / "out", size=100)
    assert (tmp_path / "victim").read_text() == "mine"


def test_two_pictures_of_one_key_are_refused(pictures):
    (pictures / "n00" / "n00_1.png").write_bytes(b"")
    with pytest.raises(
        DataError, match="2 pictures would have the key n00/n00_1: rename all but one"
    ):
        find_pictures(pictures)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1: holds no class"),
        ("n00\nn01\nn00\n", "3: class n00 is on line 1 already"),
        (
            "n00\nn\0\n",
            "2: NUL byte at column 2; the file is binary or damaged, or UTF-16 .* save it as UTF-8",
        ),
    ],
)
def test_a_class_list_is_refused(tmp_path, text, reason):
    (tmp_path / "list").write_text(text)
    with pytest.raises(DataError, match=rf"^{tmp_path}/list:{reason}$"):
        chosen_classes(tmp_path / "list", ["n00", "n01"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_picture_that_may_not_be_read_is_named(pictures, tmp_path, capsys):
    (pictures / "n01" / "n01_3.JPEG").chmod(0)
    assert "n01_3.JPEG: Permission denied" in refused(
        capsys, pictures, tmp_path / "out", "--split", "train"
    )


def test_indices_are_written_for_shards_of_others(pictures, tmp_path, capsys):
    out = shard_folder(pictures, tmp_path / "out", size=10)
    before = sums(out)
    for path in out.glob("*.index"):
        path.unlink()
    shards = [f"{out}/train-{{00000..00001}}.tar", f"{out}/train-00002.tar"]
    assert main(["data", "index", *shards, "--jobs", "1"]) == 0
    assert capsys.readouterr().out == "30 samples in 3 shards\n"
    assert sums(out) == before


@pytest.mark.ci
def test_shards_in_an_object_store_are_indexed_there(pictures, tmp_path, bucket, capsys):
    out = shard_folder(pictures, tmp_path / "out", size=10)
    for path in out.glob("*.tar"):
        bucket.client.upload_file(str(path), bucket.name, f"lab/{path.name}")
    assert (
        main(["data", "index", f"{bucket.storage}/train-{{00000..00001}}.tar", "--jobs", "1"]) == 0
    )
    assert main(["data", "index", f"{bucket.storage}/train-*2.tar", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == "20 samples in 2 shards\n10 samples in 1 shards\n"
    for path in out.glob("*.index"):
        assert bucket.read(path.name) == path.read_bytes()
    assert main(["data", "index", f"{bucket.storage}/train-{{2..3}}.tar", "--jobs", "1"]) == 2
    assert "train-2.tar: there is no such file, or it may not be read" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["n00/gone.JPEG", "gone"])
def test_a_link_that_leads_nowhere_is_not_left_out_of_shards(tmp_path, place):
    picture_folder(tmp_path / "pictures", classes=2, each=2)
    (tmp_path / "pictures" / place).symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=rf"{place}: is a link that leads nowhere"):
        find_pictures(tmp_path / "pictures")
