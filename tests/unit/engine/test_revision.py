"""A run records its source revision, and nothing that the folder's git configuration names is
run for it.
"""

import os
import subprocess
from pathlib import Path

import pytest

from subquad.engine.revision import revision


def git(*arguments: str) -> str:
    identity = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments], env={**os.environ, **identity}, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A repository with one commit, in which this process stands."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--quiet")
    Path("a.txt").write_text("a\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return folder


def test_outside_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision() is None


def test_commit_and_changes(repository):
    assert revision() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    Path("a.txt").write_text("b\n")
    assert revision() == {"commit": git("rev-parse", "HEAD"), "dirty": True}
    Path("a.txt").write_text("a\n")
    Path("new.txt").touch()
    assert revision() == {"commit": git("rev-parse", "HEAD"), "dirty": True}


@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "filter.Evil.clean",
        "filter.evil.process",
        "filter.a.b.clean",
        "filter.a=b.clean",
        "filter.\udcff.clean",  # a byte that is no UTF-8
        "filter.evil.smudge",
    ],
)
def test_programs_of_the_configuration_do_not_run(repository, tmp_path, key):
    canary = tmp_path / "canary"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    script.chmod(0o755)
    commit = git("rev-parse", "HEAD")
    git("config", key, str(script))
    if key.startswith("filter"):
        name = key.removeprefix("filter.").rpartition(".")[0]
        git("config", f"filter.{name}.required", "true")
        Path(".gitattributes").write_bytes(os.fsencode(f"*.txt filter={name}\n"))
    os.utime("a.txt", (1, 1))  # git has to read it
    assert revision() == {"commit": commit, "dirty": key.startswith("filter")}
    assert not canary.exists()
    if not key.endswith("smudge"):
        subprocess.run(["git", "status"], check=False, capture_output=True)
        assert canary.exists()  # plain git would have run it


def test_submodules_and_hooks_do_not_run(repository, tmp_path):
    canary = tmp_path / "canary"
    inner = tmp_path / "inner"
    git("clone", "--quiet", str(repository), str(inner))
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git("commit", "--quiet", "-m", "second")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    git("-C", "sub", "config", "core.fsmonitor", str(hook))
    assert revision() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert not canary.exists()
