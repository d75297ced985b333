"""What a job brings to the cluster: plugins and the experiment in one folder. Imports no Ray.

Ray unpacks the folder on every node and puts it on Python's path, so that entry points load in
every process.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from subquad.errors import PluginError
from subquad.record.stores import below
from subquad.registry.found import GROUPS, canonical

JOB = "subquad-job"
"""Folder of the experiment and of what it names, beside the packages. It is no name of a Python
package.
"""

_DATA = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")


def add_wheels(wheels: Sequence[str], folder: Path) -> None:
    """Put the files of wheels into the folder, as an installer would, without what they depend on.

    Raises:
        PluginError: one is no wheel, or is given twice.
    """
    for wheel in wheels:
        for name, content in _of_wheel(Path(wheel)):
            path = folder / name
            if path.exists():
                raise PluginError(
                    f"--plugin {wheel}: another wheel that is sent has a file {name} too"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _of_wheel(path: Path) -> Iterator[tuple[str, bytes]]:
    label = f"--plugin {path}"
    try:
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if not name.endswith("/")]
            if sum(name.endswith(".dist-info/METADATA") for name in names) != 1:
                raise PluginError(f"{label}: not a wheel: it has no METADATA")
            for name in names:
                inner = _DATA.sub("", name)
                try:
                    below(Path(), inner)
                except ValueError as error:
                    raise PluginError(f"{label}: {error}") from None
                if not inner.partition("/")[0].endswith(".data"):
                    yield inner, wheel.read(name)
    except FileNotFoundError:
        raise PluginError(f"{label}: no such file") from None
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise PluginError(f"{label}: not a wheel: {error}") from error


def check_packages(folder: Path) -> list[str]:
    """Check that this Python can use the packages of a folder, and that no two offer one plugin.

    Returns:
        each with its version.

    Raises:
        PluginError: the first that cannot be used here, or the two.
    """
    found = {
        f"{canonical(package.metadata['Name'])} {package.version}": package
        for package in distributions(path=[str(folder)])
    }
    offered: dict[tuple[str, str], str] = {}
    for label, package in sorted(found.items()):
        if reason := _unusable(package):
            raise PluginError(
                f"{label}: {reason}; here is Python "
                f"{sys.version_info.major}.{sys.version_info.minor}"
            )
        for entry in package.entry_points:
            other = offered.setdefault((entry.group, entry.name), label)
            if other != label and entry.group in _LOADED:
                raise PluginError(
                    f"{_LOADED[entry.group]} {entry.name!r} is offered by {other} "
                    f"and {label}: send one of them"
                )
    return sorted(found)


_LOADED = {
    group: kind for kind, group in GROUPS.items() if kind not in ("recipe", "space", "published")
}
"""Kinds of plugins by their groups; the others are folders of files, whose names may be the
same.
"""


def _unusable(owner: Distribution) -> str:
    """Why this Python on Linux cannot use a package; "" where it can."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.tags import parse_tag, sys_tags

    wanted = (owner.metadata.get_all("Requires-Python") or [""])[0]
    try:
        if not SpecifierSet(wanted).contains(
            ".".join(map(str, sys.version_info[:3])), prereleases=True
        ):
            return f"needs Python {wanted}"
    except InvalidSpecifier:
        return f"has no valid Requires-Python: {wanted}"
    wheel_tags = [
        line.removeprefix("Tag:").strip()
        for line in (owner.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag:")
    ]
    ours = {(tag.interpreter, tag.abi) for tag in sys_tags()}
    for text in wheel_tags:
        for tag in parse_tag(text):
            if (tag.interpreter, tag.abi) in ours and re.search("^any$|linux", tag.platform):
                return ""
    return f"is a wheel for {' and '.join(wheel_tags)}" if wheel_tags else ""


def add_file(name: str, content: bytes, folder: Path) -> str:
    """Put a file that the experiment names beside it; its path from there. Files of one name do
    not meet.
    """
    place = PurePosixPath("files", hashlib.sha256(content).hexdigest()[:8], name)
    path = folder / JOB / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(place)


def pack(folder: Path, archive: Path) -> int:
    """Write a folder as a zip file; its size in bytes. The same files make the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            row = zipfile.ZipInfo(
                path.relative_to(folder).as_posix(), date_time=(1980, 1, 1, 0, 0, 0)
            )
            row.compress_type = zipfile.ZIP_DEFLATED
            row.external_attr = 0o644 << 16
            with path.open("rb") as source, packed.open(row, "w") as target:
                shutil.copyfileobj(source, target)
    return archive.stat().st_size
