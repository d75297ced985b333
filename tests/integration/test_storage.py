"""Runs whose files are in an object store: killed, fetched on another machine, resumed, read,
refused.
"""

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest
from command import cli
from object_store import Bucket
from safetensors.torch import load
from small_run import only_run

from subquad.cli.main import main
from subquad.record.metrics import metrics_files, read_records


def weights(bucket: Bucket) -> dict[str, str]:
    """sha256 of weights, optimiser state and generator states in each run's newest checkpoint."""
    newest: dict[str, str] = {}
    for name in sorted(
        name for name in bucket.names() if name.endswith(".safetensors") and "/checkpoints/" in name
    ):
        digest = hashlib.sha256()
        for key, tensor in sorted(load(bucket.read(name)).items()):
            digest.update(key.encode() + tensor.contiguous().numpy().tobytes())
        newest[Path(name).name] = digest.hexdigest()
    return newest


@pytest.mark.parametrize("fault", ["step:20", "save.manifest:2"])
def test_a_killed_run_goes_on_from_another_machine(bucket, small, tmp_path, fault, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    arguments = ["train", str(small), "--local", "train.eval_every_epochs=1"]
    cli([*arguments, "--root", bucket.storage], here, fault=f"kill@{fault}", check=-signal.SIGKILL)
    folder = only_run(here)
    assert not (folder / "checkpoints").exists()
    address = f"{bucket.storage}/runs/small/{folder.name}"
    shutil.rmtree(here)
    assert main(["resume", address, "--local", "--root", str(there)]) == 0
    printed = capsys.readouterr()
    assert f"are in {there / 'runs' / 'small' / folder.name}" in printed.err
    assert f"storage {address}" in printed.out
    undisturbed = Bucket("undisturbed", bucket.endpoint, bucket.client)
    bucket.client.create_bucket(Bucket=undisturbed.name)
    assert (
        main(
            [*arguments, "--root", str(there / "other"), f"resources.storage={undisturbed.storage}"]
        )
        == 0
    )
    assert weights(bucket) == weights(undisturbed)
    run = there / "runs" / "small" / folder.name
    for path in metrics_files(run):
        assert bucket.read(f"runs/small/{folder.name}/{path.name}") == path.read_bytes()
    steps = [record.step for record in read_records(run) if record.kind == "train"]
    assert steps == list(range(1, 40))
    shutil.rmtree(there / "runs")
    for name in undisturbed.names():
        bucket.client.delete_object(Bucket=undisturbed.name, Key=f"lab/{name}")
    bucket.client.delete_bucket(Bucket=undisturbed.name)


@pytest.fixture
def study(bucket, small, tmp_path, monkeypatch, capsys) -> str:
    """The address of a finished study of two runs, whose local folder is gone."""
    here = tmp_path / "elsewhere"
    train = ["train", str(small), "--local", "matrix.seed=[0, 1]", "train.epochs=2"]
    assert main([*train, "--root", str(here), f"resources.storage={bucket.storage}"]) == 0
    folder = only_run(here)
    shutil.rmtree(here)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    capsys.readouterr()
    return f"{bucket.storage}/runs/small/{folder.name}"


def test_a_study_in_storage_is_reported_verified_and_resumed(study, bucket, capsys):
    from subquad import load

    assert main(["report", study, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [row["seeds"] for row in values["rows"] if row["kind"] == "mixer"] == [[0, 1]], values[
        "rows"
    ]
    assert main(["verify", study]) == 0
    assert capsys.readouterr().out.count("recomputed") == 2
    cell = next(name for name in bucket.names() if name.endswith("seed0/result.json")).removesuffix(
        "result.json"
    )
    step = json.loads(bucket.read(f"{cell}result.json"))["test"]["step"]
    tested = f"{cell}checkpoints/step-{step:08d}/model.safetensors"
    assert (
        sum(
            parameter.numel()
            for parameter in load(f"{bucket.storage}/{Path(tested).parents[2]}").parameters()
        )
        > 0
    )
    bucket.write(tested, b"damaged")
    assert main(["verify", study]) == 1
    assert (
        "model.safetensors has changed: it has 7 bytes, its manifest says"
        in capsys.readouterr().out
    )
    assert main(["resume", study, "--local"]) == 0
    assert "is used" in capsys.readouterr().err


def test_a_damaged_newest_checkpoint_is_walked_back_over(bucket, small, tmp_path, capsys):
    cli(
        ["train", str(small), "--local", "--root", bucket.storage],
        tmp_path,
        fault="kill@step:30",
        check=-9,
    )
    run = only_run(tmp_path)
    newest = sorted(name for name in bucket.names() if name.endswith("model.safetensors"))[-1]
    assert "step-00000026" in newest
    bucket.write(newest, bucket.read(newest)[:-1])
    assert main(["resume", str(run), "--local"]) == 0
    events = [record.text for record in read_records(run)]
    assert any("passed over a bad checkpoint: s3://" in text for text in events)
    starts = [
        json.loads(line)["from_step"] for line in (run / "attempts.jsonl").read_text().splitlines()
    ]
    assert starts == [0, 26]
    assert main(["verify", str(run)]) == 0


def test_a_store_that_goes_away_ends_a_run_in_one_line(bucket, small, tmp_path, capsys):
    cli(
        ["train", str(small), "--local", "--root", bucket.storage],
        tmp_path,
        fault="kill@step:20",
        check=-9,
    )
    before, run = bucket.names(), only_run(tmp_path)
    bucket.forbid("PutObject")
    assert main(["resume", str(run), "--local"]) == 2
    error = capsys.readouterr().err
    assert "Forbidden" in error
    assert "mend that, then go on with: subquad resume" in error
    assert error.count("\n") == 1
    assert bucket.names() == before
    gone = cli(
        ["resume", str(run), "--local"], tmp_path, check=2, AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    assert "Could not connect to the endpoint" in gone.stderr
    assert gone.stderr.count("\n") == 1
    bucket.client.delete_bucket_policy(Bucket=bucket.name)
    assert main(["resume", str(run), "--local"]) == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["--root", "s4://bucket/x"],
            "subquad: --root: s4:// is not supported; use s3://, gs:// or a folder",
        ),
        (
            ["resources.storage=s3://me:secret@bucket/x"],
            "must not hold a user name, password or token",
        ),
        (
            ["--root", "s3://no-such-bucket/x"],
            "cannot be used: The specified bucket does not exist",
        ),
        (
            ["resources.storage=/proc/nowhere"],
            "resources.storage: /proc/nowhere cannot be used: No such file or dir",
        ),
    ],
)
def test_storage_that_cannot_be_used_is_refused_before_anything_is_made(
    bucket, small, tmp_path, monkeypatch, capsys, settings, said
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert main(["train", str(small), "--local", *settings]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error
    assert not list((tmp_path / "work").iterdir())


def test_a_search_goes_on_from_storage(bucket, small, tmp_path, monkeypatch, capsys):
    arguments = [
        "tune",
        str(small),
        "--space",
        "optimizer",
        "--budget",
        "3-trials",
        "--local",
        "--jobs",
        "1",
        "final.seeds=1",
    ]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    more = ["train.epochs=1", "--root", bucket.storage]
    cli([*arguments, *more], here, fault="kill@step:20", check=-signal.SIGKILL)
    folder = only_run(here, "small-search")
    shutil.rmtree(here)
    monkeypatch.chdir(there)
    assert main(["resume", f"{bucket.storage}/runs/small-search/{folder.name}", "--local"]) == 0
    summary = json.loads(bucket.read(f"runs/small-search/{folder.name}/search.json"))
    assert [candidate["trials"]["finished"] for candidate in summary["candidates"]] == [3]
    trials = [name for name in bucket.names() if "/trials/" in name]
    assert len([trial for trial in trials if trial.endswith("/trial.json")]) == 3
    assert not [trial for trial in trials if "/checkpoints/" in trial]
    assert [name for name in bucket.names() if "/final/" in name and "/checkpoints/" in name]
    more = [
        "resume",
        f"runs/small-search/{folder.name}",
        "--budget",
        "4-trials",
        "--local",
    ]
    assert main(more) == 0  # whose final study does not go on from the weights of the one before
    assert (there / "runs" / "small-search" / folder.name / "final-1").is_dir()
    starts = bucket.read(
        f"runs/small-search/{folder.name}/final/cells/seed0/attempts.jsonl"
    ).splitlines()
    assert [json.loads(line)["from_step"] for line in starts] == [0]


def test_data_and_first_weights_come_from_a_store(bucket, small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    rows = [f"( ( ( [MAX {a} ) {b} ) ] )\t{max(a, b)}" for a in range(10) for b in range(10)]
    for number, part in enumerate(("train", "val", "test")):
        text = "\r\n".join(["Source\tTarget", *rows[number * 33 : number * 33 + 33], ""])
        bucket.write(f"listops/basic_{part}.tsv", text.encode())
    data = f"dataset={{name: lra-listops, params: {{path: {bucket.storage}/listops}}}}"
    arguments = ["train", str(small), "--local", "--root", str(tmp_path), "train.epochs=1", data]
    assert main([*arguments, f"resources.storage={bucket.storage}"]) == 0
    first = only_run(tmp_path)
    assert f"path: {bucket.storage}/listops" in (first / "experiment.yaml").read_text()
    copies = [
        path.relative_to(tmp_path / "prepared" / "fetched")
        for path in tmp_path.rglob("basic_*.tsv")
    ]
    assert sorted(path.parts[1:] for path in copies) == [
        ("listops", f"basic_{part}.tsv") for part in ("test", "train", "val")
    ]
    shutil.rmtree(first)
    assert main([*arguments, f"init.from={bucket.storage}/runs/small/{first.name}"]) == 0
    started = json.loads((only_run(tmp_path) / "result.json").read_text())["init"]
    assert started["missing"] == []
    shutil.rmtree(tmp_path / "runs")
    capsys.readouterr()
    for path, message in (
        ("ftp://host/x", "ftp:// is not supported"),
        (f"{bucket.storage}/none", "there is no such file"),
    ):
        assert main([*arguments[:-1], data.replace(f"{bucket.storage}/listops", path)]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
