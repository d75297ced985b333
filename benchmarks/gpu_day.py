"""Everything that only a GPU shows, in one call: tests, operations, mixers, the papers' tables.

    python benchmarks/gpu_day.py --out results                    # at most 8 minutes
    python benchmarks/gpu_day.py --out results --cpu --seconds 60  # a rehearsal at tiny sizes

Steps run in the order of their worth, each in a process of its own. What does not fit into the time
is left out, and said. `day.json` has all that was measured, and is written after each step; it is
what `tests/support/gpu_page.py` makes the GPU section of docs/performance.md of. `day.log` has what
the steps printed.

On a machine without a registry, `--wheels FOLDER` takes what subquad needs from a folder that
`python benchmarks/gpu_day.py --pack FOLDER` has filled elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
CARRIED = (
    "annotated-types",
    "pathlib-abc",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "pywavelets",
    "rapidfuzz",
    "typing-inspection",
    "universal-pathlib",
)
"""What subquad needs beside the packages of a usual image with torch; measured, see
docs/how-to/gpu.md.
"""

PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
LEAST = 15.0
"""Seconds, below which no step is begun."""

SUBQUAD = ("-c", "import sys; from subquad.cli.main import main; sys.exit(main())")
WITH_KERNELS = ("agf", "cur", "nystrom")
FURTHER = ("sfpc", "mdfwa", "fourier", "wavelet")
"""Mixers whose operations are timed, in two steps."""

TABLES = ("cur-table2", "cur-figure4", "agf-table5", "agf-table21")


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: what is done.
        command: behind the Python that runs this file.
        seconds: that it may take.
    """

    name: str
    command: tuple[str, ...]
    seconds: float


@dataclass
class Day:
    """What was done, and what it found.

    Attributes:
        out: folder of day.json and day.log.
        end: of the day, by the monotonic clock.
        found: content of day.json.
    """

    out: Path
    end: float
    found: dict[str, Any] = field(default_factory=dict)

    def do(self, step: Step, environment: dict[str, str]) -> None:
        """Run a step, and write down what it found, or why it was left out."""
        left = self.end - time.monotonic()
        started = time.monotonic()
        status, text = "left out: no time", ""
        if left >= LEAST:
            allowed = min(step.seconds, left)
            status, text = self._run(step, environment, allowed)
        seconds = round(time.monotonic() - started, 1)
        note = {"name": step.name, "status": status, "seconds": seconds}
        if step.name.startswith("tests"):
            note |= outcome(text)
        elif status == "done":
            note["found"] = json.loads(text.splitlines()[-1])
        self.found.setdefault("steps", []).append(note)
        self.write()
        print(f"{step.name}: {status}, {seconds:.0f} s", flush=True)

    def _run(self, step: Step, environment: dict[str, str], allowed: float) -> tuple[str, str]:
        """How it ended, and what it printed."""
        with (self.out / "day.log").open("a", encoding="utf-8") as log:
            log.write(f"\n== {step.name}\n")
            log.flush()
            process = subprocess.Popen(
                [sys.executable, *step.command],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=REPOSITORY,
                text=True,
                start_new_session=True,
            )
            try:
                text, _ = process.communicate(timeout=allowed)
                status = "done" if process.returncode == 0 else f"failed: exit {process.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                text, _ = process.communicate()
                status = f"left out: not done after {allowed:.0f} s"
            if status != "done" or step.name.startswith("tests"):
                log.write(text)
        return status, text

    def write(self) -> None:
        """day.json as it is now."""
        text = json.dumps(self.found, indent=1) + "\n"
        (self.out / "day.json").write_text(text, encoding="utf-8")

    @property
    def left_out(self) -> list[str]:
        """Steps that were not done, and why."""
        steps = self.found["steps"]
        return [f"{step['name']}: {step['status']}" for step in steps if step["status"] != "done"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-day")))
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--cpu", action="store_true", help="rehearse at tiny sizes")
    parser.add_argument("--only", default="", help="begin of the names of steps to do")
    parser.add_argument("--wheels", type=Path, help="folder that --pack has filled")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="fill a folder, then end")
    given = parser.parse_args(arguments)
    if given.pack:
        return pack(given.pack)
    given.out.mkdir(parents=True, exist_ok=True)
    day = Day(given.out, time.monotonic() + given.seconds, described())
    with tempfile.TemporaryDirectory() as site:
        environment = surroundings(Path(site), given.wheels)
        for step in steps(given.cpu):
            if step.name.startswith(given.only):
                day.do(step, environment)
    for line in day.left_out:
        print(f"not done: {line}")
    return int(any("failed" in line for line in day.left_out))


def steps(cpu: bool) -> Iterator[Step]:
    """In the order of their worth."""
    lengths = (32,) if cpu else (4096, 1024, 16384)
    yield from tests(cpu, "operations", "mixers")
    yield from benches(cpu, lengths[0])
    yield from tests(cpu, "training")
    for name in TABLES:
        options = ["--protocol", name, "--precision", "bf16", "--device", "cuda"]
        if name == "cur-figure4":
            options += ["--tokens", "65536"]  # the weights of its batches do not fit
        if cpu:
            options = ["--protocol", name, "--dim", "16", "--heads", "2", "--tokens", "64"]
            options += ["--lengths", {"agf-table5": "1024", "agf-table21": "29"}.get(name, "64")]
        yield bench(f"table-{name}", "mixers", *options)
    yield operations(cpu, f"further-operations-{lengths[0]}", FURTHER, lengths[0])
    for length in lengths[1:]:
        yield from benches(cpu, length)


def tests(cpu: bool, *files: str) -> Iterator[Step]:
    """Tests of `tests/gpu`, a step for each file; on a CPU one test."""
    cores = os.cpu_count() or 1
    options = ["-n", str(cores * 3 // 4)] if cores >= 4 and find_spec("xdist") else []
    if cpu:
        options += ["--gpu-device=cpu", "-k", "wavelets_convolutions"]
        files = files[:1] if "operations" in files else ()
    pytest = ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-W", "default")
    for name in files:
        yield Step(f"tests-{name}", (*pytest, *options, f"tests/gpu/test_{name}.py"), 120)


def benches(cpu: bool, length: int) -> Iterator[Step]:
    """Operations and layers at a length."""
    yield operations(cpu, f"operations-{length}", WITH_KERNELS, length)
    options = ["--protocol", "gpu-layers", "--device", "cuda"]
    if cpu:
        options = ["agf", "identity", "--no-published", "--dim", "16", "--tokens", "64"]
    yield bench(f"mixers-{length}", "mixers", *options, "--lengths", f"{length}")


def operations(cpu: bool, name: str, mixers: Sequence[str], length: int) -> Step:
    """Operations of some mixers at a length; on a CPU of the first."""
    options = ["--dim", "1024", "--heads", "16", "--tokens", "131072", "--precision", "bf16"]
    options += ["--device", "cuda"]
    if cpu:
        mixers = mixers[:1]
        options = ["--dim", "16", "--tokens", "64"]
    return bench(name, "kernels", *mixers, *options, "--lengths", f"{length}")


def bench(name: str, verb: str, *options: str) -> Step:
    """A step of `subquad bench`."""
    return Step(name, (*SUBQUAD, "bench", verb, *options, "--rounds", "3", "--json"), 120)


def described() -> dict[str, Any]:
    """Where and when, of what."""
    git = ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]
    try:
        revision = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        revision = ""
    versions = {"python": platform.python_version()}
    for name in ("torch", "triton"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = ""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "revision": revision, "versions": versions}


def surroundings(site: Path, wheels: Path | None) -> dict[str, str]:
    """The environment of the steps: wheels installed for them alone, or the packages of this
    repository as they are.
    """
    paths = [str(REPOSITORY / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    if wheels:
        files = sorted(map(str, wheels.glob("*.whl")))
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--target", str(site), *files], check=True)
        paths.insert(0, str(site))
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def outcome(text: str) -> dict[str, Any]:
    """What pytest said at its end: counts by word, and the tests that failed."""
    counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped)", text)
    }
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return {"tests": counts, "failed": failed}


def pack(folder: Path) -> int:
    """Wheels of subquad and of what it needs, of the versions that are installed here, for Python
    3.12 on Linux.
    """
    if not find_spec("pip"):
        print("--pack needs pip: uv run --with pip python benchmarks/gpu_day.py --pack FOLDER")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, REPOSITORY], check=True)
    kind = ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp"]
    for name in PLATFORMS:
        kind += ["--platform", name]
    wanted = [f"{name}=={version(name)}" for name in CARRIED]
    subprocess.run([*pip, "download", "-q", "--no-deps", *kind, "-d", folder, *wanted], check=True)
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{len(wanted) + 1} wheels, {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
