"""Sums of files are those of their content, wherever the files are."""

import hashlib

import pytest
from result_file import ended
from upath import UPath

from subquad.record.files import write_json
from subquad.record.integrity import look
from subquad.record.names import RESULT
from subquad.record.sums import change, manifest_of, sum_at, sum_of


@pytest.mark.parametrize("content", [b"", b"x", bytes(1_000_000)], ids=["empty", "short", "long"])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_size_and_sum_of_a_file_of_this_machine_and_of_another(tmp_path, place, content):
    """A file that another machine sends is a stream in memory, as fsspec's memory file system
    has them.
    """
    path = tmp_path / "file" if place == "local" else UPath("memory://manifest/file")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    expected = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert sum_at(path) == sum_of(content) == expected
    assert manifest_of({"a": path, "b": path.with_name("none")}) == {"a": expected}
    assert change("a", expected, sum_at(path)) == ""


@pytest.mark.parametrize("above", ["../secret", "a/../../secret", "{folder}/secret"])
def test_a_manifest_names_no_file_outside_its_folder(tmp_path, above):
    """Its sum would tell what a stranger's manifest asks about."""
    (tmp_path / "secret").write_text("x")
    run = tmp_path / "run"
    (run / "a").mkdir(parents=True)
    name = above.format(folder=tmp_path)
    write_json(run / RESULT, ended("finished", files={name: sum_of(b"x")}))
    assert look(run).faults == (f"{name} is no file of the folder, and yet its manifest names it",)
