"""`init:`: a run starts from another run's weights, or a file's; and a model may hold several
mixers.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from command import cli
from odd import odd_mixer
from safetensors.torch import load_file, save_file
from small_run import SMALL, only_run, run_here

HYBRID = "mixers:\n  - {name: softmax, layers: [-1]}\n"


def result(folder: Path) -> dict:
    (path,) = folder.rglob("result.json")
    return json.loads(path.read_text())


def test_a_run_starts_from_another_ones_weights_with_another_mixer(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(SMALL)
    train = ["train", "small.yaml", "--local", "train.epochs=1", "tracking.uri=off"]
    cli([*train, "--root", "a"], tmp_path)
    first = only_run(tmp_path / "a")
    refused = cli(
        [*train, "--root", "b", f"init.from={first}", "backbone.params.ffn_dim=24"],
        tmp_path,
        check=2,
    )
    assert f"init.from: {first}: tensors " in refused.stderr
    assert not list((tmp_path / "b").rglob("result.json"))
    cli(
        [*train, "--root", "c", f"init={{from: {first}, strict: false}}", "mixer=softmax"], tmp_path
    )
    init = result(only_run(tmp_path / "c"))["init"]
    assert (init["from"], len(init["sha256"])) == (str(first), 64)
    assert len(init["used"]) > 10
    kept = sorted((first / "checkpoints").glob("*/model.safetensors"))[-1]
    torch.manual_seed(0)
    save_file(
        {name: torch.randn_like(tensor) for name, tensor in load_file(kept).items()},
        tmp_path / "w.safetensors",
    )
    cli([*train, "--root", "d", "init.from=w.safetensors"], tmp_path)
    assert result(only_run(tmp_path / "d"))["init"]["missing"] == []


def test_two_mixers_in_one_model(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(SMALL + HYBRID)
    train = ["train", "small.yaml", "--local", "train.epochs=1", "backbone.params.num_layers=2"]
    cli(train, tmp_path)
    run = only_run(tmp_path)
    assert [
        plugin["name"] for plugin in json.loads((run / "environment.json").read_text())["plugins"]
    ][-1] == "softmax"
    names = load_file(sorted((run / "checkpoints").glob("*/model.safetensors"))[-1])
    first, last = ([name for name in names if f"blocks.{number}." in name] for number in (0, 1))
    assert len(first) > len(last) > 0
    assert result(run)["status"] == "finished"
    refused = cli([*train, "mixers.0.role=cross", "mixers.0.layers=null"], tmp_path, check=2)
    assert (
        "mixers[0]: no mixer of this model has its layers and role; leave it out" in refused.stderr
    )


def test_weights_that_a_mixer_ties_come_once_and_are_all_there(ticket, tmp_path: Path):
    settings = (f"mixer={odd_mixer(tmp_path)}", "train.epochs=1")
    first = ticket(*settings)
    assert run_here(first) == "finished"
    second = ticket(*settings, f"init.from={first.folder}")
    assert run_here(second) == "finished"
    init = result(second.folder)["init"]
    assert (init["missing"], init["unused"]) == ([], [])
