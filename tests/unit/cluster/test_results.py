"""What a cluster sends as a job's results is written below runs/NAME/STAMP, or not at all."""

import io
import os
import stat
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from subquad.errors import DiskError, RunError
from subquad.ray import results
from subquad.ray.results import FETCHED, results_name, unpack
from subquad.record.storage import below

JOB, TOP = "small-3fa9c1", "runs/small/20260101-101500-ab12cd34"


def archive(*files: tuple[str, bytes], mode: int = 0o100644) -> bytes:
    """A zip file whose members have any names."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files:
            entry = zipfile.ZipInfo("x" * len(name))
            entry.filename = name
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return stream.getvalue()


def fetched(data: bytes, into: Path, job: str = JOB, **more: str) -> list[Path]:
    return unpack(job, lambda file: file.write(data), into, **more)


def content(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != FETCHED]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Where a user fetches to, with what others have there."""
    own = {
        ".git/config": b"git",
        "my_plugin.py": b"mine",
        ".env": b"env",
        f"{TOP}-other/result.json": b"{}",
    }
    for name, data in own.items():
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "here"


def refused(data: bytes, into: Path, match: str, **more: str) -> None:
    """The archive is refused in one line, and nothing is written anywhere."""
    before = content(into.parent)
    with pytest.raises(RunError, match=match) as caught:
        fetched(data, into, **more)
    assert "\n" not in str(caught.value)
    assert content(into.parent) == before
    assert not list(into.glob(".fetching-*"))


def test_a_true_run_is_equal_and_others_are_left_alone(into, tmp_path):
    before = content(into)
    run = tmp_path / "head" / TOP
    for name in (
        "result.json",
        "cells/a/metrics.jsonl",
        "source/1-mine.py",
        "checkpoints/step-00000001/x",
        ".lock",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(name.encode() * 5000)
    (run / "link").symlink_to("/etc/passwd")
    log = tmp_path / "head" / "job.log"
    code = (
        "import sys, pathlib, subquad.ray.results as it; it.leave_results(sys.argv[1], "
        "[pathlib.Path(sys.argv[2])])"
    )
    with log.open("wb") as stream:
        subprocess.run(
            [sys.executable, "-c", code, JOB, TOP], cwd=tmp_path / "head", stdout=stream, check=True
        )
    data = log.with_name(results_name(JOB)).read_bytes()
    for _ in range(2):  # the second time into the folder of the first
        assert fetched(data, into) == [into / TOP]
        sent = {
            f"{TOP}/{name}" for name in ("result.json", "cells/a/metrics.jsonl", "source/1-mine.py")
        }
        assert content(into).keys() == before.keys() | sent
        assert all(content(into)[name] == (tmp_path / "head" / name).read_bytes() for name in sent)
    assert before.items() <= content(into).items()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/cron.d/x",
        "//etc/cron.d/x/y",
        "../../.bashrc",
        f"{TOP}/../../../.git/config",
        f"{TOP}/./result.json",
        f"{TOP}//result.json",
        f"{TOP}/result.json/",
        f"{TOP}/a\x00b",
        f"{TOP}/a\x1b]52;c;eA==\x07",
        f"{TOP}/a\nb",
        ".git/config",
        ".git/hooks/pre-commit",
        f"{TOP}/.git/config",
        "runs/--local/20260101-101500-ab12cd34/result.json",
        "runs/.git/hooks/pre-commit",
        f"{TOP}/{FETCHED}",
        "my_plugin.py",
        ".env",
        "runs/small/result.json",
        "runs/x",
        "mlruns/a/b/c",
        "",
    ],
)
def test_a_file_elsewhere_is_refused(into, name):
    good = (f"{TOP}/result.json", b"{}")
    refused(archive(good, (name, b"bad")), into, "its results")


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o020644, 0o060644, 0o140644, 0o040755])
def test_only_regular_files_are_taken(into, mode):
    refused(archive((f"{TOP}/link", b"/etc/passwd"), mode=mode), into, "is no regular file")


def test_no_file_can_be_run(into):
    fetched(archive((f"{TOP}/hook", b"#!/bin/sh"), mode=0o104777), into)
    assert not stat.S_IMODE((into / TOP / "hook").stat().st_mode) & 0o6111


def test_what_did_not_come_from_the_job_is_not_replaced(into):
    data = archive((f"{TOP}/result.json", b"{}"))
    (into / TOP).mkdir(parents=True)
    (into / TOP / "result.json").write_bytes(b"own")
    refused(data, into, "did not come from a job: move it away, or give another --into")
    (into / TOP / "result.json").unlink()
    (into / TOP).rmdir()
    fetched(data, into)
    refused(archive((f"{TOP}/result.json", b"[]")), into, f"came from job {JOB}", job="other")
    fetched(archive((f"{TOP}/result.json", b"[]")), into, job="other", goes_on=TOP)
    assert (into / TOP / "result.json").read_bytes() == b"[]"
    (into / TOP / "mlflow.json").write_bytes(b"own")
    fetched(data, into, job="other")
    assert (into / TOP / "mlflow.json").read_bytes() == b"own"


def test_links_below_the_target_are_not_followed(into, tmp_path):
    data = archive((f"{TOP}/result.json", b"{}"), (f"{TOP}/cells/a", b"a"))
    outside = tmp_path / "outside"
    outside.mkdir()
    fetched(data, into)
    (into / TOP / "cells" / "a").unlink()
    (into / TOP / "cells").rmdir()
    (into / TOP / "cells").symlink_to(outside)
    with pytest.raises(RunError, match="leads out of"):
        fetched(data, into)
    assert not list(outside.iterdir())


def test_sizes_are_looked_at_before_anything_is_unpacked(into, monkeypatch):
    monkeypatch.setattr(results, "SMALL", 2**16)
    refused(archive((f"{TOP}/zeros", bytes(2**20))), into, "more than 100 times as much")
    monkeypatch.setattr(results, "MOST_BYTES", 2**16)
    refused(
        archive((f"{TOP}/random", os.urandom(2**17))),
        into,
        "are 1 files with 131,072 bytes; allowed",
    )
    monkeypatch.setattr(results, "MOST_FILES", 2)
    refused(archive(*((f"{TOP}/{number}", b"") for number in range(3))), into, "are 3 files")


def test_a_list_of_files_that_is_too_long_is_not_read(into):
    good = archive((f"{TOP}/result.json", b"{}"))
    end = bytearray(good)
    end[-10:-6] = struct.pack("<L", 2**30)
    refused(bytes(end), into, "list of files of 1,073,741,824 bytes")
    larger = good[:-22] + b"PK\x06\x07" + bytes(16) + good[-22:]
    refused(larger, into, "no zip file of subquad")
    refused(good + b"\x00" * 30, into, "no zip file of subquad")
    refused(b"", into, "are no zip file")
    refused(b"PK", into, "are no zip file")


def test_a_member_that_says_another_size_than_it_has_is_refused(into):
    data = bytearray(archive((f"{TOP}/zeros", os.urandom(5000))))
    start = data.index(b"PK\x01\x02") + 24
    data[start : start + 4] = struct.pack("<L", 100)
    refused(bytes(data), into, "cannot be written")


@pytest.mark.parametrize("byte", range(300))
def test_damage_never_ends_otherwise(into, byte):
    data = bytearray(archive((f"{TOP}/a", b"text " * 50), (f"{TOP}/b", b"text " * 50)))
    data[(byte * 7919) % len(data)] ^= 0x55
    with suppress(RunError):
        fetched(bytes(data), into)
    assert {name for name in content(into.parent) if "here/runs/small" not in name} == {
        f"here/{name}" for name in (".git/config", "my_plugin.py", ".env")
    }


def test_two_files_with_one_name_are_refused(into):
    with pytest.warns(UserWarning, match="Duplicate"):
        data = archive((f"{TOP}/a", b"a"), (f"{TOP}/a", b"b"))
    refused(data, into, "two files with one name")


def test_names_of_a_bucket_stay_below_their_folder(bucket, tmp_path):
    from subquad.record.storage import fetched as fetched_data
    from subquad.record.storage import listing
    from subquad.record.stores import place_at

    for key in ("data//home/u/.bashrc", "data/../up", "data/./here", "data/a\x1b[2J"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"canary")
        with pytest.raises(DiskError, match="no name of a file below a folder"):
            listing(place_at(f"s3://{bucket.name}/data"))
        with pytest.raises(Exception, match="no name of a file below a folder"):
            fetched_data(f"s3://{bucket.name}/data", tmp_path / "root")
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and not path.name.endswith(".lock")
    ]


def test_below(tmp_path):
    assert below(tmp_path, "a/b") == tmp_path / "a" / "b"
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(ValueError, match="leads out of"):
        below(tmp_path, "link/passwd")
