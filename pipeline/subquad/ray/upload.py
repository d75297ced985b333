"""What a job brings to the cluster: subquad, plugins and the experiment in one folder. Imports no
Ray.

Ray unpacks the folder on every node and puts it on Python's path, so that entry points load in
every process.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    PackagePath,
    distribution,
    distributions,
)
from importlib.util import find_spec
from io import StringIO
from pathlib import Path, PurePosixPath

from subquad.engine.revision import unignored_below
from subquad.errors import PluginError, RunError
from subquad.record.stores import below
from subquad.registry.found import GROUPS, canonical

JOB = "subquad-job"
"""Folder of the experiment and of what it names, beside the packages. It is no name of a Python
package.
"""

_DATA = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")


def add_packages(given: Sequence[str], folder: Path) -> list[str]:
    """Put packages into the folder, as an installer would, without what they depend on.

    Args:
        given: wheels by their files, and installed distributions by their names.

    Returns:
        files of editable packages that are left out, since they may be data or secrets.

    Raises:
        PluginError: one is no wheel, is not installed, or is given twice.
    """
    left_out: list[str] = []
    for package in given:
        if package.endswith(".whl"):
            files = dict(_of_wheel(Path(package)))
        else:
            files, others = _of_installed(package)
            left_out += others
        for name, content in files.items():
            path = folder / name
            if path.exists():
                raise PluginError(
                    f"--plugin {package}: another package that is sent has a file {name} too"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return left_out


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


_SENT = frozenset({".py", ".pyi", ".typed", ".yaml", ".yml", ".j2", ".css"})
"""Endings of the files that are sent of an editable package. A wheel may bring any file."""
_TABLES = frozenset({".csv"})
"""Further endings, in packages of published tables."""


def _of_installed(name: str) -> tuple[dict[str, bytes], list[str]]:
    """Files of an installed distribution as a wheel of it would have them, and those that are left
    out.

    Of a distribution that was installed from a wheel all that came with it is sent. Of an editable
    one nobody knows what a wheel would hold, so only code and what packages read as settings and
    templates is sent.
    """
    try:
        owner = distribution(name)
    except PackageNotFoundError:
        raise PluginError(
            f"--plugin {name}: not installed here; give an installed package or a .whl file"
        ) from None
    info = f"{canonical(owner.metadata['Name']).replace('-', '_')}-{owner.version}.dist-info"
    texts = {base: owner.read_text(base) for base in ("METADATA", "WHEEL", "entry_points.txt")}
    files = {f"{info}/{base}": text.encode() for base, text in texts.items() if text}
    left_out: list[str] = []
    installed = [path for path in owner.files or () if _is_installed(path)]
    for path in installed:
        files[str(path)] = Path(str(path.locate())).read_bytes()
    if not installed:
        tables = {
            entry.module for entry in owner.entry_points if entry.group == GROUPS["published"]
        }
        for name, path in _source_files(owner):
            package = name.rpartition("/")[0].replace("/", ".")
            endings = _SENT | _TABLES if package in tables else _SENT
            if path is not None and path.suffix in endings:
                files[name] = path.read_bytes()
            else:
                left_out.append(name)
    files[f"{info}/RECORD"] = _record(files.items()).encode()
    return files, left_out


def _is_installed(path: PackagePath) -> bool:
    """Whether a row of a RECORD is a file that a wheel brought, and not what an installer wrote."""
    is_own = path.parts[0] != ".." and not path.parts[0].endswith((".dist-info", ".data"))
    return (
        is_own
        and path.hash is not None
        and path.suffix != ".pth"
        and not path.name.startswith("__editable__")
    )


def _source_files(owner: Distribution) -> Iterator[tuple[str, Path | None]]:
    """Files of an editable distribution's packages, by their names in a wheel.

    None for what git ignores, as tools that build wheels leave it out, and links to elsewhere;
    outside a repository also for what is hidden.
    """
    tops = [entry.module.partition(".")[0] for entry in owner.entry_points]
    tops += [path.parts[0].removesuffix(".py") for path in owner.files or ()]
    for top in sorted({name for name in tops if name.isidentifier() and not name.startswith("__")}):
        spec = find_spec(top)
        locations = list(spec.submodule_search_locations or ()) if spec else []
        for location in locations:
            yield from _files_below(top, Path(location))
        if spec and not locations and spec.origin:
            yield Path(spec.origin).name, Path(spec.origin)


def _files_below(package: str, location: Path) -> Iterator[tuple[str, Path | None]]:
    location = location.resolve()
    try:
        known = unignored_below(location)
    except RunError as error:
        raise PluginError(f"--plugin: {error}; give a wheel") from error
    for path in sorted(_walked(location, hidden=known is not None)):
        is_here = path.is_file() and path.resolve().is_relative_to(location)
        is_sent = is_here and (
            path in known if known is not None else not path.name.startswith(".")
        )
        yield "/".join((package, *path.relative_to(location).parts)), path if is_sent else None


def _walked(location: Path, *, hidden: bool) -> Iterator[Path]:
    """Files below a folder, and the folders that are not entered: links, git's own, and unless
    asked hidden ones.
    """
    for above, folders, files in os.walk(location):
        closed = [
            name
            for name in folders
            if Path(above, name).is_symlink()
            or name == ".git"
            or (name.startswith(".") and not hidden)
        ]
        folders[:] = set(folders) - {*closed, "__pycache__"}
        yield from (Path(above, name) for name in (*closed, *files))


def _record(files: Iterable[tuple[str, bytes]]) -> str:
    """RECORD as a wheel has it: what a run keeps of a plugin is then the same."""
    table = StringIO()
    rows = csv.writer(table, lineterminator="\n")
    for name, content in files:
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    return table.getvalue()


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
        for entry in package.entry_points if not label.startswith("subquad ") else ():
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
    lines = (owner.read_text("WHEEL") or "").splitlines()
    wheel_tags = [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]
    ours = {(tag.interpreter, tag.abi) for tag in sys_tags()}
    fits = [
        tag.platform == "any" or "linux" in tag.platform
        for text in wheel_tags
        for tag in parse_tag(text)
        if (tag.interpreter, tag.abi) in ours
    ]
    if any(fits) or not wheel_tags:
        return ""
    return f"is a wheel for {' and '.join(wheel_tags)}"


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
