"""Checkpoints of FSDP2 as files: a file for each rank, read by all commands and by torch's own
reader, damaged, on a full disk, in an object store.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import states
import torch
import torch.distributed.checkpoint as dcp
from odd import odd_mixer
from ranks import (
    add_to_environment,
    full_disk_of_the_second_rank,
    no_number_on_the_second_rank,
)
from result_file import read_result
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader

from subquad.cli.main import main
from subquad.engine.stored import Stored, pieces_of
from subquad.engine.tensors import model_tensors
from subquad.errors import DataError
from subquad.record.metrics import read_records
from subquad.trained.model import Trained
from subquad.trained.verify import verify

SETTINGS = ("train.epochs=2", "train.checkpoint_every_steps=5", "train.keep_checkpoints=20")
SAVED = [5, 10, 13, 15, 20, 25, 26]


def sharded(ticket, workers, *more):
    return ticket("resources.strategy=fsdp2", f"resources.workers={workers}", *SETTINGS, *more)


def codes(ended):
    return {process.code for process in ended}


def events(run):
    return [record.text for record in read_records(run) if record.kind == "event"]


@pytest.fixture
def trained(ranks, ticket, tmp_path):
    """A finished run of two ranks whose weights are averages."""
    run = sharded(ticket, 2, f"mixer={odd_mixer(tmp_path)}", "train.ema_decay=0.9")
    assert codes(ranks.train(run, 2)) == {0}
    return run


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # torch's reader, alone
def test_each_rank_writes_its_rows_and_every_reader_puts_them_together(
    trained, ticket, tmp_path, capsys
):
    run = trained.folder
    step = read_result(run)["test"]["step"]
    folder = run / "checkpoints" / f"step-{step:08d}"
    names = {"rng.safetensors", "state.json"}
    for kind in ("model", "optimizer"):
        names |= {f"{kind}-00000-of-00002.safetensors", f"{kind}-00001-of-00002.safetensors"}
    assert json.loads((folder / "manifest.json").read_text())["files"].keys() == names
    whole = states.state(run, step)
    rows = [len(load_file(folder / name)["head.weight"]) for name in sorted(names)[:2]]
    assert min(rows) > 0
    assert sum(rows) == len(whole["model:head.weight"])
    weights = model_tensors(Trained.of(run, "best").parts.bare_model)
    wanted = {name.removeprefix("model:"): whole[name] for name in whole if name[:6] == "model:"}
    assert states.unequal(weights, wanted) == []
    assert [fault for found in verify(run) for fault in found.faults] == []
    assert main(["export", str(run), str(tmp_path / "exported")]) == 0
    assert states.unequal(load_file(tmp_path / "exported" / "model.safetensors"), wanted) == []
    after = ticket(f"mixer={odd_mixer(tmp_path)}", f"init.from={run}", "train.epochs=1")
    begun = Trained.before(after).parts.bare_model
    assert states.unequal(model_tensors(begun), wanted) == []
    read = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    dcp.load(read, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert states.unequal(read, wanted) == []


def test_a_flipped_byte_in_one_shard_is_named_and_an_older_checkpoint_taken(trained, ranks):
    run = trained.folder
    whole = states.state(run, 26)
    (run / "result.json").unlink()
    path = run / "checkpoints" / "step-00000026" / "optimizer-00001-of-00002.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    (found,) = verify(run)
    assert found.faults == (
        f"checkpoints/step-00000026/{path.name} has changed: its sha256 differs from its manifest",
    )
    assert codes(ranks.train(trained, 2)) == {0}
    assert [text for text in events(run) if "passed over" in text] == [
        f"passed over a bad checkpoint: {path} has changed: its sha256 differs from its manifest"
    ]
    assert states.unequal(states.state(run, 26), whole) == []


def test_a_disk_that_is_full_for_one_rank_leaves_earlier_checkpoints(ranks, ticket):
    run, whole = sharded(ticket, 2), sharded(ticket, 2)
    ended = ranks.train(run, 2, around=full_disk_of_the_second_rank)
    for process in ended:
        assert process.error.startswith(
            f"DiskError: cannot write checkpoint {run.folder}/checkpoints/step-00000013: No space "
            "left on device; it needs "
        )
        assert process.error.endswith(" MB are free; earlier checkpoints are intact")
    assert states.steps(run.folder) == [5, 10]
    assert codes(ranks.train(run, 2)) == codes(ranks.train(whole, 2)) == {0}
    assert states.steps(run.folder) == SAVED
    for step in SAVED:
        found = states.unequal(states.state(run.folder, step), states.state(whole.folder, step))
        assert found == []


def test_weights_that_are_no_numbers_on_one_rank_are_not_saved(ranks, ticket):
    run = sharded(ticket, 2)
    assert codes(ranks.train(run, 2, around=no_number_on_the_second_rank)) == {0}
    assert states.steps(run.folder) == []
    result = read_result(run.folder)
    assert result["status"] == "failed"
    assert result["reason"].startswith("step 5: weights are not finite: head.weight; no checkpoint")


def test_shards_in_an_object_store_go_on_after_a_kill(bucket, ranks, ticket, tmp_path):
    there = partial(add_to_environment, bucket.environment)
    run, whole = sharded(ticket, 2, f"resources.storage={bucket.storage}"), sharded(ticket, 2)
    assert codes(ranks.train(run, 2, "kill@step:17", there)) == {-9}
    assert not (run.folder / "checkpoints").exists()
    assert codes(ranks.train(run, 2, around=there)) == {0}
    assert codes(ranks.train(whole, 2)) == {0}
    copy = tmp_path / "copy"
    above = f"runs/small/{run.folder.name}/"
    for name in bucket.names():
        path = copy / name.removeprefix(above)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.read(name))
    assert states.steps(copy) == SAVED
    for step in SAVED:
        assert states.unequal(states.state(copy, step), states.state(whole.folder, step)) == []
    assert [fault for found in verify(run.folder) for fault in found.faults] == []
    assert len(model_tensors(Trained.of(run.folder, "best").parts.bare_model)) > 5


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(0, 2), (3, 5)], "rows 2 to 3 of a tensor are missing"),
        ([(0, 3), (2, 5)], "rows 3 to 2 of a tensor are missing"),
        ([(1, 5)], "rows 0 to 1 of a tensor are missing"),
    ],
)
def test_shards_that_do_not_fit_together_are_refused(tmp_path, parts, message):
    whole = torch.arange(15.0).view(5, 3)
    with pytest.raises(DataError, match=f"not a safetensors file: {message}"):
        stored(tmp_path, whole, parts)


def stored(folder: Path, whole, parts):
    """A tensor out of files that have these rows of it."""
    streams = {}
    for number, (start, end) in enumerate(parts):
        path = folder / str(number)
        path.write_bytes(b"".join(pieces_of({"w": whole[start:end]}, {"w": start})))
        streams[path] = path.open("rb")
    try:
        return Stored(streams)
    finally:
        for stream in streams.values():
            stream.close()


@pytest.mark.parametrize(
    "parts", [[(0, 5)], [(0, 2), (2, 5)], [(3, 5), (0, 3)], [(0, 4), (4, 5), (5, 5)]]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.bool, torch.int64])
def test_rows_of_a_tensor_come_out_of_any_files(tmp_path, parts, dtype):
    whole = torch.arange(15).view(5, 3).to(dtype)
    found = stored(tmp_path, whole, parts)
    assert states.unequal({"w": found["w"]}, {"w": whole}) == []
    for start in range(6):
        for end in range(start, 6):
            assert torch.equal(found.rows("w", start, end), whole[start:end])
