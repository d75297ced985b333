"""Doctor: probe each plugin in a process of its own: a crash, an exit or an endless loop becomes
a line in a table.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Literal, cast

from packaging.requirements import Requirement

from subquad.errors import SubquadError
from subquad.processes import forking_context, settle
from subquad.registry.faults import flush_output
from subquad.registry.found import FILE_KINDS, Found, Kind, blocked, clash, find_plugins
from subquad.registry.loaded import build_class, load_command, load_plugin
from subquad.registry.shipped import package_folder

BASE_LIMIT = 300.0
"""Seconds that starting Python and importing torch may take; a plugin's own limit does not count
them.
"""

_STARTS = threading.Lock()
"""multiprocessing asks after all children when it starts one, and only one thread may ask after
a child.
"""


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
    status: Literal["ok", "broken", "blocked"]
    reason: str | None = None
    warnings: tuple[str, ...] = ()


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

    def probe(found: Found) -> PluginHealth:
        report = _report(found, timeout)
        if done:
            done(report)
        return report

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(probe, find_plugins(kind)))


def _report(found: Found, timeout: float) -> PluginHealth:
    reason = blocked(found.distribution)
    if reason:
        return PluginHealth(found, "blocked", reason)
    if found.kind in FILE_KINDS:
        reason = None if package_folder(found.target) else f"no package {found.target}"
        return PluginHealth(found, "broken" if reason else "ok", reason)
    with tempfile.TemporaryDirectory(prefix="subquad-") as scratch:
        printed = Path(scratch, "stdout")
        reason, warnings = _probe_apart(found, timeout, printed, Path(scratch, "stderr"))
        line = _last_line(printed)
    if line:
        warnings.append(f"prints to stdout when imported: {line!r}")
    if other := clash(found):
        warnings.insert(0, other)
    return PluginHealth(found, "broken" if reason else "ok", reason, tuple(warnings))


def _probe_apart(
    found: Found, timeout: float, printed: Path, complaints: Path
) -> tuple[str | None, list[str]]:
    """Probe in a child; what is wrong and the warnings."""
    ours, theirs = Pipe(duplex=False)
    given = (found, theirs, printed, complaints, dict(os.environ))
    with _STARTS:
        child = forking_context().Process(target=_main, args=given)
        child.start()
    theirs.close()
    problem = f"takes more than {timeout:g} s"
    try:
        # its first message says that the plugin's time begins, its second what was found
        if ours.poll(BASE_LIMIT) and ours.recv_bytes() and ours.poll(timeout):
            return json.loads(ours.recv_bytes())
    except (EOFError, OSError):
        wait([child.sentinel], timeout)
        with _STARTS:
            code = child.exitcode
        end = f"with exit code {code}"
        if code is not None and code < 0:
            end = f"({signal.strsignal(-code)})"
        problem = f"ends the process {end}"
        if complaint := _last_line(complaints):
            problem += f" ({complaint})"
    finally:
        ours.close()
        child.kill()
        with contextlib.suppress(ProcessLookupError):  # what it started
            os.killpg(cast("int", child.pid), signal.SIGKILL)
        wait([child.sentinel])
    return f"{found} cannot be loaded: its import {problem}", []


def _last_line(file: Path) -> str:
    content = file.read_bytes()[-4096:] if file.exists() else b""
    return "".join(content.decode("utf-8", "replace").strip().splitlines()[-1:])[:200]


def _probe(found: Found) -> tuple[str | None, list[str]]:
    """Load a plugin, check it, import and check its class; what is wrong, and what the imports
    changed.
    """
    before = _state()
    try:
        if found.kind == "command":
            load_command(found)
        else:
            build_class(load_plugin(found))
    except SubquadError as error:
        return str(error), []
    after = _state()
    changed = [
        name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)
    ]
    return None, [f"changes {name} when imported" for name in changed]


def _state() -> dict[str, Any]:
    """What an import must leave alone, by name, as values that can be compared."""
    import numpy as np
    import torch

    state = {
        "Python's random state": random.getstate(),
        "numpy's random state": pickle.dumps(np.random.get_state()),
        "torch's random state": torch.get_rng_state().tolist(),
        "torch's default dtype": torch.get_default_dtype(),
        "the working directory": os.getcwd(),
    }
    for name, value in os.environ.items():
        state[f"the environment variable {name}"] = value
    return state


def _main(
    found: Found, pipe: Connection, printed: Path, complaints: Path, environment: Mapping[str, str]
) -> None:
    """Probe a plugin, and leave without running its exit handlers. All that it starts is of this
    process's session.
    """
    os.setsid()
    settle(environment)
    for number, file in enumerate((printed, complaints), start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    import_module("subquad.nn")  # its time is not the plugin's
    pipe.send_bytes(b"the plugin's time begins")
    findings = _probe(found)
    flush_output()
    pipe.send_bytes(json.dumps(findings).encode())
    os._exit(0)


def wrong_versions() -> list[str]:
    """Packages that are installed in a version that subquad does not ask for, one line each.

    The versions that it asks for (pyproject.toml) have no security fault that is known.
    """
    wrong = []
    for text in requires("subquad") or ():
        requirement = Requirement(text)
        with contextlib.suppress(PackageNotFoundError):
            installed = version(requirement.name)
            if not requirement.specifier.contains(installed, prereleases=True):
                wanted = f"subquad asks for {requirement.specifier}"
                wrong.append(f"{requirement.name} {installed} is installed, and {wanted}")
    return list(dict.fromkeys(wrong))
