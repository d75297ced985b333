"""Checkpoints: whole or not there, damage always found, walking back, pruning."""

import random
import subprocess
import sys

import pytest
import torch

from subquad.engine import checkpoint
from subquad.engine.checkpoint import (
    Checkpoint,
    finished_steps,
    newest_good,
    prune,
    read_checkpoint,
    trained_weights,
    write,
)
from subquad.errors import CheckpointError, DiskError
from subquad.record import integrity
from subquad.record.files import json_text, parse_object
from subquad.record.integrity import checkpoint_folder, look, steps_of, sum_at
from subquad.record.names import CHECKPOINTS

FILES = (
    "model.safetensors",
    "optimizer.safetensors",
    "rng.safetensors",
    "state.json",
    "manifest.json",
)


def put(root, step: int, value: float = 1.0, best: int = 0, digest: str = "one") -> None:
    """Write a checkpoint whose best one is that of step `best`, its own where 0."""
    checkpoint = Checkpoint(
        {"layer.weight": torch.full((3, 4), value), "count": torch.tensor(7)},
        {
            "layer.weight/exp_avg": torch.full((3, 4), value / 2),
            "layer.weight/step": torch.tensor(3.0),
        },
        {"0/torch": torch.arange(16, dtype=torch.uint8)},
        {
            "progress": {"step": step, "loss": float("nan"), "best": {"step": best or step}},
            "digest": digest,
        },
    )
    write(root, step, checkpoint)


def test_what_is_written_is_read(tmp_path):
    put(tmp_path, 12, 3.5)
    found = read_checkpoint(tmp_path, 12)
    assert torch.equal(found.model["layer.weight"], torch.full((3, 4), 3.5))
    assert found.model["count"].item() == 7
    assert found.optimizer["layer.weight/step"].item() == 3.0
    assert torch.equal(found.rng["0/torch"], torch.arange(16, dtype=torch.uint8))
    assert found.state["progress"] == {"step": 12, "loss": "NaN", "best": {"step": 12}}
    assert finished_steps(tmp_path) == [12]


@pytest.mark.parametrize("kind", ["truncation", "bit flip"])
def test_two_hundred_damages_are_all_found(tmp_path, kind):
    generator = random.Random(0)
    put(tmp_path, 1, 1.0)
    put(tmp_path, 2, 2.0)
    folder = checkpoint_folder(tmp_path, 2)
    for _ in range(200):
        path = folder / generator.choice(FILES)
        whole = path.read_bytes()
        place = generator.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << generator.randrange(8)
        path.write_bytes(whole[:place] if kind == "truncation" else bytes(flipped))
        notes: list[str] = []
        found = newest_good(tmp_path, notes.append)
        assert found is not None
        assert found.model["layer.weight"][0, 0] == 1.0, (path.name, place)
        assert len(notes) == 1
        assert "step-00000002" in notes[0]
        path.write_bytes(whole)
    assert newest_good(tmp_path, pytest.fail).model["layer.weight"][0, 0] == 2.0


def test_those_whose_best_one_is_bad_are_passed_over(tmp_path):
    put(tmp_path, 1, 1.0)
    put(tmp_path, 2, 2.0)
    put(tmp_path, 3, 3.0, best=2)
    (checkpoint_folder(tmp_path, 2) / "optimizer.safetensors").unlink()
    assert newest_good(tmp_path, pytest.fail).model["layer.weight"][0, 0] == 3.0
    assert trained_weights(tmp_path, None)["layer.weight"][0, 0] == 2.0
    put(tmp_path, 2, 2.0, digest="of another experiment")
    notes: list[str] = []
    assert newest_good(tmp_path, notes.append).model["layer.weight"][0, 0] == 2.0
    assert notes == [
        f"passed over a bad checkpoint: {tmp_path}/step-00000002: belongs to another experiment"
    ]
    (checkpoint_folder(tmp_path, 2) / "model.safetensors").unlink()
    assert newest_good(tmp_path, notes.append).model["layer.weight"][0, 0] == 1.0


def test_junk_is_walked_over_and_cleared_away(tmp_path):
    put(tmp_path, 1)
    checkpoint_folder(tmp_path, 2).write_text("a file")
    (checkpoint_folder(tmp_path, 3) / "manifest.json").mkdir(parents=True)
    put(tmp_path, 4)
    (checkpoint_folder(tmp_path, 4) / "manifest.json").write_text("[" * 100_000)
    put(tmp_path, 5)
    (checkpoint_folder(tmp_path, 5) / "model.safetensors").unlink()
    (checkpoint_folder(tmp_path, 5) / "model.safetensors").mkdir()
    notes: list[str] = []
    assert newest_good(tmp_path, notes.append).state["progress"]["step"] == 1
    assert len(notes) == 4
    for step in (2, 3):
        put(tmp_path, step, float(step))
    assert newest_good(tmp_path, notes.append).model["layer.weight"][0, 0] == 3.0
    prune(tmp_path, 3, 1, [])
    assert list(steps_of(tmp_path)) == [3]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(tmp_path, name):
    put(tmp_path, 1)
    (checkpoint_folder(tmp_path, 1) / name).unlink()
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        read_checkpoint(tmp_path, 1)


def test_all_damaged_is_an_error_that_lists_each(tmp_path):
    for step in (1, 2):
        put(tmp_path, step)
        (checkpoint_folder(tmp_path, step) / "state.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"all 2 checkpoints are damaged: .*step-00000002.*step-00000001"
    ):
        newest_good(tmp_path, lambda text: None)


def test_unfinished_ones_are_no_damage(tmp_path):
    checkpoint_folder(tmp_path, 5).mkdir(parents=True)
    notes: list[str] = []
    assert newest_good(tmp_path, notes.append) is None
    assert "step-00000005: is not here" in notes[0]
    (checkpoint_folder(tmp_path, 5) / "model.safetensors").write_bytes(b"")
    assert newest_good(tmp_path, notes.append) is None
    assert "never finished" in notes[1]
    assert newest_good(tmp_path / "nothing", notes.append) is None


def test_another_format_says_so(tmp_path):
    put(tmp_path, 1)
    path = checkpoint_folder(tmp_path, 1) / "manifest.json"
    path.write_text(json_text({**parse_object(path.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match="checkpoint format 99, this subquad reads format 1"):
        read_checkpoint(tmp_path, 1)


def test_a_best_step_that_is_still_to_come_is_damage(tmp_path):
    put(tmp_path, 1)
    path = checkpoint_folder(tmp_path, 1) / "manifest.json"
    path.write_text(json_text({**parse_object(path.read_text()), "best": 2}))
    with pytest.raises(CheckpointError, match="damaged: it speaks of step 1, the best step 2"):
        read_checkpoint(tmp_path, 1)


def test_pruning_keeps_the_newest_and_the_named(tmp_path):
    for step in range(1, 7):
        put(tmp_path, step)
    prune(tmp_path, 6, 2, [1])
    assert list(steps_of(tmp_path)) == [1, 5, 6]


def test_pruning_takes_a_given_up_future_and_unfinished_folders(tmp_path):
    for step in (13, 26, 28, 30):
        put(tmp_path, step)
    checkpoint_folder(tmp_path, 27).mkdir()
    checkpoint_folder(tmp_path, 29).mkdir()
    prune(tmp_path, 28, 2, [13, 29])
    assert list(steps_of(tmp_path)) == [13, 26, 28]
    prune(tmp_path, 28, 1, [])
    assert list(steps_of(tmp_path)) == [28]


def test_one_that_its_run_removes_while_it_is_looked_at_is_no_damage(tmp_path, monkeypatch):
    root = tmp_path / CHECKPOINTS
    put(root, 5)
    put(root, 10)

    def removed_before(path):
        prune(root, 10, 1, [])
        return sum_at(path)

    monkeypatch.setattr(integrity, "sum_at", removed_before)
    looked = look(tmp_path)
    assert (looked.faults, looked.checkpoints) == ((), 1)


def test_newest_is_by_step_not_by_time(tmp_path):
    put(tmp_path, 20, 20.0)
    put(tmp_path, 3, 3.0)
    assert newest_good(tmp_path, pytest.fail).model["layer.weight"][0, 0] == 20.0


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    put(tmp_path, 1, 1.0)

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    with pytest.raises(DiskError, match=r"No space left on device; it needs .* MB, .* MB are free"):
        put(tmp_path, 2)
    assert list(steps_of(tmp_path)) == [1]
    assert newest_good(tmp_path, pytest.fail).model["layer.weight"][0, 0] == 1.0


KILLED = """
import sys, pathlib, torch
from subquad.engine.checkpoint import Checkpoint, write
value = lambda x: Checkpoint(
    {"w": torch.full((50,), x)},
    {},
    {"0/torch": torch.zeros(4, dtype=torch.uint8)},
    {"progress": {"step": int(x)}},
)
root = pathlib.Path(sys.argv[1])
write(root, 1, value(1.0))
write(root, 2, value(2.0))
"""
# Passings of the points while the first checkpoint is written; the counts below hit the second one.
POINTS = [
    ("save.model.safetensors", 2),
    ("save.optimizer.safetensors", 2),
    ("save.rng.safetensors", 2),
]
POINTS += [("save.state.json", 2), ("save.manifest", 2), ("save.done", 2)]
POINTS += [("save.half", number) for number in (6, 7, 8, 9, 10)]


@pytest.mark.ci
@pytest.mark.parametrize(("point", "number"), POINTS)
def test_a_kill_anywhere_in_a_save_leaves_a_good_checkpoint(tmp_path, point, number):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={"PATH": "", "SUBQUAD_FAULT": f"kill@{point}:{number}", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == -9
    found = newest_good(tmp_path, lambda text: None)
    assert found is not None
    assert found.model["w"][0] == (2.0 if point == "save.done" else 1.0)
