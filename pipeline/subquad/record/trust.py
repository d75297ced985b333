"""What the user of this machine gave: words of this command line, folders that are trusted, and
what earlier commands noted.

Nothing that a folder, a data file or an experiment says gets in here by itself. What is noted lies
in the user's configuration folder, which nobody else may enter.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from filelock import FileLock
from platformdirs import user_config_path

from subquad.addresses import mask
from subquad.errors import PluginError, RunError, UserError, escaped
from subquad.record.files import read_bytes
from subquad.record.names import CELLS, IDENTITY, SOURCES, TRIAL, TRIALS
from subquad.security.disk import replacing
from subquad.suggest import to_paste

_OF_RUNS = (IDENTITY, TRIAL, f"{CELLS}/*/{IDENTITY}", f"{TRIALS}/*/*/{TRIAL}")
"""What the folder of a run, a trial, a study or a search holds, and no other."""
_LOCK_SECONDS = 10
_UNKNOWN = "-"
_FROM_HERE, _BIRTH = -100, 0x800
"""AT_FDCWD and STATX_BTIME."""
_given: list[str] = []
_here: dict[str, set[str]] = {}
"""What this process notes, also where nothing can be written."""


def give(value: Any) -> None:
    """Note a setting, an option or an argument of the user: each text in it is given."""
    if isinstance(value, str):
        _given.append(value)
    elif isinstance(value, Mapping):
        give([*value.values()])
    elif isinstance(value, (list, tuple)):
        for inner in value:
            give(inner)


def given_addresses() -> list[str]:
    """Addresses that this command line gives, and those that earlier ones gave."""
    return [*(text for text in _given if "://" in text), *_noted("addresses")]


def remember_address(address: str) -> None:
    """Let an address count as given from now on."""
    _note("addresses", address)


def note_place(place: str) -> None:
    """Let storage, or an address of data or weights, that the user trains with count as given from
    now on.
    """
    _note("places", place)


def refuse_strange_storage(storage: str | None) -> None:
    """Refuse to write to storage that only a folder or an experiment names.

    Args:
        storage: an address, or an absolute path; None where there is none.

    Raises:
        UserError: no experiment with it was trained here, and it does not stand on this command
            line.
    """
    if storage is None or storage in _noted("places"):
        return
    if any(_names(text, storage) for text in _given):
        note_place(storage)
        return
    raise UserError(
        f"resources.storage: {mask(storage)}: files would be written there, and you have neither "
        f"named it nor trained with it here: if you trust it, add --root {mask(storage)}"
    )


def refuse_strange_place(address: str) -> None:
    """Refuse to ask what only a folder names.

    Raises:
        UserError: nothing above it was given on this command line or trained with here.
    """
    given = [*_given, *_noted("places")]
    if not any(_names(text, address) or _is_below(address, text) for text in given):
        raise UserError(
            f"{mask(address)}: is not asked, as only a file names it: you have neither written it "
            "on this command line nor trained with it here"
        )


def _names(text: str, place: str) -> bool:
    """Whether a text that was given is a place, or a run that is kept there."""
    given = text if "://" in text else os.path.abspath(text)
    return os.sep in text and (
        given.rstrip("/") == place.rstrip("/") or _is_below(given, f"{place.rstrip('/')}/runs")
    )


def _is_below(place: str, above: str) -> bool:
    return f"{place}/".startswith(f"{above.rstrip('/')}/")


def trust_folder(folder: Path, *, always: bool = True) -> None:
    """Let code below a folder run that experiments there name; code of a run's folder that lies
    there runs only where that is the folder given.

    Args:
        always: also in later processes.

    Raises:
        RunError: there is no such folder, or everybody may write there.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder")
    if _is_open(folder):
        raise RunError(f"{folder}: everybody may write there, so it cannot be trusted")
    _note("folders", _entry(folder), always=always)


def _is_open(folder: Path) -> bool:
    """Whether everybody may write there."""
    return bool(folder.stat().st_mode & 0o002)


def trusted_folders() -> list[Path]:
    """The folders that the user trusts."""
    return sorted({Path(entry.partition(" ")[2]) for entry in _noted("folders")})


def forget_folder(folder: Path) -> None:
    """Trust a folder no more, by the path under which it is trusted.

    Raises:
        RunError: it is none that is trusted.
    """
    place = folder.resolve()
    if place not in trusted_folders():
        raise RunError(f"{place}: not trusted; {to_paste('trust', '--list')} shows what is")
    _here.pop("folders", None)
    with _changing() as content:
        content["folders"] = [
            entry for entry in content.get("folders", []) if entry.partition(" ")[2] != str(place)
        ]


def note_source(folder: Path, sha256: str) -> None:
    """Let code with this content go on running for a run, study, search or exported model that the
    user's own command wrote, also where its folder is moved.
    """
    _note("sources", f"{sha256} {_entry(folder.resolve())}")


def is_named(path: Path) -> bool:
    """Whether a plugin's file stands on this command line; a folder whose name looks so is none."""
    for text in _given:
        file, _, attribute = text.rpartition(":")
        is_code = file.endswith(".py") and attribute.isidentifier() and not os.path.lexists(text)
        if is_code and _located(Path(os.path.expanduser(file))) == _located(path):
            return True
    return False


def refuse_strange_file(
    label: str, path: Path, sha256: str, *, base: Path, owner: Path | None
) -> None:
    """Refuse to run a plugin's file that the user neither named nor trusts; on a terminal, ask.

    Args:
        label: names it in messages.
        path: of the file, absolute.
        sha256: of its content.
        base: folder of the experiment that names it.
        owner: folder of the run, study, search or exported model that names it; None: an
            experiment does.

    Raises:
        RunError: the file has changed since the run was started.
        PluginError: the user does not trust the folder, or another file lies there by now.
    """
    place = _located(path)
    if hashlib.sha256(read_bytes(place)).hexdigest() != sha256:  # a link above it was changed
        raise PluginError(f"{label}: {path} was changed while it was read")
    if is_named(path) or f"{sha256} {place}" in _here.get("passed", ()):
        return
    copies = [copy.name for copy in owner.rglob(f"{SOURCES}/*")] if owner else []
    if copies and not any(name.startswith(sha256[:12]) for name in copies):
        raise RunError(
            f"{owner}: changed since the run was started: {path}; put that back to resume, or "
            "start a new run"
        )
    folders = list(_deciding(place, owner))
    # what the user wrote this code for
    written = [entry.partition(" ") for entry in _noted("sources")]
    wrote = [whose for digest, _, whose in written if digest == sha256]
    below = (owner or place, *(owner or place).parents)
    if not any(_is_of(wrote, folder) for folder in below) and not any(
        _is_of(_noted("folders"), folder) for folder in folders
    ):
        above = base.resolve()
        folder = above if above in folders else [*folders, place.parent][0]
        if not _says_yes(f"{owner or folder} wants to run {path}. Trust {folder}?"):
            raise PluginError(
                f"{label}: {path} would run, and you do not trust {folder}: read it, then "
                f"{to_paste('trust', folder)}"
            )
        trust_folder(folder)
    _here.setdefault("passed", set()).add(f"{sha256} {place}")


def _says_yes(question: str) -> bool:
    """Ask on a terminal; no where there is none."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return False
    return click.confirm(escaped(question, limit=sys.maxsize), err=True)


def _deciding(place: Path, owner: Path | None) -> Iterator[Path]:
    """Folders of which one must be trusted for a file to run, from the innermost.

    What lies in a run's folder, and what such a folder names, is decided in there: around it there
    may be anything, and files of somebody else can make any folder look like a study's.
    """
    for folder in (owner,) if owner else place.parents:
        if _is_open(folder):
            return
        yield folder
        if folder.name == "runs" or any(any(folder.glob(mark)) for mark in _OF_RUNS):
            return


def _is_of(entries: Iterable[str], folder: Path) -> bool:
    """Whether one of these entries is a folder's, see `_entry`."""
    own = _entry(folder)
    known, _, _ = own.partition(" ")
    return any(
        entry == own if known == _UNKNOWN else entry.partition(" ")[0] == known for entry in entries
    )


def _entry(folder: Path) -> str:
    """What a folder is noted by: its path, before that its file number and time of birth, which a
    move keeps and a copy does not; `-` where the system does not tell.
    """
    buffer = ctypes.create_string_buffer(256)
    identity = _UNKNOWN
    with suppress(AttributeError):  # a system without statx
        failed = ctypes.CDLL(None).statx(_FROM_HERE, os.fsencode(folder), 0, _BIRTH, buffer)
        (known,) = struct.unpack_from("=I", buffer, 0)
        if not failed and known & _BIRTH:
            (number,) = struct.unpack_from("=Q", buffer, 32)
            seconds, nanoseconds = struct.unpack_from("=qI", buffer, 80)
            identity = f"{number}-{seconds}.{nanoseconds}"
    return f"{identity} {folder}"


def _located(path: Path) -> Path:
    """A file by its real folder; where it is a link, what it imports lies beside the link."""
    return path.parent.resolve() / path.name


def _place() -> Path:
    return user_config_path("subquad") / "trusted.json"


def _content() -> dict[str, list[str]]:
    """What is noted; nothing where the file is missing, broken, or not this user's alone."""
    try:
        about = _place().stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022:
            return {}
        data: Any = json.loads(_place().read_bytes())
    except (OSError, ValueError):
        return {}
    lists = data.items() if isinstance(data, dict) else ()
    return {
        key: [str(value) for value in values] for key, values in lists if isinstance(values, list)
    }


def _noted(kind: str) -> list[str]:
    return [*_content().get(kind, []), *_here.get(kind, ())]


def _note(kind: str, value: str, *, always: bool = True) -> None:
    """Add a value; without a configuration folder that can be written it is forgotten with this
    process.
    """
    _here.setdefault(kind, set()).add(value)
    if always and value not in _content().get(kind, []):
        with suppress(OSError), _changing() as content:
            content[kind] = [*content.get(kind, []), value]


@contextmanager
def _changing() -> Iterator[dict[str, list[str]]]:
    """What is noted, to be changed in the block; other processes wait.

    Raises:
        OSError: it cannot be written.
    """
    _place().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{_place()}.lock", timeout=_LOCK_SECONDS):
        content = _content()
        yield content
        with replacing(_place()) as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(json.dumps(content, indent=1).encode())
