"""A folder of fake installed distributions on sys.path: dist-info and modules, nothing is really
installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

Install = Callable[..., Path]

LIGHT = """
from subquad.plugin import DatasetPlugin, Config, param
class Settings(Config):
    size: int = param(4, meaning="number of samples", ge=1)
PLUGIN = DatasetPlugin(
    config=Settings,
    build="nowhere:Nothing",
    summary="a light one",
    targets=("t",),
    inputs="tokens",
)
"""


def install(
    folder: Path,
    distribution: str,
    entries: Mapping[str, Mapping[str, str]],
    *,
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Path:
    """Write a distribution as an installer would: METADATA, entry_points.txt, `extra` metadata
    files and modules.
    """
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    sections = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items())
        for group, rows in entries.items()
    ]
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        "entry_points.txt": "\n".join(sections),
        **(extra or {}),
    }
    for name, text in metadata.items():
        (info / name).write_text(text, encoding="utf-8")
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return info


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, on sys.path; modules imported from it are forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.delenv("SUBQUAD_PLUGINS", raising=False)
    monkeypatch.delenv("SUBQUAD_DISABLE_PLUGINS", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        origin = str(getattr(sys.modules[name], "__file__", None) or "")
        if origin.startswith(str(tmp_path)) or name.startswith("subquad_source_"):
            del sys.modules[name]


@pytest.fixture
def add(site: Path) -> Install:
    """`add(distribution, entries, version=..., files=..., extra=...)` installs a fake
    distribution.
    """

    def make(distribution: str, entries: Mapping[str, Mapping[str, str]], **more: object) -> Path:
        return install(site, distribution, entries, **more)

    return make


@pytest.fixture
def add_dataset(add: Install) -> Callable[..., Path]:
    """`add_dataset(name, code)` installs distribution `fake-<name>` offering one data set from a
    module with `code`.
    """

    def make(
        name: str,
        code: str = LIGHT,
        *,
        distribution: str = "",
        attribute: str = "PLUGIN",
        **more: object,
    ) -> Path:
        owner = distribution or f"fake-{name}"
        module = owner.replace("-", "_") + "_module"
        entries = {"subquad.datasets": {name: f"{module}:{attribute}"}}
        return add(owner, entries, files={f"{module}.py": code}, **more)

    return make


@pytest.fixture
def add_mixer(add: Install) -> Callable[..., Path]:
    """`add_mixer(name, code, attribute)` installs distribution `fake-<name>` offering one mixer."""

    def make(name: str, code: str, attribute: str = "PLUGIN") -> Path:
        module = f"fake_{name}_module"
        return add(
            f"fake-{name}",
            {"subquad.mixers": {name: f"{module}:{attribute}"}},
            files={f"{module}.py": code},
        )

    return make


@pytest.fixture
def light() -> str:
    """The code of a good light plugin."""
    return LIGHT
