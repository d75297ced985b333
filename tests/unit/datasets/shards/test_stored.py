"""Shards in an object store: samples are read by their ranges, and some are kept on the disk."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from sharded import picture_folder, shard_folder
from splits import KEY

from subquad.errors import DataError
from subquad_datasets.imagenet import Config
from subquad_datasets.imagenet.dataset import ImageNet
from subquad_datasets.shards.index import index_path

EPOCH = {"epoch": 1, "seed": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three classes of twelve pictures in six shards, and of four for TEST."""
    root = tmp_path_factory.mktemp("shards")
    shard_folder(picture_folder(root / "train", each=12), root / "shards")
    return shard_folder(picture_folder(root / "val", each=4, first=100), root / "shards", "val")


@pytest.fixture
def stored(folder, bucket):
    """The bucket with these shards."""
    for path in folder.iterdir():
        if path.is_file() and not path.name.startswith("."):
            bucket.write(f"set/{path.name}", path.read_bytes())
    bucket.requests.clear()
    return bucket


def opened(path: object, root: Path, **params) -> ImageNet:
    return ImageNet(Config(path=str(path), size=16, **params), root)


def there(bucket, root: Path, **params) -> ImageNet:
    return opened(f"{bucket.storage}/set", root, **params)


def whole(split) -> dict[str, np.ndarray]:
    return dict(split.fetch(np.arange(len(split)), **EPOCH))


@pytest.mark.parametrize("cache_gb", [0.0, 1e-5, 100.0, None])
def test_a_store_gives_the_samples_of_a_folder(folder, stored, tmp_path, cache_gb):
    """With nothing, two shards or all of them kept; or copied first."""
    here = opened(folder, tmp_path / "here")
    dataset = there(stored, tmp_path / "there", cache_gb=cache_gb)
    assert dataset.describe() == here.describe()
    for name, keys in (("train", ()), ("validation", ()), ("test", (KEY,))):
        split, other = here.split(name, *keys), dataset.split(name, *keys)
        assert other.content() == split.content()
        for _ in range(2):
            found = whole(other)
            assert {key: values.tolist() for key, values in found.items()} == {
                key: values.tolist() for key, values in whole(split).items()
            }


def gets(bucket, ending: str = ".tar") -> list[str]:
    return [line for line in bucket.requests if line.startswith("GET") and line.endswith(ending)]


def test_what_is_kept_is_not_asked_for_again(stored, tmp_path):
    split = there(stored, tmp_path).split("trainval")
    whole(split)
    assert len(gets(stored)) == len(split)
    stored.requests.clear()
    again = pickle.loads(pickle.dumps(split))  # noqa: S301  (as in a loader process)
    whole(again)
    assert stored.requests == []


def test_only_so_many_shards_are_kept(folder, stored, tmp_path):
    """Those from the first on that have room together, and half of what is free."""
    sizes = [path.stat().st_size for path in sorted(folder.glob("train-*.tar"))]
    split = there(stored, tmp_path, cache_gb=sum(sizes[:2]) / 1e9).split("trainval")
    whole(split)
    stored.requests.clear()
    whole(split)
    assert len(gets(stored)) == len(split) - 14
    kept = [path for path in tmp_path.rglob("?") if path.is_file()]
    assert sorted(path.name for path in kept) == ["0", "1"]
    assert sum(path.stat().st_blocks * 512 for path in kept) < sum(sizes[:2]) + 8192


def test_a_sample_that_was_not_kept_whole_is_asked_for(stored, tmp_path):
    split = there(stored, tmp_path).split("trainval")
    before = whole(split)["inputs"]
    (kept,) = [path for path in tmp_path.rglob("3") if path.is_file()]
    kept.write_bytes(kept.read_bytes()[:1500].replace(b"\xff", b"\xfe"))
    stored.requests.clear()
    assert np.array_equal(whole(split)["inputs"], before)
    assert set(gets(stored)) == {f"GET /{stored.name}/lab/set/train-00003.tar"}
    stored.requests.clear()
    whole(split)
    assert stored.requests == []


def test_indices_are_one_table_that_processes_map(stored, tmp_path):
    first = there(stored, tmp_path)
    first.prepare()
    assert first.split("train").shards.rows.base is not None
    stored.requests.clear()
    second = there(stored, tmp_path)
    second.split("train")
    assert gets(stored, ".index") == []
    assert len(list(tmp_path.rglob("rows.npy"))) == 2


def test_a_range_that_does_not_come_is_named(stored, tmp_path):
    """The run ends with a line and goes on later; a sample is not left out for it."""
    split = there(stored, tmp_path, cache_gb=0.0).split("trainval")
    name = "lab/set/train-00002.tar"
    data = stored.read("set/train-00002.tar")
    stored.client.delete_object(Bucket=stored.name, Key=name)
    place = f"^s3://{stored.name}/{name}: bytes [0-9,]+ to [0-9,]+ cannot be read: "
    with pytest.raises(DataError, match=f"{place}The specified key does not exist"):
        whole(split)
    stored.write("set/train-00002.tar", data[: len(data) // 2])
    with pytest.raises(DataError, match=place):
        whole(split)
    stored.write("set/train-00002.tar", data)
    assert not whole(split)["bad"].any()


def test_bytes_that_changed_are_bad_samples(folder, stored, tmp_path):
    split = there(stored, tmp_path, cache_gb=0.0).split("trainval")
    data = bytearray(stored.read("set/train-00001.tar"))
    row = int(np.flatnonzero(split.shards.shard_of(split.rows) == 1)[2])
    data[int(split.shards.rows["offset"][row]) + 30] ^= 1
    stored.write("set/train-00001.tar", bytes(data))
    assert np.flatnonzero(whole(split)["bad"]).tolist() == [row]


def test_a_shard_without_an_index_is_named(stored, tmp_path):
    stored.client.delete_object(Bucket=stored.name, Key="lab/set/train-00004.tar.index")
    place = f"s3://{stored.name}/lab/set/train-00004.tar"
    message = f"^{place}.index: does not exist; make it: subquad data index {place}$"
    with pytest.raises(DataError, match=message):
        there(stored, tmp_path).split("train")


def test_a_shard_that_was_exchanged_is_not_the_one_of_its_table(folder, stored, tmp_path):
    there(stored, tmp_path).split("train")
    stored.write("set/train-00000.tar", b"0" * 10240)
    with pytest.raises(DataError, match=r"train-00000\.tar: has 10,240 bytes, and its index says"):
        there(stored, tmp_path).split("train")
    other = (folder / "val-00000.tar").read_bytes()
    stored.write("set/train-00000.tar", other)
    stored.write("set/train-00000.tar.index", index_path(folder / "val-00000.tar").read_bytes())
    assert len(there(stored, tmp_path).split("trainval")) == 36


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"path": "folder", "cache_gb": 5.0}, "cache_gb has no effect with a folder"),
        ({"path": "folder", "cache_gb": None}, "cache_gb has no effect with a folder"),
        ({"path": "s3://bucket/x", "verify": "once"}, "read sample by sample; use always, or"),
        ({"path": "s3://bucket/x", "cache_gb": -1.0}, "greater than or equal to 0"),
    ],
)
def test_settings_that_have_no_effect_are_refused(params, reason):
    with pytest.raises(ValidationError, match=reason):
        Config(**params)
