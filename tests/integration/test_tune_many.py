"""Fifty small trials: what each costs beside its training, and whether Ray still answers.

`pytest -m extended tests/integration/test_tune_many.py` prints the figures; they mean something on
an idle machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from result_file import read_result
from searches import descendants, only_search, start, trained, trial_folders
from small_run import SMALL
from subquad.record.layout import runs_below
from subquad.record.names import ATTEMPTS, RESULT

pytestmark = pytest.mark.extended

TRIALS = 50


@pytest.fixture
def place(tmp_path: Path, nothing_left) -> Path:
    """A search with everything that is on by default, MLflow too."""
    (tmp_path / "small.yaml").write_text(SMALL[: SMALL.index("tracking:")])
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")
    return tmp_path


def tune(*more: str) -> list[str]:
    return [
        "tune",
        "small.yaml",
        "--space",
        "./space.yaml",
        "--budget",
        f"{TRIALS}-trials",
        "final.seeds=1",
        *more,
    ]


class Latency:
    """How long a cluster takes to list its actors, asked once a second."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def ask(self, process: subprocess.Popen[str]) -> None:
        for raylet in descendants(process, "/raylet/raylet")[:1]:
            try:
                ours = raylet.environ()
            except psutil.Error:
                return
            address = ours["RAY_API_SERVER_ADDRESS"] + "/api/v0/actors?limit=10"
            request = urllib.request.Request(
                address, headers={"Authorization": f"Bearer {ours['RAY_AUTH_TOKEN']}"}
            )
            begun = time.monotonic()
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert json.load(answer)["result"]
            except (urllib.error.URLError, ConnectionError):  # it comes up, or goes down
                continue
            self.seconds.append(time.monotonic() - begun)


def timed(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    """Run a search, print its figures. Returns what its trials came to."""
    latency, begun = Latency(), time.monotonic()
    process = start(tune("--root", str(root), *more), root.parent)
    while process.poll() is None:
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            latency.ask(process)
    wall = time.monotonic() - begun
    out, errors = process.communicate()
    assert process.returncode == 0, out + errors
    with capsys.disabled():
        tell(only_search(root), wall, latency.seconds)
    return trained(only_search(root))


def tell(search: Path, wall: float, latency: list[float]) -> None:
    folders = trial_folders(search)
    own = sum((read_result(folder) or {})["seconds"] for folder in folders)
    final = sum((read_result(run) or {})["seconds"] for run in runs_below(search / "final"))
    begun = min(
        json.loads((folder / ATTEMPTS).read_text().splitlines()[0])["time"] for folder in folders
    )
    ended = max((folder / RESULT).stat().st_mtime for folder in folders)
    print(
        f"\nload averages {os.getloadavg()}; {len(folders)} trials, {wall:.1f} s "
        f"wall, {own:.1f} s of it training"
    )
    print(
        f"beside training, of each: {(wall - own - final) / TRIALS:.2f} s, start, "
        "pictures and final study included"
    )
    print(
        "from the first start of a trial to the last result: "
        f"{(ended - begun - own) / TRIALS:.2f} s of each"
    )
    if latency:
        print(
            f"Ray listed its actors {len(latency)} times: median "
            f"{statistics.median(latency):.2f} s,",
            end=" ",
        )
        print(f"longest {max(latency):.2f} s")


def test_fifty_trials_in_this_process_and_through_ray(place: Path, capsys, nothing_left):
    local = timed(place / "local", capsys, "--local")
    assert [trial["status"] for trial in local.values()] == ["finished"] * TRIALS
    assert not nothing_left.after(seconds=60)
    assert timed(place / "ray", capsys) == local
