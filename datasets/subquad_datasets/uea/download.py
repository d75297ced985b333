"""Fetching a problem: one process downloads while others wait, into `.part`, which is renamed
when it is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from filelock import FileLock

from subquad.errors import DataError
from subquad.record.files import read_json, write_json
from subquad.record.storage import check_own, close
from subquad.security.limits import DOWNLOAD
from subquad_datasets.uea import fetch
from subquad_datasets.uea.source import find_in

STALL_S = 30.0
"""A download that neither receives a byte nor computes for so long has failed."""

SUMS = "sha256.json"
_POLL_S = 0.25


def download(
    problem: str, target: Path, *, command: Sequence[str] | None = None, stall_s: float = STALL_S
) -> None:
    """Fill `target` with the problem's files, unless it is there.

    Args:
        command: what fills the folder `<target>.part/<problem>`; default sktime's downloader.
        stall_s: seconds without progress after which it is given up.

    Raises:
        DataError: nothing could be fetched; nothing half-written is left.
    """
    part = target.with_name(f"{problem}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{problem}.lock")):
            if not target.is_dir():
                _fill(problem, part, command or _sktime_command(problem, part), stall_s)
                (part / problem).chmod(0o755)
                close(part)
                os.replace(part / problem, target)
        check_own(target)
    except OSError as error:
        raise DataError(
            f"uea problem {problem!r} cannot be kept in {target.parent}: {error}"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def verify(path: Path) -> None:
    """Compare a downloaded file with the sum taken when it arrived; other files pass.

    Raises:
        DataError: the file has changed since.
    """
    expected = (read_json(path.parent / SUMS) or {}).get(path.name)
    if expected is not None and expected != _sha256(path):
        raise DataError(
            f"{path}: changed since it was downloaded; remove {path.parent} and download it again"
        )


def _sktime_command(problem: str, part: Path) -> list[str]:
    return [sys.executable, "-P", str(fetch.__file__), problem, str(part)]


def _fill(problem: str, part: Path, command: Sequence[str], stall_s: float) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o755)
    failure = _run(command, part, stall_s)
    if failure:
        files = None
    else:
        files = find_in(part / problem, problem)
    if files is None or files.test is None:
        reason = failure or "what arrived holds no TRAIN and TEST file"
        raise DataError(
            f"uea problem {problem!r} could not be downloaded ({reason[:400]}); "
            "fetch the files by hand and give dataset.params.path=FOLDER"
        )
    write_json(
        part / problem / SUMS, {path.name: _sha256(path) for path in (files.train, files.test)}
    )


def _run(command: Sequence[str], part: Path, stall_s: float) -> str:
    """Run the command while it makes progress; "" or the last line of what it complained of."""
    quiet = {
        **os.environ,
        "TMPDIR": str(part),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NETRC": os.devnull,  # no login goes to the server
    }
    silent = subprocess.DEVNULL
    with subprocess.Popen(
        command, env=quiet, stdin=silent, stdout=silent, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            return _watch(child, part, stall_s)
        finally:
            child.kill()


def _watch(child: subprocess.Popen[str], part: Path, stall_s: float) -> str:
    progress = (-1, -1)
    idle = 0.0
    while idle < stall_s:
        try:
            _, complaint = child.communicate(timeout=_POLL_S)
            if child.returncode:
                return (complaint.strip().splitlines() or ["no reason given"])[-1]
            return ""
        except subprocess.TimeoutExpired:
            before = progress
            progress = _progress(child.pid, part)
            if progress[0] > DOWNLOAD:
                return f"{progress[0]:,} bytes, at most {DOWNLOAD:,} are fetched"
            if progress != before:
                idle = 0.0
            else:
                idle = idle + _POLL_S
    return f"no progress for {stall_s:g} s"


def _progress(pid: int, part: Path) -> tuple[int, int]:
    """Bytes received and whole seconds computed: what grows while a download is alive."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return (-1, -1)
    sizes = (os.path.getsize(path) for path in part.rglob("*") if path.is_file())
    return sum(sizes), int(times.user + times.system)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
