"""Addresses of object stores and servers: which are known, and what is reached through them."""

from __future__ import annotations

import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from upath import UPath

from subquad.addresses import has_secret
from subquad.errors import ConfigError, UserError
from subquad.record.trust import refuse_strange_place
from subquad.security.downloads import client

STORES = ("s3", "gs")
ADDRESSES = (*STORES, "http", "https", "file")
"""Kinds of addresses that a data set may have."""
_NEEDED = {
    "s3": ("s3fs", "'subquad[s3]'"),
    "gs": ("gcsfs", "'subquad[gcs]'"),
    "http": ("aiohttp", "aiohttp"),
    "https": ("aiohttp", "aiohttp"),
}
"""The module that reaches a kind of address, and how it is installed."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": 5,
            "max_pool_connections": 64,
            "retries": {"mode": "standard", "total_max_attempts": 2},
        }
    },
    "http": {"get_client": client},
    "https": {"get_client": client},
}


def address_fault(address: str, known: tuple[str, ...] = STORES) -> str:
    """Why an address cannot be used, "" where it can or is a path of this machine."""
    if "://" not in address:
        return ""
    parts = urlsplit(address)
    if parts.scheme not in known:
        choice = ", ".join(f"{scheme}://" for scheme in known)
        return f"{parts.scheme}:// is not supported; use {choice} or a folder"
    if has_secret(address):
        return (
            "must not hold a user name, password or token, as experiments are written to disk: "
            "give them as the store's own environment variables or files, such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not parts.netloc and parts.scheme != "file":
        return f"{address} names no {'server' if parts.scheme.startswith('http') else 'bucket'}"
    return ""


def below(folder: Path, name: str) -> Path:
    """The path of a file whose name comes from elsewhere: an archive, a bucket, an index.

    Args:
        folder: that it must lie below.
        name: relative, with `/` between its parts.

    Raises:
        ValueError: it is absolute, has a part that is empty, `.` or `..`, a control character, or
            leads out of the folder by a link.
    """
    categories = {unicodedata.category(character) for character in name}
    if "Cc" in categories or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"{name!r} is no name of a file below a folder")
    path = folder / name
    if isinstance(folder, UPath):
        return path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} leads out of {folder} by a link")
    return path


def root_of(given: str) -> tuple[Path, tuple[str, ...]]:
    """The folder for `runs/` that `--root` names, and the override it stands for; an address is
    storage.

    Raises:
        ConfigError: an address that cannot be used.
    """
    if fault := address_fault(given):
        raise ConfigError(f"--root: {fault}")
    return (Path(), (f"resources.storage={given}",)) if "://" in given else (Path(given), ())


def place_at(address: str) -> Path:
    """A path of this machine, or what has its methods in an object store.

    Raises:
        UserError: it is not supported, a package that reaches it is not installed, or only a
            folder names it.
    """
    if fault := address_fault(address, ADDRESSES):
        raise ConfigError(fault)
    scheme, _, rest = address.rpartition("://")
    if scheme in ("", "file"):
        return Path(rest)
    refuse_strange_place(address)
    module, package = _NEEDED[scheme]
    if find_spec(module) is None:
        raise UserError(
            f"{scheme}:// needs {module}, which is not installed: pip install {package}"
        )
    return cast("Path", UPath(address, use_listings_cache=False, **_OPTIONS.get(scheme, {})))
