"""Doctor: probe each plugin in a process of its own: a crash, an exit or an endless loop becomes a line in a table.

`python -P -m subquad.registry.health FOUND PIPE [preload]` is that process: it writes JSON lines to the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any, Literal

from subquad.errors import SubquadError
from subquad.registry.contract import bases, check_plugin
from subquad.registry.files import package_folder
from subquad.registry.foreign import flush_output, plain
from subquad.registry.found import (
    ALLOWED,
    Found,
    Kind,
    allowed_distributions,
    ambiguous,
    blocked,
    canonical,
    find_plugins,
    metadata_faults,
    namesakes,
)
from subquad.registry.loaded import Resolved, build_class, load_plugin

BASE_LIMIT = 300.0
"""Seconds that starting Python and importing torch may take; a plugin's own limit does not count them."""

Status = Literal["ok", "broken", "blocked"]


@dataclass(frozen=True)
class PluginHealth:
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
    done: Callable[[PluginHealth], None] | None = None,
) -> list[PluginHealth]:
    """Probe installed plugins, several at a time.

    Args:
        timeout: seconds that one plugin's imports may take.
        kind: only plugins of this kind; all where None.
        jobs: processes at a time; the number of cores where None.
        done: called with each report as it comes, from a worker thread.
    """

    def one(found: Found) -> PluginHealth:
        report = _report(found, timeout)
        if done:
            done(report)
        return report

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(one, find_plugins(kind)))


def environment_warnings() -> list[str]:
    """What is wrong outside any plugin: unreadable metadata, allowed distributions that offer nothing."""
    offering = {found.distribution for found in find_plugins()}
    absent = [name for name in allowed_distributions() if canonical(name) not in offering]
    return [*metadata_faults(), *(plain(f"{ALLOWED} names {name!r}, which offers no plugin") for name in absent)]


def _report(found: Found, timeout: float) -> PluginHealth:
    if reason := blocked(found.distribution):
        return PluginHealth(found, "blocked", reason)
    if found.kind in ("recipe", "space", "published"):
        missing = package_folder(found.target) is None
        return PluginHealth(
            found, "broken" if missing else "ok", f"no package {plain(found.target)}" if missing else None
        )
    others = namesakes(found)
    clash = (ambiguous([found, *others]),) if others else ()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        outcome = _run_child(found, timeout, printed, complaints)
        reason = _reason(found, outcome, timeout, _last_line(complaints))
        warnings = (*clash, *(outcome.result or {}).get("warnings", ()), *_printed(printed))
    return PluginHealth(found, "broken" if reason else "ok", reason, warnings)


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
        [sys.executable, "-P", "-m", "subquad.registry.health", *arguments],
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


def _probed(found: Found, say: Callable[[Any], None], *, preload: bool) -> dict[str, Any]:
    """Load a plugin, check it, import and check its class.

    Args:
        found: the plugin.
        say: called with "base" before torch is imported, with "plugin" when the plugin's own time begins.
        preload: import torch first: its time is not the plugin's, and its random state can be compared.

    Returns:
        reason (None where all is well) and warnings; or again: the plugin imports torch itself, so preload it.
    """
    if preload:
        _import_base(found, say)
    try:
        return _probe(found, say)
    except SubquadError as error:
        return {"reason": str(error), "warnings": []}


def _probe(found: Found, say: Callable[[Any], None]) -> dict[str, Any]:
    had_torch, before = "torch" in sys.modules, _state()
    say("plugin")
    thing = load_plugin(found)
    if not had_torch and "torch" in sys.modules:
        return {"again": True}
    changes = _changes(before, _state())
    _import_base(found, say)
    before = _state()
    build_class(Resolved(check_plugin(found, thing), found))
    return {"reason": None, "warnings": list(dict.fromkeys(changes + _changes(before, _state())))}


def _import_base(found: Found, say: Callable[[Any], None]) -> None:
    say("base")
    bases(found.kind)
    say("plugin")


def _state() -> dict[str, Any]:
    """What an import must leave alone."""
    import numpy as np

    _, words, *rest = np.random.get_state()
    state = {
        "the working directory": os.getcwd(),
        "Python's random state": random.getstate(),
        "numpy's random state": (np.asarray(words).tobytes(), *rest),
        **{f"the environment variable {plain(name)}": value for name, value in os.environ.items()},
    }
    if torch := sys.modules.get("torch"):
        state["torch's random state"] = torch.get_rng_state().numpy().tobytes()
        state["torch's default dtype"] = torch.get_default_dtype()
    return state


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Things that differ; what only one of the two knows counts for the environment alone."""
    shared = [name for name in {**before, **after} if name.startswith("the env") or (name in before and name in after)]
    return [f"changes {name} when imported" for name in sorted(shared) if before.get(name) != after.get(name)]


def _main(arguments: list[str]) -> None:
    """Probe the plugin that the arguments describe, and leave without running its exit handlers."""
    found, pipe = Found(**json.loads(arguments[0])), int(arguments[1])
    os.set_inheritable(pipe, False)

    def say(message: Any) -> None:
        os.write(pipe, json.dumps(message).encode() + b"\n")

    say(_probed(found, say, preload="preload" in arguments[2:]))
    flush_output()
    os._exit(0)


# Package, first version without the fault, why.
FLOORS = {
    "ray": ("2.59.1", "CVE-2025-62593, CVE-2026-27482, CVE-2026-41486, CVE-2026-57516 and a stale CA bundle"),
    "torch": ("2.11.0", "CVE-2025-32434, CVE-2026-24747, CVE-2026-4538: code runs while weights load"),
    "mlflow": ("3.17.2", "CVE-2026-53995 path traversal, CVE-2026-115886 request forgery"),
    "pillow": ("13.0.0", "CVE-2026-112393 and others: memory faults while images are decoded"),
}
_PYTHON = {(3, 11): 14, (3, 12): 12, (3, 13): 13, (3, 14): 4}
_PYTHON_WHY = "CVE-2025-4517, CVE-2025-8194: tar extraction"


@dataclass(frozen=True)
class VersionCheck:
    """An installed package against its floor."""

    package: str
    installed: str
    floor: str
    ok: bool
    why: str


def check_versions() -> list[VersionCheck]:
    """Python and each installed package that has a floor."""
    return [_check_python(sys.version_info[:3]), *filter(None, map(_check_package, FLOORS))]


def _check_python(running: tuple[int, int, int]) -> VersionCheck:
    """The interpreter against the floor of its own series; a series newer than all known ones passes."""
    minor, micro = running[:2], running[2]
    floor = _PYTHON.get(minor, 0)
    text = ".".join(map(str, running))
    return VersionCheck("python", text, f"{minor[0]}.{minor[1]}.{floor}", micro >= floor, _PYTHON_WHY)


def _check_package(package: str) -> VersionCheck | None:
    try:
        installed = version(package)
    except PackageNotFoundError:
        return None
    floor, why = FLOORS[package]
    return VersionCheck(package, installed, floor, _release(installed) >= _release(floor), why)


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros, pre-release and local parts: "2.13.0+cpu" is (2, 13)."""
    match = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", text)
    numbers = [int(part) for part in match.group(1).split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


if __name__ == "__main__":
    _main(sys.argv[1:])
