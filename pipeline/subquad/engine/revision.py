"""What git says of the working directory, without running what its configuration names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

_SECONDS = 5
_PROGRAMS = re.compile(r"filter\..*\.(?:clean|smudge|process)", re.IGNORECASE | re.DOTALL)
"""Keys of a configuration whose programs `git status` would start to compare files."""
_NOTHING = {"core.fsmonitor": "", "core.hooksPath": "", "core.sshCommand": "", "core.gitProxy": ""}
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # a repository with missing objects would fetch them
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


def revision() -> dict[str, Any] | None:
    """Commit of the working directory, and whether files that git tracks differ from it; None
    outside a repository.

    A program that the configuration names is not run. A file that such a program would change, as
    with Git LFS, may therefore count as different.
    """
    names = _git("config", "--list", "--name-only", "-z")
    commit = _git("rev-parse", "HEAD")
    if names is None or commit is None:
        return None
    settings = dict(_NOTHING)
    for name in filter(_PROGRAMS.fullmatch, names.split("\0")):
        settings[name] = ""
        program, _, _ = name.rpartition(".")
        settings[f"{program}.required"] = "false"
    changed = _git("status", "--porcelain", "--ignore-submodules=all", settings=settings)
    return {"commit": commit, "dirty": bool(changed)}


def _git(*arguments: str, settings: Mapping[str, str] = _NOTHING) -> str | None:
    """What git says of the working directory, with settings in place of the folder's; None where
    it fails.
    """
    environment = os.environ | _ENVIRONMENT | {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = name
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return os.fsdecode(done.stdout).strip()
    return None
