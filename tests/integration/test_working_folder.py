"""A working directory full of hostile files: neither a command nor a process that it starts
takes code from it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_run import SMALL

STARTED = (
    "importlib",
    "json",
    "multiprocessing",
    "pickle",
    "ray",
    "struct",
    "subquad",
    "torch",
    "uvicorn",
)
"""What Python, Ray and PyTorch import early in a process that they start."""
GROUPS = ("subquad.commands", "subquad.mixers", "mlflow.app", "torch.backends", "fsspec.specs")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules, and whose distribution's entry points, note that they were
    imported.
    """
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in (*STARTED, "sitecustomize", "evil"):
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'mark')!r}, 'a').write(__name__ + ' ')\n"
        )
    metadata = folder / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "".join(f"[{group}]\nevil = evil:X\n" for group in GROUPS)
    )
    (folder / "small.yaml").write_text(SMALL)
    return folder


@pytest.mark.parametrize("where", [("--local",), ()], ids=["local", "ray"])
def test_training_takes_no_code_from_it(hostile, tmp_path, where):
    settings = ("train.epochs=1", "train.loader_workers=1", "--root", str(tmp_path / "out"))
    command = [
        sys.executable,
        "-P",
        "-m",
        "subquad.cli.main",
        "train",
        "small.yaml",
        *settings,
        *where,
    ]
    subprocess.run(command, cwd=hostile, check=True, timeout=300)
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()
