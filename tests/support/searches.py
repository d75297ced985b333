"""Searches as a user starts them, in processes of their own: watched, killed from outside,
compared.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from result_file import read_result

from subquad.record.files import read_json
from subquad.record.metrics import read_records

MARK = "SUBQUAD_TEST_MARK"
"""Environment variable that all processes of a test inherit."""


@dataclass(frozen=True)
class Traces:
    """By what processes of a test are known, whatever became of their parents.

    Attributes:
        mark: the variable's value. A process that sets its title may lose it, as Ray's agents do.
        folder: Ray's own files, which those keep open.
    """

    mark: str
    folder: Path

    def processes(self) -> list[psutil.Process]:
        """Those that run."""
        return [process for process in psutil.process_iter() if self._left_by(process)]

    def after(self, seconds: float) -> list[str]:
        """Command lines of those that still run some time later."""
        _, alive = psutil.wait_procs(self.processes(), timeout=seconds)
        return [" ".join(process.cmdline()) for process in alive if self._left_by(process)]

    def _left_by(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.environ().get(MARK) == self.mark:
                return True
            return any(file.path.startswith(f"{self.folder}/") for file in process.open_files())
        except psutil.Error:
            return False


def start(arguments: Sequence[str], cwd: Path, **more: str) -> subprocess.Popen[str]:
    """Start the command line in a session of its own, anew: what it costs is measured."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "subquad.cli.main", *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def descendants(process: subprocess.Popen[str], words: str) -> list[psutil.Process]:
    """Processes below one whose command line has these words."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if words in " ".join(child.cmdline()):
                found.append(child)
    return found


def only_search(root: Path) -> Path:
    """The folder of the only search below a root."""
    (folder,) = root.glob("runs/*-search/*")
    return folder


def trial_folders(search: Path) -> list[Path]:
    """Of all candidates, in order."""
    return sorted(path.parent for path in search.glob("trials/*/*/trial.json"))


def last_step(trial: Path) -> int:
    """The newest logged step of a trial, 0 before there is one."""
    return max((record.step for record in read_records(trial)), default=0)


def trained(search: Path) -> dict[str, dict[str, Any]]:
    """What each trial is and came to, every logged step included: all that a clock and kills
    have no part in.
    """
    found = {}
    for path in trial_folders(search):
        result = read_result(path) or {}
        found[f"{path.parent.name}/{path.name}"] = {
            "trial": read_json(path / "trial.json"),
            "records": [
                (record.kind, record.step, dict(record.metrics))
                for record in read_records(path)
                if record.kind in ("train", "eval")
            ],
            **{name: result.get(name) for name in ("status", "best", "reason", "steps")},
        }
    return found
