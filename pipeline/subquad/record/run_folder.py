"""The two places of a run: its folder, and what lies in storage, its checkpoints and a copy of its
small files.

The layout there is that below `--root`: STORAGE/runs/NAME/STAMP/...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subquad.errors import RunError
from subquad.record.files import find_file, read_bytes, touching
from subquad.record.layout import is_run, is_study, runs_root
from subquad.record.models import Identity
from subquad.record.names import CHECKPOINTS, ERROR, LOCK, OWNER, RESULT, STOP
from subquad.record.storage import content_of, is_remote, listing, marks_of, put, remove
from subquad.record.stores import below, place_at
from subquad.record.sums import by_name, manifest_of, sum_of
from subquad.security import disk

_STAYS = (LOCK, OWNER, STOP)
"""What belongs to the process that works on a folder."""


@dataclass(frozen=True)
class RunFolder:
    """The two places of a run, study or search: its folder, and what lies in storage.

    Attributes:
        path: the folder.
        storage: `resources.storage`; None: the folder has all of it.
    """

    path: Path
    storage: str | None = None
    _sent: dict[str, Any] = field(default_factory=dict, init=False, compare=False)
    """The manifest of what storage was sent."""
    _fetched: dict[str, Any] = field(default_factory=dict, init=False, compare=False)
    """Which version of its files came from there."""

    @staticmethod
    def of(run: Path) -> RunFolder:
        """A run, by what its folder says."""
        identity = find_file(Identity, run)
        return RunFolder(run, identity.storage if identity else None)

    @property
    def kept(self) -> Path:
        """Its place in storage, which is that below `runs/`; the folder itself without storage.

        Raises:
            RunError: the folder lies elsewhere, so that nobody knows its place.
        """
        if self.storage is None:
            return self.path
        runs = runs_root(self.path)
        if runs.name != "runs":
            raise RunError(
                f"{self.path}: must lie below a folder `runs`, as its checkpoints are in "
                f"{self.storage}/runs/..."
            )
        kept = place_at(self.storage).joinpath(*self.path.relative_to(runs.parent).parts)
        if disk.hold(kept):
            disk.refuse_links(kept)
        return kept

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints of a run are."""
        return self.kept / CHECKPOINTS

    def mirror(self) -> None:
        """Bring its small files to storage, those that changed since the last call; runs in it are
        left.

        Raises:
            DiskError: they cannot be written there.
        """
        target = self.kept
        if target == self.path:
            return
        with touching(self.path):
            now = manifest_of(by_name(self.path, _small_files(self.path)))
            changed = {name for name, entry in now.items() if self._sent.get(name) != entry}
            for names in (changed - {RESULT}, changed & {RESULT}):  # it stands on the other files
                put({target / name: read_bytes(self.path / name) for name in names})
        for name in (self._sent.keys() or {RESULT, ERROR}) - now.keys():
            remove(target / name)
        self._sent.clear()
        self._sent.update(now)

    def fetch(self) -> None:
        """Bring its small files from storage, those that changed there since the last call.

        Raises:
            DiskError: they cannot be read, or not be written here.
        """
        if self.kept == self.path:
            return
        now = _versions(self.kept)
        changed = [name for name in now if self._fetched.get(name) != now[name]]
        self.take(sorted(changed, key=lambda name: name == RESULT))  # it stands on the others
        self._fetched.update(now)
        if now:
            for name in {RESULT, ERROR} - now.keys():
                remove(self.path / name)

    def take(self, names: Iterable[str]) -> None:
        """Bring files from storage, those that are there.

        Raises:
            DiskError: they cannot be read, or not be written here.
        """
        for name in names:
            with suppress(FileNotFoundError):
                content = content_of(self.kept / name)
                put({below(self.path, name): content})
                self._sent[name] = sum_of(content)


def _small_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*"), key=str):
        name = path.name
        if path.is_dir():
            if name != CHECKPOINTS and not is_run(path) and not is_study(path):
                yield from _small_files(path)
        elif name not in _STAYS and not name.startswith(".") and path.suffix != ".lock":
            yield path


def _versions(folder: Path) -> dict[str, Any]:
    """Small files of a run in storage, each with what changes with its content."""
    if is_remote(folder):
        return {
            name: marks_of(file)
            for name, file in listing(folder).items()
            if CHECKPOINTS not in name.split("/")
        }
    found: dict[str, Any] = {}
    for name, path in by_name(folder, _small_files(folder)).items():
        with suppress(FileNotFoundError):
            about = path.stat()
            found[name] = about.st_ino, about.st_mtime_ns
    return found
