"""What the user of this machine gave: the words of the command line, and what earlier commands
remember of them.

Nothing that a folder, a data file or an experiment says gets in here by itself. What is remembered
lies in the user's configuration folder, which nobody else may enter.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from subquad.addresses import mask
from subquad.disk import replacing
from subquad.errors import ConfigError, PluginError, UserError

_FILE = re.compile(r"[^\s,:=\[\]{}'\"]+\.py(?=:[A-Za-z_])")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s,}\]'\"]*")
_words: list[str] = []
_here: dict[str, set[str]] = {}
"""What this process remembers, also where nothing can be written."""
_trusted: set[str] = set()
"""The sha256 of files that this command line trusts."""
_training: list[bool] = []
"""Not empty while an experiment is read that the user trains."""


def take_words(words: Sequence[str]) -> None:
    """Note the words of a command line, or what a caller of the Python interface gave."""
    _words[:] = words
    _trusted.clear()


def given_addresses() -> list[str]:
    """Addresses that stand on the command line, and those that did on earlier ones."""
    here = [address for word in _words for address in _ADDRESS.findall(word)]
    return [*here, *_remembered("addresses")]


def remember_address(address: str) -> None:
    """Let an address count as given from now on."""
    _remember("addresses", address)


@contextmanager
def training() -> Iterator[None]:
    """The user trains the experiment that is read in the block: the plugin files that it names
    run now and later.
    """
    _training.append(True)
    try:
        yield
    finally:
        _training.pop()


def note_storage(storage: str) -> None:
    """Let the storage of an experiment count as given from now on, where the user trains it."""
    if _training:
        _remember("storage", storage)


def refuse_strange_storage(storage: str | None) -> None:
    """Refuse to write to storage that only a folder or an experiment names.

    Args:
        storage: an address, or an absolute path; None where there is none.

    Raises:
        UserError: no experiment with it was trained here, and it does not stand on this command
            line.
    """
    if storage is None or storage in _remembered("storage"):
        return
    for word in _words:
        given = word.partition("=")[2] or word
        place = given if "://" in given else os.path.abspath(given)
        if place.rstrip("/") == storage.rstrip("/") or place.startswith(
            f"{storage.rstrip('/')}/runs/"
        ):
            _remember("storage", storage)
            return
    raise UserError(
        f"resources.storage: {mask(storage)}: files would be written there, and you have neither "
        f"named it nor trained with it here: if you trust it, add --root {mask(storage)}"
    )


def trust_file(sha256: str) -> None:
    """Let a file with this content run, and from now on where this command meets it.

    Raises:
        ConfigError: it is no sha256.
    """
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ConfigError(f"--trust {sha256}: give the sha256 of a file, 64 hex digits")
    _trusted.add(sha256)


def is_named(path: Path) -> bool:
    """Whether a plugin's file stands on this command line.

    A word that is itself the path of something is none: a shell writes those for `*`, and a folder
    may hold any name.
    """
    words = [word for word in _words if not os.path.lexists(word)]
    named = [Path(os.path.expanduser(name)) for word in words for name in _FILE.findall(word)]
    return _located(path) in map(_located, named)


def _located(path: Path) -> Path:
    """A file by its real folder; where it is a link, what it imports lies beside the link."""
    return path.parent.resolve() / path.name


def refuse_strange_file(label: str, path: Path, sha256: str) -> None:
    """Refuse to run a plugin's file that only an experiment or a folder names.

    What runs is remembered with its folder: a file may import what lies beside it, and in a
    stranger's folder that is something else.

    Args:
        label: names it in messages.
        path: of the file, absolute.
        sha256: of its content.

    Raises:
        PluginError: the user neither named it on this command line, nor trained with this content
            there, nor said --trust.
    """
    file = f"{sha256} {_located(path).parent}"
    if is_named(path) or _training or sha256 in _trusted:
        _remember("files", file)
    elif file not in _remembered("files"):
        raise PluginError(
            f"{label}: {path} would run, and you have neither named it nor trained "
            "with it here as it is now: read it, "
            f"then add --trust {sha256}"
        )


def _place() -> Path:
    return user_config_path("subquad") / "trusted.json"


def _content() -> dict[str, list[str]]:
    """What is remembered; nothing where the file is missing, broken, or not this user's alone."""
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


def _remembered(kind: str) -> list[str]:
    return [*_content().get(kind, []), *_here.get(kind, ())]


def _remember(kind: str, value: str) -> None:
    """Add a value; without a configuration folder that can be written it is forgotten with this
    process.
    """
    _here.setdefault(kind, set()).add(value)
    content = _content()
    if value in content.get(kind, []):
        return
    content[kind] = [*content.get(kind, []), value]
    with suppress(OSError):
        _place().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(_place()) as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(json.dumps(content, indent=1).encode())
