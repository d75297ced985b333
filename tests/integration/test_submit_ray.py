"""Jobs on a real cluster with a token: a wheel that is installed nowhere, logs, results, a killed
driver, a stop, refusals.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from cluster import Cluster, cluster
from command import Command, cli, ready
from object_store import KEYS
from result_file import read_result
from small_run import SMALL, only_run
from waiting import until
from wheels import MEAN, wheel

from subquad.record.files import read_file
from subquad.record.metrics import read_records
from subquad.record.models import Owner
from subquad.record.names import ATTEMPTS


@pytest.fixture(scope="module")
def head(s3_server) -> Iterator[Cluster]:
    """A machine with one CPU, which reaches the server; the jobs' runs are in `root` on it."""
    ready()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": s3_server[0]}.items():
            patch.setenv(name, value)
        with cluster(["--num-cpus=1"]) as made:
            yield made


@pytest.fixture
def submit(head, tmp_path):
    """Runs `subquad submit`, in a folder with small.yaml."""
    (tmp_path / "small.yaml").write_text(SMALL)

    def call(
        *arguments: str, check: int | None = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return cli(["submit", *arguments], tmp_path, check=check, **(head.environment | more))

    return call


def attempts(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / ATTEMPTS).read_text().splitlines()]


CANARIES = [
    *(
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "GITHUB_TOKEN",
        "GITLAB_TOKEN",
        "HF_TOKEN",
    ),
    *(
        "HUGGING_FACE_HUB_TOKEN",
        "KAGGLE_KEY",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "GOOGLE_API_KEY",
    ),
    *(
        "MLFLOW_TRACKING_USERNAME",
        "NPM_TOKEN",
        "OPENAI_API_KEY",
        "PGPASSWORD",
        "SLACK_TOKEN",
        "SSH_PASSPHRASE",
    ),
    "WANDB_API_KEY",
]


@pytest.mark.parametrize(
    "lost",
    [False, pytest.param(True, marks=pytest.mark.extended)],
)
def test_a_wheel_that_is_installed_nowhere_trains_on_two_machines_and_goes_on_after_a_stop(
    submit, head, bucket, tmp_path, lost
):
    """A machine is lost, or the driver killed, and no secret travels. While a file is there, the
    second mixer is slow.
    """
    second = head.start("--num-cpus=1")
    canaries = {name: f"CANARY{secrets.token_hex(8)}" for name in CANARIES}
    comment, dotenv = f"CANARY{secrets.token_hex(8)}", f"CANARY{secrets.token_hex(8)}"
    (tmp_path / ".env").write_text(f"PASSWORD={dotenv}")
    slow = tmp_path / "slow"
    slow.touch()
    waits = f"import os, time; time.sleep(0.3 * os.path.exists({str(slow)!r}))\n        weight = "
    (tmp_path / "mine.py").write_text(MEAN.replace("weight = ", waits))
    study = (
        "matrix: {mixer: [sent-mean, {name: ./mine.py:Mean, label: mine}], dataset: "
        "[recall], seed: [0]}"
    )
    text = SMALL.replace(
        "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}", f"mixer: sent-mean\n{study}"
    )
    (tmp_path / "own.yaml").write_text(
        f"# password: {comment}\n{text.replace('uri: off', 'uri: null')}"
    )
    shared = f"resources.storage={bucket.storage}"
    sent = ("--plugin", str(wheel(tmp_path)), "--root", str(head.folder / "root"))
    cli(["trust", "."], tmp_path)

    # after a killed driver Ray keeps the room of elastic workers for three minutes
    workers = f"resources={{workers: {'1..2' if lost else 2}, wait_s: 5}}"
    detached = submit(
        "train", "own.yaml", "train.epochs=10", workers, shared, "--detach", *sent, **canaries
    ).stdout
    assert "sent-mean 1.0, experiment.yaml, mine.py" in detached
    job = detached.partition("subquad submit logs ")[2].split()[0]
    with Command(
        ["submit", "logs", job, "-f"], tmp_path, **(head.environment | canaries)
    ) as following:
        until(lambda: "mine-recall-seed0: started" in following.printed(), following)
        (slow_one,) = (head.folder / "root").glob("runs/small/*/cells/mine-recall-seed0")
        assert [attempt["world_size"] for attempt in attempts(slow_one)] == [2]
        if lost:
            head.kill(second)
        else:
            driver = read_file(Owner, slow_one.parents[1]).pid
            assert driver
            os.kill(driver, signal.SIGKILL)
        until(lambda: len(attempts(slow_one)) == 2, seconds=200)
        following.send_signal(signal.SIGINT)
        followed, errors = following.communicate(60)
        assert following.returncode == 130
        assert "2 runs to do in runs/small" in followed
        assert ("the driver was killed by SIGKILL; another one goes on" in followed) is not lost
        assert f"job {job} goes on; follow it with: subquad submit logs {job} -f" in errors
    done = submit("stop", job)
    stopped = done.stdout
    assert f"job {job}: STOPPED\nsubquad: stopped by SIGTERM after saving step" in stopped
    assert "has ended before: STOPPED" in submit("stop", job).stdout
    again = done.stderr.partition("go on with: ")[2].split()[:4]
    assert again[:3] == ["subquad", "submit", "resume"]
    address = f"{bucket.storage}/{again[3]}"
    (row,) = json.loads(submit("status", job, "--json").stdout)
    assert (row["job"], row["exit_code"]) == (job, 143)
    (tmp_path / "before").mkdir()
    cli(["report", address], tmp_path / "before")
    before = only_run(tmp_path / "before")
    assert [
        result["status"] for result in map(read_result, (before / "cells").iterdir()) if result
    ] == ["finished"]
    first = min(record.time for record in read_records(before / "cells" / "sent-mean-recall-seed0"))
    print(
        "job accepted to first step: "
        f"{first - datetime.fromisoformat(row['accepted']).timestamp():.1f} s"
    )

    slow.unlink()
    done = submit("resume", address, *sent, "--json", **canaries)
    document = json.loads(done.stdout)
    assert (document["status"], document["exit_code"]) == ("SUCCEEDED", 0)
    fetched = tmp_path / document["fetched"][0]
    assert fetched == only_run(tmp_path)
    assert (fetched / "report.html").exists()
    results = {cell.name: read_result(cell) for cell in (fetched / "cells").iterdir()}
    assert {name: result["attempts"] for name, result in results.items()} == {
        "mine-recall-seed0": 3,
        "sent-mean-recall-seed0": 1,
    }
    assert not list(fetched.rglob("checkpoints"))
    assert "sent-mean" in cli(["report", str(fetched)], tmp_path).stdout

    texts = [
        detached,
        followed,
        errors,
        stopped,
        done.stdout,
        done.stderr,
        submit("status", "--json").stdout,
    ]
    places = [
        path
        for place in (head.folder, tmp_path / "runs")
        for path in place.rglob("*")
        if path.is_file()
    ]
    assert [path for path in places if path.name == "mlruns.db"]
    assert [path for path in places if path.name == "sent_mean.py"]
    for secret in (*canaries.values(), comment, dotenv):
        assert not [text for text in texts if secret in text]
        assert not [path for path in places if secret.encode() in path.read_bytes()]
    if not lost:
        head.kill(second)


def test_a_plugin_that_the_nodes_lack_is_told_before_anything_starts(submit, head, tmp_path):
    shutil.unpack_archive(wheel(tmp_path), tmp_path / "site", "zip")
    given = ["train", "small.yaml", "mixer=sent-mean", "--root", str(head.folder / "root" / "lack")]
    done = submit(*given, check=2, PYTHONPATH=str(tmp_path / "site"))
    assert "unknown mixer 'sent-mean'" in done.stdout
    assert "Traceback" not in done.stdout
    job = done.stdout.rpartition("job ")[2].partition(":")[0]
    (row,) = json.loads(submit("status", job, "--json").stdout)
    print(f"missing plugin reported after {60 * float(row['minutes']):.0f} s")
    assert not list((head.folder / "root" / "lack").glob("runs/*"))


def test_a_cluster_is_not_used_without_its_token(submit, tmp_path):
    for token, message in (("wrong", "refuses the token"), ("", "asks for a token")):
        done = submit("train", "small.yaml", check=2, RAY_AUTH_TOKEN=token, HOME=str(tmp_path))
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    for arguments in (
        ["logs", "nobody"],
        ["logs", "nobody", "-f"],
        ["stop", "nobody"],
    ):
        assert "no job nobody on http://127.0.0.1" in submit(*arguments, check=2).stderr
