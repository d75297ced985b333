"""Storage in an object store: checkpoints, the copy of a run's files, data sets by URL; what
cannot be used.
"""

import os
import socket
from pathlib import Path

import pytest
import torch

from subquad.cli.main import main
from subquad.engine.checkpoint import (
    Checkpoint,
    finished_steps,
    newest_good,
    prune,
    read_checkpoint,
    write,
)
from subquad.errors import CheckpointError, ConfigError, DataError, DiskError, RunError, UserError
from subquad.experiment.folder import local_folder
from subquad.record import storage, stores
from subquad.record.files import append_line, write_json
from subquad.record.run_folder import RunFolder
from subquad.record.storage import fetched, listing


def saved(root, step: int, value: float = 1.0) -> None:
    weights = {"weight": torch.full((3, 4), value)}
    write(
        root,
        step,
        Checkpoint(weights, weights, {}, {"progress": {"step": step, "best": {"step": step}}}),
    )


def test_a_checkpoint_in_an_object_store_is_whole_or_not_there(bucket):
    root = RunFolder(Path("/here/runs/small/one"), bucket.storage).checkpoints
    assert str(root) == f"{bucket.storage}/runs/small/one/checkpoints"
    assert newest_good(root, print) is None
    bucket.requests.clear()
    saved(root, 1)
    assert [request.partition(" ")[0] for request in bucket.requests] == ["PUT"] * 5
    assert bucket.requests[-1].endswith("step-00000001/manifest.json")
    for step in (2, 3, 4):
        saved(root, step, float(step))
    assert torch.equal(read_checkpoint(root, 3).model["weight"], torch.full((3, 4), 3.0))
    prefix = "runs/small/one/checkpoints/step-0000000"
    bucket.write(f"{prefix}4/model.safetensors", bucket.read(f"{prefix}3/model.safetensors"))
    bucket.client.delete_object(Bucket=bucket.name, Key=f"lab/{prefix}3/manifest.json")
    notes: list[str] = []
    found = newest_good(root, notes.append)
    assert found is not None
    assert found.state["progress"]["step"] == 2
    assert ["sha256 differs" in notes[0], "never finished" in notes[1], len(notes)] == [
        True,
        True,
        2,
    ]
    assert finished_steps(root) == [1, 2, 4]
    prune(root, 2, 1, [])
    assert {name.split("/")[4] for name in bucket.names()} == {"step-00000002"}


def test_what_a_store_refuses_leaves_earlier_checkpoints(bucket, monkeypatch):
    root = RunFolder(Path("/here/runs/small/one"), bucket.storage).checkpoints
    saved(root, 1)
    bucket.forbid("PutObject")
    with pytest.raises(
        DiskError,
        match=r"cannot write checkpoint s3://.*step-00000002: Forbidden; .*; earlier .* intact",
    ):
        saved(root, 2)
    with pytest.raises(
        RunError, match=r"resources\.storage: s3://.*/lab cannot be used: Forbidden"
    ):
        storage.check_storage(bucket.storage)
    assert finished_steps(root) == [1]
    with pytest.raises(RunError, match="cannot be used: The specified bucket does not exist"):
        storage.check_storage("s3://no-such-bucket/lab")
    bucket.client.delete_bucket_policy(Bucket=bucket.name)
    with monkeypatch.context() as patch:
        patch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
        with pytest.raises(
            RunError, match=r"cannot be used: .*Access Key Id you provided does not exist"
        ):
            storage.check_storage(bucket.storage)
    bucket.forbid("GetObject")
    with pytest.raises(DiskError, match="Forbidden"):  # and not: passed over
        newest_good(root, print)


def test_a_server_that_does_not_answer_is_told(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setattr(storage, "SECONDS", 5.0)
    root = stores.place_at(f"{bucket.storage}/runs/small/one/checkpoints")
    with pytest.raises(DiskError, match="Could not connect to the endpoint"):
        finished_steps(root)
    with pytest.raises(RunError, match=r"resources\.storage: .* cannot be used: Could not connect"):
        storage.check_storage(bucket.storage)
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_server_that_says_nothing_is_not_waited_for(bucket, monkeypatch):
    import s3fs

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(storage, "SECONDS", 0.4)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(RunError, match="cannot be used: no answer within 0 s"):
            storage.check_storage(bucket.storage)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s4://bucket/x", r"s4:// is not supported; use s3://, gs:// or a folder"),
        ("s3://key:secret@bucket/x", r"must not hold a user name, password or token"),
        ("s3:///x", r"s3:///x names no bucket"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(address, said):
    with pytest.raises(ConfigError, match=f"--root: {said}"):
        stores.root_of(address)
    with pytest.raises(ConfigError, match=said.replace("gs:// or", ".*or")):
        stores.place_at(address)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "a", "--out"),
        ("ui", "--root"),
        ("sync",),
        ("resume", "a", "--root"),
        ("submit", "train", "a", "--into"),
    ],
)
def test_an_address_is_no_folder_of_this_machine(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "s3://bucket/x"]) == 2
    assert "s3://bucket/x is an address; give a folder of this machine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(stores, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"gs:// needs gcsfs, which is not installed: pip install 'subquad\[gcs\]'"
    ):
        stores.place_at("gs://bucket/x")


@pytest.mark.ci
def test_only_what_changed_is_copied_and_what_went_goes(bucket, tmp_path):
    folder = tmp_path / "runs" / "small" / "one"
    files = RunFolder(folder, bucket.storage)
    for name in (
        "metrics.jsonl",
        "source/a.py",
        "error.txt",
        "lock",
        "checkpoints/step-1/x",
        "cells/a/experiment.yaml",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    files.mirror()
    assert bucket.names() == [
        f"runs/small/one/{name}" for name in ("error.txt", "metrics.jsonl", "source/a.py")
    ]
    (folder / "metrics.jsonl").write_text("more than before")
    (folder / "error.txt").unlink()
    bucket.requests.clear()
    files.mirror()
    own = f"/{bucket.name}/lab/runs/small/one"
    assert bucket.requests == [f"PUT {own}/metrics.jsonl", f"DELETE {own}/error.txt"]
    assert bucket.read("runs/small/one/metrics.jsonl") == b"more than before"


def test_storage_may_be_a_folder(tmp_path):
    folder, shared = tmp_path / "here" / "runs" / "small" / "one", tmp_path / "shared"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    RunFolder(folder, str(shared)).mirror()
    assert (shared / "runs" / "small" / "one" / "result.json").read_text() == "{}"
    root = RunFolder(folder, str(shared)).checkpoints
    saved(root, 1)
    assert finished_steps(root) == [1]
    with pytest.raises(RunError, match="must lie below a folder `runs`"):
        _ = RunFolder(tmp_path / "moved", str(shared)).checkpoints


def attempts(folder, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        append_line(folder / "attempts.jsonl", {"attempt": number + 1})


def test_of_two_copies_the_one_with_more_attempts_is_used(bucket, tmp_path):
    there, folder = f"{bucket.storage}/runs/small/one", tmp_path / "runs" / "small" / "one"
    notes: list[str] = []
    with pytest.raises(RunError, match="no run, study or search"):
        local_folder(there, tmp_path, notes.append)
    attempts(folder, 2)
    write_json(folder / "result.json", {"status": "failed"})
    RunFolder(folder, bucket.storage).mirror()
    bucket.write("runs/small/one/checkpoints/step-00000001/manifest.json", b"{}")
    assert local_folder(there, tmp_path, notes.append) == folder
    assert "is used: it has 2 attempts" in notes[-1]
    (folder / "attempts.jsonl").write_text("{}\n")
    (folder / "plan.json").write_text("{}")
    assert local_folder(there, tmp_path, notes.append) == folder
    assert sorted(path.name for path in folder.iterdir()) == ["attempts.jsonl", "result.json"]
    assert (tmp_path / "runs" / "small" / ".one.with-1-attempts" / "plan.json").exists()
    assert "has 1 attempts" in notes[-2]
    assert local_folder(there, tmp_path / "elsewhere", notes.append).is_dir()
    assert local_folder("some/folder") == storage.Path("some/folder")


def test_a_data_set_is_copied_once_for_each_content(bucket, tmp_path):
    bucket.write("data/a/one.txt", b"1")
    bucket.write("data/two.txt", b"2")
    folder = storage.fetched(f"{bucket.storage}/data", tmp_path)
    assert folder.name == "data"
    assert (folder / "a" / "one.txt").read_bytes() == b"1"
    bucket.requests.clear()
    assert storage.fetched(f"{bucket.storage}/data", tmp_path) == folder
    assert not any("one.txt" in request for request in bucket.requests)
    bucket.write("data/two.txt", b"3")
    newer = storage.fetched(f"{bucket.storage}/data", tmp_path)
    assert newer != folder
    assert (newer / "two.txt").read_bytes() == b"3"
    assert storage.fetched(f"{bucket.storage}/data/two.txt", tmp_path).read_bytes() == b"3"
    bucket.client.put_object_acl(Bucket=bucket.name, Key="lab/data/two.txt", ACL="public-read")
    assert (
        storage.fetched(f"{bucket.endpoint}/{bucket.name}/lab/data/two.txt", tmp_path).read_bytes()
        == b"3"
    )
    assert storage.fetched(f"file://{tmp_path}", tmp_path) == tmp_path
    with pytest.raises(
        DataError, match=r"s3://.*/nothing: there is no such file, or it may not be read"
    ):
        storage.fetched(f"{bucket.storage}/nothing", tmp_path)


def test_no_name_in_a_store_leads_out_of_a_folder(bucket, tmp_path):
    bucket.write("data/../../escaped.txt", b"1")
    bucket.write("data/two.txt", b"2")
    with pytest.raises(UserError, match="is no name of a file below a folder"):
        storage.fetched(f"{bucket.storage}/data", tmp_path / "root")
    assert os.listdir(tmp_path) in ([], ["root"])


def test_a_checkpoint_that_is_not_there_is_no_error_of_the_store(bucket):
    root = stores.place_at(f"{bucket.storage}/runs/small/one/checkpoints")
    with pytest.raises(CheckpointError, match=r"step-00000003: is not here"):
        read_checkpoint(root, 3)


def test_names_of_a_bucket_stay_below_their_folder(bucket, tmp_path):
    for key in ("data//home/u/.bashrc", "data/../up", "data/./here", "data/a\x1b[2J"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"canary")
        with pytest.raises(DiskError, match="no name of a file below a folder"):
            listing(stores.place_at(f"s3://{bucket.name}/data"))
        with pytest.raises(Exception, match="no name of a file below a folder"):
            fetched(f"s3://{bucket.name}/data", tmp_path / "root")
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and not path.name.endswith(".lock")
    ]


def test_below(tmp_path):
    assert stores.below(tmp_path, "a/b") == tmp_path / "a" / "b"
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(ValueError, match="leads out of"):
        stores.below(tmp_path, "link/passwd")


def test_what_changed_in_storage_comes_back_once_and_is_not_sent_again(bucket, tmp_path):
    folder = tmp_path / "runs" / "small" / "one"
    files = RunFolder(folder, bucket.storage)
    files.fetch()
    assert not folder.exists()
    place = "runs/small/one"
    bucket.write(f"{place}/metrics.jsonl", b"1\n")
    bucket.write(f"{place}/result.json", b"{}")
    bucket.write(f"{place}/checkpoints/step-00000001/state.json", b"large")
    files.fetch()
    assert (folder / "metrics.jsonl").read_bytes() == b"1\n"
    assert (folder / "result.json").read_bytes() == b"{}"
    assert not (folder / "checkpoints").exists()
    bucket.requests.clear()
    files.fetch()
    files.mirror()
    assert not [asked for asked in bucket.requests if "one/" in asked and "?" not in asked]
    bucket.write(f"{place}/metrics.jsonl", b"1\n2\n")
    bucket.client.delete_object(Bucket=bucket.name, Key=f"lab/{place}/result.json")
    files.fetch()
    assert (folder / "metrics.jsonl").read_bytes() == b"1\n2\n"
    assert not (folder / "result.json").exists()
