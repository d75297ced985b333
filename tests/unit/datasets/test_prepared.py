"""Prepared folders: built once by one of many, whole or absent, and never read when damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from subquad.errors import DataError
from subquad_datasets import prepared
from subquad_datasets.prepared import (
    check_prepared,
    fault_of,
    prepare_once,
    prepared_name,
    read_manifest,
)

KEY = {"what": "squares", "count": 5}

BUILDER = """
import os, signal, sys
from pathlib import Path
from subquad_datasets.prepared import prepare_once

folder, how = Path(sys.argv[1]), sys.argv[2]

def build(part):
    with (folder / "builds.log").open("a") as log:
        log.write("built\\n")
    (part / "first.txt").write_text("half")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "meet":
        print("building", flush=True)
        sys.stdin.readline()
    (part / "second.txt").write_text("whole")
    return {"count": 2}

print("asking", flush=True)
print(prepare_once(folder, {"what": "squares", "count": 5}, build), flush=True)
"""


def build(part: Path) -> dict[str, object]:
    (part / "sub").mkdir()
    (part / "first.txt").write_text("half")
    (part / "sub" / "second.txt").write_text("whole")
    return {"count": 2, "notes": ["made by hand"]}


def refuse(part: Path) -> dict[str, object]:
    raise AssertionError("built again")


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(folder), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def test_a_second_call_finds_what_the_first_one_made(tmp_path):
    made = prepare_once(tmp_path, KEY, build)
    assert made == prepare_once(tmp_path, KEY, refuse) == tmp_path / prepared_name(KEY)
    manifest = check_prepared(made, sums=True)
    assert (manifest.key, manifest.facts) == (KEY, {"count": 2, "notes": ["made by hand"]})
    assert {name: file["size"] for name, file in manifest.files.items()} == {
        "first.txt": 4,
        "sub/second.txt": 5,
    }


def test_another_key_is_another_folder_and_the_order_of_keys_does_not_matter(tmp_path):
    other = prepare_once(tmp_path, {**KEY, "count": 6}, build)
    assert other != prepare_once(tmp_path, KEY, build)
    assert prepared_name(KEY) == prepared_name(dict(reversed(KEY.items())))


@pytest.mark.ci
def test_two_processes_build_once(tmp_path):
    first = start(tmp_path, "meet")
    assert [said(first), said(first)] == ["asking", "building"]
    second = start(tmp_path, "run")
    assert said(second) == "asking"
    ends = [child.communicate("\n")[0].strip() for child in (first, second)]
    assert ends == [str(tmp_path / prepared_name(KEY))] * 2
    assert (tmp_path / "builds.log").read_text() == "built\n"


@pytest.mark.ci
def test_a_killed_build_leaves_nothing_to_read_and_a_rerun_completes(tmp_path):
    child = start(tmp_path, "die")
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert names(tmp_path) == {"builds.log", f"{prepared_name(KEY)}.part"}
    (tmp_path / f"{prepared_name(KEY)}.part" / "stray.txt").write_text("left over")
    made = prepare_once(tmp_path, KEY, build)
    assert names(made) == {"first.txt", "manifest.json", "stamps.json", "sub"}
    assert names(tmp_path) == {made.name, "builds.log"}


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def fail(part: Path) -> dict[str, object]:
        (part / "first.txt").write_text("half")
        raise DataError("line 3 is not for us")

    with pytest.raises(DataError, match="line 3 is not for us"):
        prepare_once(tmp_path, KEY, fail)
    assert names(tmp_path) == set()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"prepared data cannot be kept in .*file"):
        prepare_once(tmp_path / "file", KEY, build)


@pytest.mark.parametrize("damage", ["cut", "flip", "lose", "manifest", "no manifest"])
def test_damaged_data_are_not_read_and_are_built_again(tmp_path, damage):
    made = prepare_once(tmp_path, KEY, build)
    victim = made / "sub" / "second.txt"
    if damage == "cut":
        victim.write_text("who")
    elif damage == "flip":
        victim.write_text("while")
    elif damage == "lose":
        victim.unlink()
    elif damage == "manifest":
        (made / "manifest.json").write_text('{"key": ')
    else:
        (made / "manifest.json").unlink()
    with pytest.raises(DataError, match="; prepare the data again"):
        check_prepared(made)
    prepare_once(tmp_path, KEY, build)
    check_prepared(made, sums=True)
    assert victim.read_text() == "whole"


def test_a_change_that_keeps_size_and_time_is_found_when_sums_are_asked_for(tmp_path):
    made = prepare_once(tmp_path, KEY, build)
    victim = made / "first.txt"
    stamp = victim.stat().st_mtime_ns
    victim.write_text("hulf")
    os.utime(victim, ns=(stamp, stamp))
    check_prepared(made)
    with pytest.raises(
        DataError, match=r"first\.txt: changed since it was written; prepare the data again"
    ):
        check_prepared(made, sums=True)


def test_sums_are_taken_once_after_a_copy(tmp_path, monkeypatch):
    made = prepare_once(tmp_path / "here", KEY, build)
    copied = shutil.copytree(made, tmp_path / "there" / made.name, copy_function=shutil.copyfile)
    taken: list[Path] = []
    true_sum = prepared.sha256_of
    monkeypatch.setattr(prepared, "sha256_of", lambda path: (taken.append(path), true_sum(path))[1])
    assert fault_of(copied) == fault_of(copied) == ""
    assert len(taken) == 2


def test_a_folder_without_data_is_said_to_be_so(tmp_path):
    with pytest.raises(
        DataError, match=r"manifest\.json: missing or damaged; prepare the data again"
    ):
        read_manifest(tmp_path)
