"""Doctor: probe each plugin in a process of its own: a crash, an exit or an endless loop becomes a line in a table."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

from subquad.registry.files import folder_of
from subquad.registry.found import Found, Kind, canonical, find, metadata_faults
from subquad.registry.selection import ALLOWED, allowed_distributions, ambiguous, blocked, namesakes
from subquad.registry.text import plain

BASE_LIMIT = 300.0
"""Seconds that starting Python and importing torch may take; a plugin's own limit does not count them."""

Status = Literal["ok", "broken", "blocked"]


@dataclass(frozen=True)
class Report:
    """What a probe found.

    Attributes:
        found: the plugin.
        status: "ok", "broken", or "blocked" by the environment, and then not probed.
        reason: why it is not ok; None where it is.
        warnings: what is not right and breaks nothing.
    """

    found: Found
    status: Status
    reason: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Outcome:
    """How a child ended: with a result, by its exit code, or (both None) not in time."""

    result: dict[str, Any] | None
    code: int | None
    torch_loaded: bool


def examine(
    timeout: float,
    *,
    kind: Kind | None = None,
    jobs: int | None = None,
    done: Callable[[Report], None] | None = None,
) -> list[Report]:
    """Probe installed plugins, several at a time.

    Args:
        timeout: seconds that one plugin's imports may take.
        kind: only plugins of this kind; all where None.
        jobs: processes at a time; the number of cores where None.
        done: called with each report as it comes, from a worker thread.
    """

    def one(found: Found) -> Report:
        report = _report(found, timeout)
        if done:
            done(report)
        return report

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(one, find(kind)))


def environment_warnings() -> list[str]:
    """What is wrong outside any plugin: unreadable metadata, allowed distributions that offer nothing."""
    offering = {found.distribution for found in find()}
    absent = [name for name in allowed_distributions() if canonical(name) not in offering]
    return [*metadata_faults(), *(plain(f"{ALLOWED} names {name!r}, which offers no plugin") for name in absent)]


def _report(found: Found, timeout: float) -> Report:
    if reason := blocked(found.distribution):
        return Report(found, "blocked", reason)
    if found.kind in ("recipe", "space"):
        missing = folder_of(found.target) is None
        return Report(found, "broken" if missing else "ok", f"no package {plain(found.target)}" if missing else None)
    others = namesakes(found)
    clash = (ambiguous([found, *others]),) if others else ()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        outcome = _run_child(found, timeout, printed, complaints)
        reason = _reason(found, outcome, timeout, _last_line(complaints))
        warnings = (*clash, *(outcome.result or {}).get("warnings", ()), *_printed(printed))
    return Report(found, "broken" if reason else "ok", reason, warnings)


def _reason(found: Found, outcome: _Outcome, timeout: float, complaint: str) -> str | None:
    if outcome.result is not None:
        return outcome.result["reason"]
    if outcome.code is None:
        return f"{found} cannot be loaded: its import takes more than {timeout:g} s"
    if outcome.code < 0:
        return f"{found} cannot be loaded: its import ends the process ({signal.strsignal(-outcome.code)})"
    says = f" ({complaint})" if complaint else ""
    return f"{found} cannot be loaded: its import ends the process with exit code {outcome.code}{says}"


def _run_child(found: Found, timeout: float, printed: IO[bytes], complaints: IO[bytes]) -> _Outcome:
    """Probe in a child; once more with torch loaded first where the plugin imports torch itself, or perhaps did so."""
    outcome = _run_once(found, timeout, printed, complaints, preload=False)
    late = outcome.result is None and outcome.code is None and not outcome.torch_loaded
    if late or (outcome.result or {}).get("again"):
        return _run_once(found, timeout, printed, complaints, preload=True)
    return outcome


def _run_once(found: Found, timeout: float, printed: IO[bytes], complaints: IO[bytes], *, preload: bool) -> _Outcome:
    ours, theirs = os.pipe()
    arguments = [json.dumps(asdict(found)), str(theirs), *(["preload"] if preload else [])]
    # -P: a types.py or json.py in the working directory must not take part. A session of its own: all it started ends.
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "subquad.registry.probe", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=complaints,
        pass_fds=(theirs,),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        result, stages, in_time = _listen(ours, timeout)
        code = _exit_code(child) if in_time else None
        return _Outcome(result, code, torch_loaded="base" in stages)
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """The code of a child that closed its pipe; it is about to end, unless the plugin closed the pipe itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(timeout=5)
    return None


def _listen(pipe: int, timeout: float) -> tuple[dict[str, Any] | None, list[str], bool]:
    """Read a child's messages: its result if it sent one, the stages it named, and whether it kept the time limit."""
    stages: list[str] = []
    for line in _lines(pipe, lambda: timeout if stages[-1:] == ["plugin"] else BASE_LIMIT):
        if line is None:
            return None, stages, False
        message = json.loads(line)
        if isinstance(message, dict):
            return message, stages, True
        stages.append(message)
    return None, stages, True


def _lines(pipe: int, limit: Callable[[], float]) -> Iterable[bytes | None]:
    """Lines as they come, each within `limit()` seconds of the one before; None when one is late."""
    buffer = b""
    deadline = time.monotonic() + limit()
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(pipe, 65536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield line
            deadline = time.monotonic() + limit()
    yield None


def _last_line(stream: IO[bytes]) -> str:
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4096))
    lines = stream.read().decode("utf-8", "replace").strip().splitlines()
    return plain(lines[-1], limit=200) if lines else ""


def _printed(stream: IO[bytes]) -> list[str]:
    return [f"prints to stdout when imported: {line!r}"] if (line := _last_line(stream)) else []
