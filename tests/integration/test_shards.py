"""Runs on pictures in shards: killed and resumed, on several ranks, with unreadable pictures, on
real pictures.
"""

from __future__ import annotations

import os
import random
import signal
import tarfile
from pathlib import Path

import pytest
from command import cli
from result_file import read_result
from sharded import picture_folder, shard_folder
from small_run import digests, only_run

from subquad.cli.main import main
from subquad.record.metrics import read_records
from subquad_datasets.shards.index import index_path, read_index

EXPERIMENT = """
name: small
protocol: honest
dataset:
  name: imagenet
  params: {path: shards, size: 16, window: 16, validation_fraction: 0.2,
    auto_augment: rand-m9-mstd0.5-inc1, mixup: 0.8}
task: classification
backbone:
  name: timm-vit
  params: {model: deit_tiny_patch16_224, patch_size: 8, depth: 1, dim: 16, num_heads: 2}
mixer: softmax
train: {epochs: 3, batch_size: 8, lr: 1e-3, log_every: 1, precision: fp32}
tracking: {uri: off}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment on 36 pictures in shards of 7: 29 to train on, 4 steps an epoch."""
    shard_folder(picture_folder(tmp_path / "train", each=12), tmp_path / "shards")
    shard_folder(picture_folder(tmp_path / "val", each=4, first=100), tmp_path / "shards", "val")
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path / "small.yaml"


def trained(experiment: Path, root: str, *settings: str, fault: str = "", check: int = 0) -> Path:
    folder = experiment.parent
    cli(
        ["train", str(experiment), "--local", "--root", root, *settings],
        folder,
        fault=fault,
        check=check,
    )
    return only_run(folder / root)


def losses(run: Path) -> list[tuple[int, float]]:
    return [
        (record.step, record.metrics["loss"])
        for record in read_records(run)
        if record.kind == "train"
    ]


def same_after_kills(experiment: Path, steps: list[int], *settings: str) -> None:
    """Each process is killed at its step of this many; the last goes on to the end."""
    whole = trained(experiment, "whole", *settings)
    killed = trained(
        experiment, "killed", *settings, fault=f"kill@step:{steps[0]}", check=-signal.SIGKILL
    )
    for step in steps[1:]:
        cli(
            ["resume", str(killed), "--local"],
            experiment.parent,
            fault=f"kill@step:{step}",
            check=-signal.SIGKILL,
        )
    cli(["resume", str(killed), "--local"], experiment.parent)
    assert (read_result(killed) or {})["attempts"] == len(steps) + 1
    assert losses(killed) == losses(whole)
    assert digests(killed) == digests(whole)


def test_a_killed_run_goes_on_with_the_next_picture(experiment):
    same_after_kills(experiment, [6])


def test_a_run_from_a_store_is_that_of_the_folder_though_it_is_killed(experiment, bucket):
    """Read by loader processes, and with a cache for some of the shards."""
    shards = experiment.parent / "shards"
    for path in shards.glob("[!.]*"):
        bucket.write(f"shards/{path.name}", path.read_bytes())
    whole = trained(experiment, "whole")
    cache_gb = sum(path.stat().st_size for path in shards.glob("train-0000[0-2].tar")) / 1e9
    settings = [f"dataset.params.path={bucket.storage}/shards", "train.loader_workers=1"]
    settings.append(f"dataset.params.cache_gb={cache_gb}")
    killed = trained(experiment, "there", *settings, fault="kill@step:6", check=-signal.SIGKILL)
    cli(["resume", str(killed), "--local"], experiment.parent)
    assert losses(killed) == losses(whole)
    assert read_result(killed)["test"] == read_result(whole)["test"]


@pytest.mark.extended
def test_ten_kills_at_random_steps(experiment):
    generator = random.Random(0)
    same_after_kills(experiment, [generator.randint(5, 8) for _ in range(10)], "train.epochs=16")


@pytest.mark.extended
@pytest.mark.parametrize("workers", [2, 4])
def test_ranks_follow_the_same_curve(experiment, workers):
    """In float64 and without mixing in the loss's rounding, so that what is left is the order of
    additions.
    """
    single = losses(trained(experiment, "one", "train.precision=fp64"))
    several = losses(
        trained(experiment, "several", "train.precision=fp64", f"resources.workers={workers}")
    )
    assert [step for step, _ in several] == [step for step, _ in single]
    assert [loss for _, loss in several] == pytest.approx([loss for _, loss in single], abs=1e-6)


def test_unreadable_pictures_are_counted_named_and_stop_a_run_above_the_limit(experiment, capsys):
    shard = experiment.parent / "shards" / "train-00000.tar"
    row = read_index(shard).rows[0]
    content = bytearray(shard.read_bytes())
    content[row["offset"] + 100] ^= 1
    shard.write_bytes(content)
    arguments = ["train", str(experiment), "--local", "--root", str(experiment.parent)]
    assert main([*arguments, "train.max_bad=0.5", "train.epochs=1"]) == 0
    printed = capsys.readouterr()
    assert f"train-00000.tar: {row['key'].decode()}" in printed.out + printed.err
    assert main([*arguments, "train.max_bad=0.0"]) == 2
    assert "samples cannot be read" in capsys.readouterr().err


def test_damage_is_refused_before_a_folder_is_made(experiment, capsys):
    folder = experiment.parent
    arguments = ["train", str(experiment), "--local", "--root", str(folder)]
    assert main([*arguments, "dataset.params.train=trian-*.tar"]) == 2
    assert f"{folder}/shards/trian-*.tar: no shard has such a name" in capsys.readouterr().err
    index_path(folder / "shards" / "train-00001.tar").unlink()
    assert main(arguments) == 2
    assert (
        "train-00001.tar.index: does not exist; make it: subquad data index"
        in capsys.readouterr().err
    )
    os.truncate(folder / "shards" / "val-00000.tar", 5000)
    assert main(arguments) == 2
    assert "val-00000.tar: has 5,000 bytes, and its index says" in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_shards_in_an_object_store_are_brought_here(experiment, bucket, tmp_path):
    for path in (tmp_path / "shards").glob("[!.]*"):
        bucket.client.upload_file(str(path), bucket.name, f"lab/shards/{path.name}")
    arguments = ["train", str(experiment), "--local", "train.epochs=1", "--root"]
    assert (
        main([*arguments, str(tmp_path / "there"), f"dataset.params.path={bucket.storage}/shards"])
        == 0
    )
    assert main([*arguments, str(tmp_path / "here")]) == 0
    assert losses(only_run(tmp_path / "there")) == losses(only_run(tmp_path / "here"))


@pytest.mark.extended
def test_real_pictures_from_archive_to_result(tmp_path, capsys):
    """Set SUBQUAD_REAL_DATA to a folder with tiny_imagenet_20/train.tar and val.tar,
    `<class>/*.JPEG` in each.
    """
    data = Path(os.environ.get("SUBQUAD_REAL_DATA", "")) / "tiny_imagenet_20"
    if not data.is_dir():
        pytest.skip("no tiny_imagenet_20")
    for split in ("train", "val"):
        with tarfile.open(data / f"{split}.tar") as tar:
            tar.extractall(tmp_path / split, filter="data")
        assert (
            main(
                ["data", "shard", str(tmp_path / split), str(tmp_path / "shards"), "--split", split]
            )
            == 0
        )
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    settings = [
        "dataset.params.size=64",
        "dataset.params.validation_fraction=0.1",
        "train.batch_size=128",
    ]
    run = trained(
        tmp_path / "small.yaml", "root", *settings, "train.epochs=1", "backbone.params.depth=2"
    )
    result = read_result(run) or {}
    assert result["sizes"] == {"train": 9000, "validation": 1000, "trainval": 10000}
    assert result["test"]["samples"] == 1000
    assert result["test"]["metrics"]["accuracy"] > 0.07
