"""Indices of shards: what they say, and which shards are refused."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
from sharded import indexed, jpeg, tar_of

from subquad.errors import ConfigError, DataError
from subquad_datasets.shards.index import find_shards, index_path, read_index, write_index

PICTURE = jpeg(0, 0)
GOOD = {
    "a.jpg": PICTURE,
    "a.cls": b"2",
    "d/b.cls": b"0\n",
    "d/b.json": b"{}",
    "d/b.PNG": b"any bytes",
}


def test_an_index_finds_every_picture(tmp_path):
    shard = indexed(tmp_path / "train-0.tar", GOOD)
    index, data = read_index(shard), shard.read_bytes()
    assert (index.name, index.size, index.sha256) == (
        "train-0.tar",
        len(data),
        hashlib.sha256(data).hexdigest(),
    )
    assert index.rows["key"].tolist() == [b"a", b"d/b"]
    assert index.rows["label"].tolist() == [2, 0]
    for row, picture in zip(index.rows, (PICTURE, b"any bytes"), strict=True):
        assert data[row["offset"] : row["offset"] + row["size"]] == picture
        assert row["sha256"].tobytes() == hashlib.sha256(picture).digest()


def test_long_names_and_folders_are_no_obstacle(tmp_path):
    name = "x" * 150
    stream = io.BytesIO(tar_of({f"{name}.jpg": PICTURE, f"{name}.cls": b"1"}))
    with tarfile.open(fileobj=stream, mode="a") as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    (tmp_path / "a.tar").write_bytes(stream.getvalue())
    assert write_index(tmp_path / "a.tar").rows["key"].tolist() == [name.encode()]


def test_other_layouts_of_webdataset_are_read(tmp_path):
    """Labels in JSON or text, beside captions and metadata, and files of a sample apart."""
    files = {
        "a.webp": PICTURE,
        "b.jpg": PICTURE + b"b",
        "c.jpg": PICTURE + b"c",
        "d.jpg": PICTURE + b"d",
        "b.json": b'{"label": 7, "caption": "a dog"}',
        "a.json": b"3",
        "a.txt": b"a cat",
        "c.txt": b"5\n",
        "d.json": b'{"cls": 9}',
    }
    rows = write_index_of(tmp_path, files).rows
    assert rows["key"].tolist() == [b"a", b"b", b"c", b"d"]
    assert rows["label"].tolist() == [3, 7, 5, 9]
    data = (tmp_path / "a.tar").read_bytes()
    found = [data[row["offset"] : row["offset"] + row["size"]] for row in rows]
    assert found == [PICTURE, PICTURE + b"b", PICTURE + b"c", PICTURE + b"d"]


def write_index_of(folder, files):
    (folder / "a.tar").write_bytes(tar_of(files))
    return write_index(folder / "a.tar")


def linked(kind: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member = tarfile.TarInfo("a.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *(
            (tar_of({f"img_22.5.{end}": PICTURE if end == "jpg" else b"0" for end in ends}), told)
            for ends, told in {
                (
                    "jpg",
                    "cls",
                ): r"img_22\.5\.jpg: in WebDataset a sample's name ends at its first dot, "
                r"so this one is called img_22; rename it, for example to img_22_5\.jpg$",
                ("cls", "jpg"): r"img_22\.5\.cls: .* for example to img_22_5\.cls$",
                ("cls",): r"img_22\.5\.cls: in WebDataset",
                ("png",): r"img_22\.5\.png: in WebDataset",
            }.items()
        ),
        (tar_of({**GOOD, "a.1.jpg": PICTURE, "a.1.cls": b"0"}), r"a\.1\.cls: in WebDataset"),
        (
            tar_of({"a.jpg": PICTURE, "a.cls": b"0", "a.1.jpg": PICTURE, "a.1.cls": b"0"}),
            r"a\.1\.cls: ",
        ),
        (b"", "no plain tar, damaged or cut off"),
        (b"no tar" * 1000, "no plain tar, damaged or cut off"),
        (tar_of({}), "holds no samples"),
        (tar_of({"notes.txt": b"nothing"}), r"sample notes has no picture \(jpg, .*, webp\)"),
        (tar_of({"a.jpg": PICTURE}), r"sample a has no label \(cls, json, txt\)"),
        (tar_of({"a.cls": b"1"}), "sample a has no picture"),
        (
            tar_of({"a.jpg": PICTURE, "a.png": PICTURE, "a.cls": b"1"}),
            "sample a has more than one picture",
        ),
        (
            tar_of({"a.jpg": PICTURE, "a.cls": b"cat"}),
            "label of sample a is 'cat', must be 0 to 999999",
        ),
        (tar_of({"a.jpg": PICTURE, "a.cls": b"-1"}), "label of sample a is '-1'"),
        (tar_of({"a.jpg": PICTURE, "a.cls": b"9" * 10_000}), "label of sample a is"),
        (tar_of({"a.jpg": PICTURE, "a.json": b'{"caption": 1}'}), "label of sample a is 'None'"),
        (tar_of({"a.jpg": PICTURE, "a.json": b'{"label": 1'}), "the label of sample a: "),
        (tar_of({"a.jpg": PICTURE, "a.json": b'{"label": true}'}), "label of sample a is 'True'"),
        (tar_of({"a.jpg": PICTURE, "a.txt": b"a cat"}), "label of sample a is 'a cat'"),
        (
            tar_of(
                {"a.jpg": PICTURE, "a.cls": b"1", "b.jpg": PICTURE, "b.cls": b"1", "a.PNG": b""}
            ),
            "sample a has more than one picture",
        ),
        (
            tar_of({"../../x.jpg": PICTURE, "../../x.cls": b"1"}),
            r"member '../../x.jpg' is a link, a device or a path",
        ),
        (tar_of({"/etc/x.jpg": PICTURE, "/etc/x.cls": b"1"}), "member '/etc/x.jpg' is a link"),
        (linked(tarfile.SYMTYPE), "member 'a.jpg' is a link"),
        (linked(tarfile.LNKTYPE), "member 'a.jpg' is a link"),
        (linked(tarfile.FIFOTYPE), "member 'a.jpg' is a link"),
    ],
)
def test_a_shard_that_is_refused_is_named_with_its_member(tmp_path, content, reason):
    shard = tmp_path / "a.tar"
    shard.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{shard}: .*{reason}"):
        write_index(shard)
    assert list(tmp_path.iterdir()) == [shard]


def test_a_compressed_shard_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(DataError, match="no plain tar"):
        write_index(tmp_path / "a.tar")


def test_a_shard_cut_anywhere_gets_no_index(tmp_path):
    whole = tar_of(
        {
            f"{key}.{end}": b"12" if end == "cls" else jpeg(0, 0)
            for key in "abc"
            for end in ("cls", "jpg")
        }
    )
    end = len(whole) - len(whole.rstrip(b"\0"))
    shard = tmp_path / "a.tar"
    for place in (512, 1024, 1536, *np.random.default_rng(0).integers(0, len(whole) - end, 60)):
        shard.write_bytes(whole[:place])
        with pytest.raises(DataError, match=r"cut off|sample . has no"):
            write_index(shard)


def test_nothing_in_a_shard_is_run(tmp_path):
    bomb = b"cos\nsystem\n(S'touch " + str(tmp_path / "canary").encode() + b"'\ntR."
    indexed(tmp_path / "a.tar", {**GOOD, "d/b.pyd": bomb, "d/b.pkl": bomb, "d/b.pth": bomb})
    assert not (tmp_path / "canary").exists()


def test_a_shard_that_changed_its_size_is_refused(tmp_path):
    shard = indexed(tmp_path / "a.tar", GOOD)
    with shard.open("ab") as stream:
        stream.write(bytes(512))
    with pytest.raises(
        DataError,
        match=rf"^{shard}: has 10,752 bytes, and its index says 10,240: .*data index {shard}$",
    ):
        read_index(shard)


def test_what_is_missing_is_named(tmp_path):
    shard = tmp_path / "a.tar"
    with pytest.raises(DataError, match=rf"^{shard}: does not exist$"):
        read_index(shard)
    shard.write_bytes(tar_of(GOOD))
    with pytest.raises(
        DataError, match=rf"^{shard}.index: does not exist; make it: subquad data index {shard}$"
    ):
        read_index(shard)


def test_any_change_of_an_index_is_seen(tmp_path):
    shard = indexed(tmp_path / "a.tar", GOOD)
    whole = index_path(shard).read_bytes()
    for place in range(0, len(whole), 3):
        index_path(shard).write_bytes(
            whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        )
        with pytest.raises(
            DataError, match=r"a\.tar\.index: damaged, or no index of a shard; make it anew"
        ):
            read_index(shard)
        index_path(shard).write_bytes(whole[:place])
        with pytest.raises(DataError, match="damaged"):
            read_index(shard)


def test_an_index_of_another_format_is_refused(tmp_path):
    shard = indexed(tmp_path / "a.tar", GOOD)
    content = index_path(shard).read_bytes()[:-32].replace(b'"format": 1', b'"format": 2')
    index_path(shard).write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(DataError, match="has format 2, this subquad reads 1"):
        read_index(shard)


def test_patterns_find_shards_in_order(tmp_path):
    for number in (2, 0, 1, 10):
        (tmp_path / f"train-{number:02d}.tar").touch()
    names = [path.name for path in find_shards(["train-*.tar"], str(tmp_path))]
    assert names == ["train-00.tar", "train-01.tar", "train-02.tar", "train-10.tar"]
    named = find_shards([f"{tmp_path}/train-{{00..02}}.tar", f"{tmp_path}/train-10.tar"])
    assert [path.name for path in named] == names


@pytest.mark.parametrize(
    ("pattern", "error", "reason"),
    [
        ("val-*.tar", DataError, "val-.*: no shard has such a name"),
        ("train-{0..1000000000}.tar", DataError, "means more than 100,000 shards"),
        ("train-{0,0}.tar", DataError, "train-0.tar: named 2 times"),
        ("pipe:cat train-*", DataError, "no shard has such a name"),
        ("ftp://server/train.tar", ConfigError, "ftp:// is not supported"),
        (
            "s3://me:secret@bucket/train.tar",
            ConfigError,
            "must not hold a user name, password or token",
        ),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(tmp_path, monkeypatch, pattern, error, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=reason):
        find_shards([pattern])
