"""Parameters of generated data that are each allowed, and that no machine can hold together."""

from __future__ import annotations

import shutil
import tracemalloc
from types import SimpleNamespace

import psutil
import pytest

from subquad.cli.main import main

ASKED = {
    "copy": "train_size=10000000 length=100000",
    "recall": "train_size=10000000 num_pairs=90000 num_keys=100000",
    "mqar": "train_size=10000000 length=100000",
    "copy, test": "test_size=10000000 length=100000",
    "lra-listops": "train_size=10000000 min_length=900000 max_length=1000000",
    "lra-pathfinder": "train_size=10000000 resolution=256",
    "lra-image": "train_size=1000000 side=1024",
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A machine with 4 GiB of memory, and as much left on its disk."""
    left = SimpleNamespace(available=4 << 30, free=4 << 30)
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: left)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: left)


@pytest.mark.parametrize("asked", ASKED)
def test_what_no_machine_can_hold_is_told_before_anything_is_made(asked, small, capsys):
    name = asked.partition(",")[0]
    words = [f"dataset.params.{word}" for word in ASKED[asked].split()]
    tracemalloc.start()
    code = main(["data", "show", name, *words])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    assert "at most 4,294,967,296 are free" in said
    assert peak < 2**27
