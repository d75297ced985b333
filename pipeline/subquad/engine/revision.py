"""The source revision that a run starts in, asked of git without running what the folder's configuration names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

_SECONDS = 5
_PROGRAMS = re.compile(r"filter\..*\.(?:clean|smudge|process)", re.IGNORECASE | re.DOTALL)
"""Keys of a configuration whose programs `git status` would start to compare files."""
_NOTHING = ("core.fsmonitor", "core.hooksPath", "core.sshCommand", "core.gitProxy")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # a repository with missing objects would fetch them
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


def revision() -> dict[str, Any] | None:
    """Commit of the working directory, and whether files that git tracks differ from it; None outside a repository.

    A program that the configuration names is not run. A file that such a program would change, as with Git LFS, may
    therefore count as different.
    """
    names = _git("config", "--list", "--name-only", "-z")
    commit = _git("rev-parse", "HEAD")
    if names is None or commit is None:
        return None
    programs = [name for name in names.split("\0") if _PROGRAMS.fullmatch(name)]
    required = [f"{name.rpartition('.')[0]}.required" for name in programs]
    switched_off = dict.fromkeys((*_NOTHING, *programs), "") | dict.fromkeys(required, "false")
    changed = _git("status", "--porcelain", "--ignore-submodules=all", settings=switched_off)
    return {"commit": commit, "dirty": bool(changed)}


def _git(*arguments: str, settings: Mapping[str, str] | None = None) -> str | None:
    """What git says of the working directory, with settings in place of the folder's; None where it fails."""
    given = {"GIT_CONFIG_COUNT": str(len(settings or {}))}
    for number, (name, value) in enumerate((settings or {}).items()):
        given |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT, **given},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
