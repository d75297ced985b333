"""What a GPU that is lent for some minutes is spent on: tests, speed, then training, in slices that
go on.

    uv run --with pip python benchmarks/gpu_day.py pack .wheels
    python3 benchmarks/gpu_day.py run --state /tmp/day --wheels .wheels --seconds 570 --out "$OUT"
    # a rehearsal
    python3 benchmarks/gpu_day.py run --state /tmp/day --device cpu --size smoke --seconds 150

`pack` needs a registry of packages, `run` only torch, Triton and what stands in docs/how-to/gpu.md.
`run` does the steps that are not done. At the end of its time it asks what runs to stop; training
saves and goes on in the next slice.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PYTHON, MOST_BYTES = "3.12", 48 << 20
CARRIED = (
    "annotated-types",
    "pathlib-abc",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "pywavelets",
    "rapidfuzz",
)
CARRIED += ("typing-inspection", "universal-pathlib")
"""What subquad needs beside the packages of a usual image with torch; measured, see
docs/how-to/gpu.md.
"""

GLIBC = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
TASKS, MIXERS = (
    ("listops", "image", "pathfinder"),
    {"agf": "agf-paper", "softmax": "softmax", "cur": "cur"},
)
SAVING = 40.0
"""Seconds at the end of a slice that training has to save in."""
LEAST = 20.0
"""Seconds before that, below which nothing is begun."""


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: what is done; its log is NAME.log.
        command: behind the Python that runs this file.
        seconds: that it may take; what takes longer has failed. 0: as long as it likes, over
            several slices.
    """

    name: str
    command: tuple[str, ...]
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    pack_parser = verbs.add_parser("pack", help="download wheels into a folder")
    pack_parser.add_argument("folder", type=Path)
    run_parser = verbs.add_parser("run", help="do what is not done, for some seconds")
    run_parser.add_argument(
        "--state", type=Path, required=True, help="folder of what is done, data and checkpoints"
    )
    run_parser.add_argument(
        "--wheels", type=Path, help="folder that `pack` filled; not needed where subquad is there"
    )
    run_parser.add_argument("--seconds", type=float, default=570.0)
    run_parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    run_parser.add_argument("--size", choices=("full", "small", "smoke"), default="full")
    run_parser.add_argument("--out", type=Path, help="folder for archives of the state")
    run_parser.add_argument("--earlier", type=Path, help="folder with archives of an earlier slice")
    run_parser.add_argument(
        "--only", default="", help="begin of the names of steps to do, such as train-image"
    )
    run_parser.add_argument("--retry", action="store_true", help="also steps that have failed")
    run_parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="further settings of training"
    )
    given = parser.parse_args(arguments)
    return pack(given.folder) if given.verb == "pack" else run(given)


def pack(folder: Path) -> int:
    """Wheels of subquad and of what it needs, of the versions that are installed here."""
    if not find_spec("pip"):
        print(
            "gpu_day: pack needs pip: uv run --with pip python benchmarks/gpu_day.py pack FOLDER",
            file=sys.stderr,
        )
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, REPOSITORY], check=True)
    kind = ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    kind += [word for name in GLIBC for word in ("--platform", name)]
    wanted = [f"{name}=={version(name)}" for name in CARRIED]
    subprocess.run([*pip, "download", "-q", "--no-deps", *kind, "-d", folder, *wanted], check=True)
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{len(wanted) + 1} wheels, {size / 2**20:.1f} MiB, at most {MOST_BYTES >> 20}")
    return int(size > MOST_BYTES)


def run(given: argparse.Namespace) -> int:
    """Do the groups of steps that are not done, one after the other, until the time is over."""
    end, state = time.monotonic() + given.seconds, given.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    if given.earlier and not (state / "day.json").exists():
        for file in given.earlier.glob("*.tar.gz"):
            with tarfile.open(file) as packed:
                packed.extractall(state, filter="data")
    day = Day(state, end)
    if given.retry:
        day.done = {name: step for name, step in day.done.items() if step["status"] != "failed"}
    if given.wheels:
        wheels, site = sorted(map(str, given.wheels.glob("*.whl"))), str(state / "site")
        install = (
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--upgrade",
            "--target",
            site,
            *wheels,
        )
        day.do([Step("environment", install, 120)], again=not (state / "site").exists())
    for group in groups(state, given):
        day.do([step for step in group if step.name.startswith(given.only)])
    if given.out:
        archive(state, given.out)
    print(json.dumps(day.done, indent=1))
    return int(any(step["status"] == "failed" for step in day.done.values()))


def groups(state: Path, given: argparse.Namespace) -> Iterator[list[Step]]:
    """Steps in order; those of a group run side by side, as small models leave most of a GPU
    idle.
    """
    processes = (
        available // 2 if (available := os.cpu_count() or 1) >= 4 and find_spec("xdist") else 0
    )
    options = ["-n", str(processes)] if processes else []
    options += ["--gpu-device=cpu"] if given.device == "cpu" else []
    for file in sorted((REPOSITORY / "tests" / "gpu").glob("test_*.py")):
        pytest = (
            "-m",
            "pytest",
            "-q",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            "-W",
            "default",
            *options,
            str(file),
        )
        yield [Step(f"tests-{file.stem.removeprefix('test_')}", pytest, 400)]
    lengths, tokens, rounds = (
        ("128", "256", "1") if given.size == "smoke" else ("1024,4096", "16384", "5")
    )
    sizes = ("--lengths", lengths, "--tokens", tokens, "--rounds", rounds, "--device", given.device)
    for precision in ("fp32", "bf16"):
        options = (*sizes, "--precision", precision, "--out", str(state / f"bench-{precision}"))
        yield [Step(f"bench-{precision}", (*SUBQUAD, "bench", "mixers", *MIXERS, *options), 240)]
    for task in TASKS:
        yield [Step(f"train-{task}-{name}", training(state, task, name, given)) for name in MIXERS]


SUBQUAD = ("-c", "import sys; from subquad.cli.main import main; sys.exit(main())")


def training(state: Path, task: str, name: str, given: argparse.Namespace) -> tuple[str, ...]:
    """A run of one seed, or going on with it where it has begun."""
    root = state / "train" / task / name
    begun = sorted(root.glob("runs/*/*/"))
    if begun:
        return (*SUBQUAD, "resume", str(begun[-1]), "--local")
    recipe = "lra-agf" if given.size == "full" else f"lra-agf-{given.size}"
    if (
        task == "image"
        and given.size == "full"
        and not any("image.params.path" in override for override in given.overrides)
    ):
        given.overrides.append("matrix.dataset.image.params.path=null")
    chosen = [
        f"matrix.dataset=[{task}]",
        f"matrix.mixer=[{MIXERS[name]}]",
        "matrix.seed=[0]",
        "baseline=null",
    ]
    settings = [
        "tracking.uri=off",
        "train.keep_checkpoints=1",
        f"resources.gpus_per_worker={given.device != 'cpu':d}",
    ]
    fitting = [
        override
        for override in given.overrides
        if "matrix.dataset." not in override or f"matrix.dataset.{task}." in override
    ]
    return (*SUBQUAD, "train", recipe, "--local", "--root", str(root), *chosen, *settings, *fitting)


class Day:
    """What is done, kept in day.json.

    Args:
        state: the folder.
        end: of this slice, by the monotonic clock.
    """

    def __init__(self, state: Path, end: float):
        self.state, self.end, self.file = state, end, state / "day.json"
        self.done: dict[str, dict] = json.loads(self.file.read_text()) if self.file.exists() else {}

    def do(self, steps: Sequence[Step], *, again: bool = False) -> None:
        """Run steps side by side, those that are not done, where there is time for more than
        saving.
        """
        due = [
            step
            for step in steps
            if again or self.done.get(step.name, {}).get("status") not in ("done", "failed")
        ]
        if not due or self.end - time.monotonic() < SAVING + LEAST:
            return
        paths = [
            str(self.state / "site"),
            str(REPOSITORY / "tests" / "support"),
            os.environ.get("PYTHONPATH", ""),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONUNBUFFERED": "1",
        }
        environment["SUBQUAD_DATA"] = os.environ.get("SUBQUAD_DATA") or str(self.state / "data")
        started, running = time.monotonic(), []
        for step in due:
            with (self.state / f"{step.name}.log").open("a") as log:
                command = [sys.executable, *step.command]
                running.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, env=environment, cwd=REPOSITORY
                    )
                )
        in_time = self.end - SAVING
        last = [min(in_time, started + step.seconds) if step.seconds else in_time for step in due]
        late = [_runs_at(process, until) for process, until in zip(running, last, strict=True)]
        for process in running:
            process.send_signal(signal.SIGTERM)  # nothing to one that has ended
        for step, process, until, is_late in zip(due, running, last, late, strict=True):
            if _runs_at(process, time.monotonic() + SAVING):
                process.kill()
            stopped = is_late and until == in_time
            status = "done" if process.wait() == 0 else "stopped" if stopped else "failed"
            self._note(step, status, time.monotonic() - started)

    def _note(self, step: Step, status: str, seconds: float) -> None:
        before = self.done.get(step.name, {"seconds": 0.0, "slices": 0})
        spent, slices = round(before["seconds"] + seconds, 1), before["slices"] + 1
        self.done[step.name] = {"status": status, "seconds": spent, "slices": slices}
        print(f"{step.name}: {status} after {seconds:.0f} s", flush=True)
        self.file.write_text(json.dumps(self.done, indent=1))


def _runs_at(process: subprocess.Popen, until: float) -> bool:
    """Wait for its end until a time; whether it still runs then."""
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def archive(state: Path, out: Path) -> None:
    """The state without data and packages: logs and benches, and an archive for each task that
    was trained.
    """
    out.mkdir(parents=True, exist_ok=True)
    trained = [path for path in (state / "train" / task for task in TASKS) if path.exists()]
    rest = [path for path in state.iterdir() if path.name not in ("site", "data", "train")]
    for name, paths in (("day", rest), *((path.name, [path]) for path in trained)):
        with tarfile.open(out / f"{name}.tar.gz", "w:gz") as packed:
            for path in paths:
                packed.add(path, path.relative_to(state))


if __name__ == "__main__":
    sys.exit(main())
