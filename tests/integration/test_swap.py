"""`subquad swap` and the backbone `timm-vit` on pictures: from a folder to a trained model and
another mixer in it.
"""

import json

import pytest
from command import cli
from pictures import write_folder
from safetensors.torch import load_file, save_file
from small_run import only_run
from subquad.record.names import OPENINGS

VIT = """
name: small
dataset:
  name: image-folder
  params: {path: pictures, size: 16, crop_share: 1.0, validation_fraction: 0.25}
task: classification
backbone:
  name: timm-vit
  params: {model: deit_tiny_patch16_224, patch_size: 4, depth: 2, dim: 16, num_heads: 2}
mixer: softmax
train: {epochs: 1, batch_size: 8, lr: 1e-3, weight_decay: 0.05, eval_batch_size: 8}
tracking: {uri: off}
"""


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("vit")
    for seed, (part, count) in enumerate({"train": 16, "test": 4}.items()):
        write_folder(tmp_path / "pictures" / part, {"cat": count, "dog": count}, seed)
    (tmp_path / "vit.yaml").write_text(VIT)
    cli(["train", "vit.yaml", "--local"], tmp_path)
    return only_run(tmp_path)


def swaps(folder):
    return json.loads((folder / "swap.json").read_text())


def test_a_vision_transformer_is_trained_and_swapped(vit, tmp_path):
    grid = [
        "num_indices=[2,8,17]",
        "selection=[step,abs]",
        "force_class=[auto,never]",
        "pinv=exact",
    ]
    done = cli(["swap", str(vit), "cur", *grid, "--layer-samples", "4"], tmp_path)
    assert (
        "8 samples: validation part of TRAIN, which chose the original's checkpoint; no training"
        in done.stdout
    )
    found = swaps(tmp_path / "swap-cur")
    assert [swap["params"]["num_indices"] for swap in found["swaps"]] == [
        2,
        2,
        2,
        8,
        8,
        8,
        17,
        17,
        17,
    ]
    assert len(found["swaps"][0]["errors"]) == 2
    assert all(swap["untrained"] == [] for swap in found["swaps"])
    for whole in found["swaps"][6:]:  # all tokens and an exact inverse are softmax attention
        assert max(error["relative"] for error in whole["errors"]) < 1e-4
        assert whole["metrics"]["accuracy"] == found["original"]["accuracy"]
    worst = max(found["swaps"], key=lambda swap: swap["errors"][0]["relative"])
    assert worst["params"]["num_indices"] == 2
    assert worst["errors"][0]["relative"] > 1e-3
    openings = (vit / OPENINGS).read_bytes()
    printed = cli(
        ["swap", str(vit), "cur", "num_indices=4", "--split", "test", "--json", "--out", "there"],
        tmp_path,
    )
    assert json.loads(printed.stdout)["protocol"].startswith("TEST, opened for this")
    assert (vit / OPENINGS).read_bytes() == openings
    for ledger in (tmp_path / "there" / OPENINGS, vit.parents[1] / OPENINGS):
        assert json.loads(ledger.read_text().splitlines()[-1])["reason"] == "subquad swap"
    cli(["verify", str(vit)], tmp_path)
    of_agf = ["swap", str(vit), "agf", "ortho_weight=0", "--samples", "4", "--json"]
    refused = cli(of_agf, tmp_path, check=2).stderr
    assert "agf with ortho_weight 0: " in refused
    assert "tensors have no weights of their name and shape in the original" in refused
    assert "vit.blocks.0.mixer.u.weight" in refused
    assert not (tmp_path / "swap-agf").exists()
    agf = json.loads(cli([*of_agf, "--new-weights"], tmp_path).stdout)
    assert "vit.blocks.0.mixer.u.weight" in agf["swaps"][0]["untrained"]
    assert "vit.blocks.0.mixer.query.weight" in agf["swaps"][0]["left_out"]
    assert agf["samples"] == 4


def test_an_experiment_with_weights_is_swapped(vit, tmp_path):
    (weights,) = (vit / "checkpoints").glob("*/model.safetensors")
    save_file(load_file(weights), tmp_path / "w.safetensors")
    (tmp_path / "vit.yaml").write_text(VIT)
    (tmp_path / "moved").symlink_to(vit.parents[2] / "pictures")
    given = ["--weights", "w.safetensors", "--data", "moved"]
    done = cli(["swap", "vit.yaml", "cur", "num_indices=17", "pinv=exact", *given], tmp_path)
    assert "the weights may have been trained on it" in done.stdout
    (swap,) = swaps(tmp_path / "swap-cur")["swaps"]
    assert max(error["relative"] for error in swap["errors"]) < 1e-4
    for arguments, message in {
        (str(vit), "cur", *given): f"--weights: {vit} is a run, which has its own; leave it out",
        (
            str(vit),
            "cur",
            "train.lr=1",
        ): f"train.lr=1: {vit} is a run, which has its own; leave it out",
        (
            "vit.yaml",
            "cur",
            "backbone.params.model=vit_none",
            *given,
        ): "timm has no vision transformer 'vit_none'",
        (
            "vit.yaml",
            "cur",
            "--data",
            "moved",
        ): "vit.yaml: says no weights to start from (init.from); give --weights",
        ("vit.yaml", "curr", *given): "unknown mixer 'curr'; did you mean 'cur'?",
        (
            "vit.yaml",
            "cur",
            "num_indexes=[4]",
            *given,
        ): "mixer.params.num_indexes: unknown key; did you mean 'num_ind",
        (
            "vit.yaml",
            "cur",
            "num_indices=[4,-1]",
            *given,
        ): "mixer.params.num_indices: got -1, must be a whole number >=",
    }.items():
        assert message in cli(["swap", *arguments], tmp_path, check=2).stderr
    assert not (tmp_path / "there").exists()
