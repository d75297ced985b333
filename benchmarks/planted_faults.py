"""How many of the faults in `planted_faults.toml` the fast tests find.

Each fault is applied to a copy of the tree, and its tests run there until the first one fails. A
fault that nothing finds is named.

    python benchmarks/planted_faults.py              all of them
    python benchmarks/planted_faults.py mega scan    those with one of the words in their name
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import tomllib
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
SOURCES = ("pipeline", "plugins", "datasets", "tune_spaces")
COPIED = (*SOURCES, "tests", "benchmarks", "examples", "docs", "pyproject.toml", "README.md")

FOLDERS = {"plugins": ("tests/golden", "tests/unit/plugins"), "datasets": ("tests/unit/datasets",)}
"""Where tests are looked for, by the root of a fault's file."""

GENERAL = {
    "plugins": [
        "tests/unit/plugins/test_oracles.py",
        "tests/unit/plugins/test_decoder.py",
        "tests/unit/plugins/test_encoder_decoder.py",
        "tests/contract/test_builtins.py",
    ],
    "datasets": ["tests/unit/datasets/test_every_dataset.py"],
}
"""Tests of all plugins of a kind, which run after those that name the faulty one."""


APART = ("test_hostile",)
"""Limits the memory of its process, which has too much here."""

HEAVY = (
    "numpy",
    "PIL.Image",
    "pyarrow.csv",
    "pydantic",
    "pywt",
    "scipy.stats",
    "sklearn.metrics",
    "timm",
    "torch.testing",
)
"""What is imported once for all faults."""


OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of pytest; it warns of what was imported before it came."""


def faults(words: list[str]) -> list[dict[str, Any]]:
    """The faults with one of the words in their name; all where there are no words."""
    table = tomllib.loads(HERE.with_suffix(".toml").read_text())["fault"]
    return [
        fault
        for fault in table
        if not words or any(word.lower() in fault["name"].lower() for word in words)
    ]


def copy_tree(target: Path) -> None:
    """What tests need of the tree."""
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)


def first_failure(fault: dict[str, Any], tree: Path) -> str:
    """The first test that fails with the fault in the tree; "" where none does.

    Raises:
        ValueError: the text to replace does not stand exactly once in the file.
    """
    path = tree / fault["file"]
    whole = path.read_text()
    if whole.count(fault["before"]) != 1:
        raise ValueError(f"{fault['file']}: {fault['before']!r} stands there not exactly once")
    path.write_text(whole.replace(fault["before"], fault["after"]))
    try:
        return run_tests(tree, fault.get("tests") or relevant(fault["file"], tree))
    finally:
        path.write_text(whole)


def relevant(file: str, tree: Path) -> list[str]:
    """The tests that name a file's package, or the file itself where several share the package;
    then those of all.
    """
    root, _, package, *below = Path(file).with_suffix("").parts
    word = re.compile(rf"\b{below[0] if package == 'numerics' else package}\b")
    found = [
        path.relative_to(tree).as_posix()
        for folder in FOLDERS[root]
        for path in sorted((tree / folder).rglob("test_*.py"))
        if path.stem not in APART and word.search(path.read_text())
    ]
    general = [path for path in GENERAL[root] if (tree / path).exists() and path not in found]
    return found + general


def run_tests(tree: Path, tests: list[str]) -> str:
    """The first failure of tests in a tree; "" where there is none.

    They run in a fork of this process, which has imported what they need of other packages.
    """
    output = tree / "output.txt"
    child = os.fork()
    if not child:
        _run_here(tree, tests, output)
    _, status = os.waitpid(child, 0)
    lines = output.read_text().splitlines()
    if os.waitstatus_to_exitcode(status) == 0:
        return ""
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0]
    raise RuntimeError(f"the tests did not run: {lines[-5:]}")


def _run_here(tree: Path, tests: list[str], output: Path) -> NoReturn:
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    paths = [str(tree / source) for source in SOURCES]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:0] = paths
    os.chdir(tree)
    code = 1
    try:
        code = int(pytest.main([*OPTIONS, *tests]))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    chosen = faults(sys.argv[1:])
    for name in HEAVY:
        import_module(name)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for fault in chosen:
            failure = first_failure(fault, tree)
            if not failure:
                missed.append(fault["name"])
            print(f"{fault['name']}: {failure[:150] or 'NOT FOUND'}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found")


if __name__ == "__main__":
    main()
