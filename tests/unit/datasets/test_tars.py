"""Tars in every reader of them: one that does not end where it says is refused, hidden members are
no data.
"""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from sharded import jpeg, tar_of

from subquad.errors import DataError
from subquad_datasets.shards.index import find_shards, write_index
from subquad_datasets.shards.source import find_pictures
from subquad_datasets.tars import list_members

MEMBERS = {
    f"train/cat/{n}.{end}": jpeg(0, 0) if end == "jpg" else b"0"
    for n in range(3)
    for end in ("jpg", "cls")
}
WHOLE = tar_of(MEMBERS)
ENDS = len(WHOLE.rstrip(b"\0")) // 512 * 512 + 512
"""Where the empty blocks begin."""


def by_index(path: Path) -> int:
    return len(write_index(path).rows)


def by_listing(path: Path) -> int:
    return sum(member.name.endswith(".jpg") for member in list_members(path))


def by_packed_listing(path: Path) -> int:
    packed = path.with_suffix(".tar.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return by_listing(packed)


def by_pictures(path: Path) -> int:
    labels = path.with_name("labels.txt")
    labels.write_text("".join(f"{n}.jpg cat\n" for n in range(6)))
    return len(find_pictures(path, labels))


def in_a_tar(path: Path) -> int:
    outer = path.with_name("outer.tar")
    outer.write_bytes(
        tar_of({"cat.tar": path.read_bytes(), "dog.tar": tar_of({"9.jpg": jpeg(0, 1)})})
    )
    return len(find_pictures(outer)) - 1


READ = [by_index, by_listing, by_packed_listing, by_pictures, in_a_tar]
BROKEN = {
    "joined by cat": (WHOLE + tar_of({"train/cat/5.jpg": jpeg(0, 1)}), "goes on behind the end"),
    "bytes behind": (WHOLE + b"more", "goes on behind the end"),
    "cut after a member": (WHOLE[:ENDS], "cut off|empty header|lies where another file is"),
    "cut in a header": (WHOLE[: ENDS - 1024 - 100], "cut off|truncated|unexpected end|lies where"),
    "one empty block": (WHOLE[: ENDS + 512], "cut off: a tar ends with two empty blocks"),
    "a damaged header": (
        WHOLE[:2000].replace(b"cat/0.cls", b"cat/x.cls") + WHOLE[2000:],
        "bad checksum",
    ),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("name", BROKEN)
def test_a_tar_that_does_not_end_where_it_says_is_refused(tmp_path, name, read: Callable):
    content, message = BROKEN[name]
    assert content != WHOLE
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DataError, match=rf"(a|outer)\.tar(\.gz)?: .*({message})"):
        read(tmp_path / "a.tar")


@pytest.mark.parametrize("read", READ)
def test_zeros_behind_the_end_and_hidden_members_are_passed_over(tmp_path, read: Callable):
    stream = io.BytesIO(
        tar_of({"./.git/1.jpg": b"", "train/._cat/7.jpg": b"", "train/cat/._0.jpg": b""})
    )
    with tarfile.open(fileobj=stream, mode="a") as tar:
        for name, data in MEMBERS.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (tmp_path / "a.tar").write_bytes(stream.getvalue() + bytes(4096))
    assert read(tmp_path / "a.tar") == 3


def test_hidden_files_are_no_shards(tmp_path):
    for name in ("train-0.tar", "._train-0.tar", ".train-1.tar"):
        (tmp_path / name).write_bytes(WHOLE)
    assert find_shards(["*.tar"], str(tmp_path)) == [tmp_path / "train-0.tar"]
