"""Results of a job: packed on the cluster, and unpacked here without trust in what the cluster
sent. Imports no Ray.

The archive is a zip file: its directory names each member and its size before anything is unpacked.
Only regular files below `runs/NAME/STAMP` are written, and nothing that did not come from this job
is replaced.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from subquad.errors import RunError
from subquad.record.files import read_json, write_json
from subquad.record.names import CHECKPOINTS
from subquad.record.storage import below

MOST_BYTES = 8 * 2**30
"""Of all files of a job's results."""
MOST_PACKED = 2 * 2**30
"""Of the archive that they come in."""
MOST_FILES = 60_000
MOST_DIRECTORY = 16 * 2**20
"""Bytes of the archive's list of files."""
MOST_RATIO = 100
"""Of the size of the files to that of the archive, where they are larger than `SMALL`."""
SMALL = 64 * 2**20

FETCHED = ".fetched.json"
"""In a fetched folder: the job that it came from. A packed folder has no hidden files, so none
can bring its own.
"""


def results_name(job: str) -> str:
    """The file beside Ray's log of a job in which it leaves its results."""
    return f"subquad-{job}.zip"


def leave_results(job: str, folders: Sequence[Path]) -> None:
    """Pack folders below the working directory beside Ray's log of this job, from where they can be
    fetched.

    Raises:
        RunError: there are more files than one archive may have.
    """
    files = [
        path for folder in folders for path in sorted(folder.rglob("*")) if _is_sent(path, folder)
    ]
    if len(files) > MOST_FILES:
        raise RunError(
            f"{len(files):,} files; {MOST_FILES:,} can be fetched: copy the folder itself"
        )
    if not files:
        return
    target = Path(os.readlink("/proc/self/fd/1")).with_name(results_name(job))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in files:
            packed.write(path, path.as_posix())


def _is_sent(path: Path, folder: Path) -> bool:
    """Whether a path is a visible regular file outside checkpoints."""
    parts = path.relative_to(folder).parts
    is_hidden = any(part.startswith(".") for part in parts)
    return path.is_file() and not path.is_symlink() and not is_hidden and CHECKPOINTS not in parts


def unpack(
    job: str, bring: Callable[[BinaryIO], object], into: Path, *, goes_on: str = ""
) -> list[Path]:
    """Write a job's results below `into`.

    They are unpacked in a fresh folder first, which is then renamed into place. A folder that is
    there already gets the new files only if it was fetched from the same job.

    Args:
        job: its name.
        bring: writes the archive, of at most `MOST_PACKED` bytes.
        into: the folder that gets `runs/`.
        goes_on: the folder, as in `runs/NAME/STAMP`, that the user asked the job to go on with: it
            may have come from an earlier job.

    Returns:
        the folders of runs, studies and searches.

    Raises:
        RunError: the archive is damaged or too large, a member lies elsewhere, or a folder is there
            that did not come from the job. Nothing is written then.
    """
    label = f"job {job}: its results"
    try:
        into.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".fetching-", dir=into))
    except OSError as error:
        raise RunError(f"{label} cannot be written to {into}: {error.strerror}") from error
    try:
        with tempfile.TemporaryFile(dir=scratch) as archive:
            bring(archive)
            return _unpacked(label, job, archive, scratch, into, goes_on)
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
    ) as error:
        raise RunError(f"{label} cannot be written to {into}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpacked(
    label: str, job: str, archive: BinaryIO, scratch: Path, into: Path, goes_on: str
) -> list[Path]:
    _check_directory(label, archive)
    with zipfile.ZipFile(archive) as packed:
        members = _members(label, packed, into)
        tops = list(dict.fromkeys(PurePosixPath(*place.parts[:3]) for place in members))
        for top in tops:
            if str(top) != goes_on:
                _refuse_foreign(label, job, into, top)
        for place, info in members.items():
            path = below(scratch, str(place))
            path.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(info) as source, path.open("xb") as target:
                shutil.copyfileobj(source, target)
    for top in tops:
        write_json(scratch / top / FETCHED, {"job": job})
        _place(scratch / top, into / top)
    return [into / top for top in tops]


_END = struct.Struct("<4s4H2LH")
"""The record at the end of a zip file; its fields are signature, two numbers of disks, two of
files, size and place of the list of files, and length of a comment.
"""
_LARGER_END = b"PK\x06\x07"
"""Begins what stands before that record where its fields are too small."""
_LARGER_END_BYTES = 20


def _check_directory(label: str, archive: BinaryIO) -> None:
    """Look at the size of an archive's list of files before it is read into memory.

    Raises:
        RunError: it is too long, or is none that `leave_results` writes.
    """
    archive.seek(max(0, archive.seek(0, os.SEEK_END) - _END.size - _LARGER_END_BYTES))
    end = archive.read()
    archive.seek(0)
    if len(end) < _END.size:
        raise RunError(f"{label} are no zip file")
    fields = _END.unpack(end[-_END.size :])
    listed = fields[5]
    if fields[0] != b"PK\x05\x06" or fields[7] or end.startswith(_LARGER_END):
        raise RunError(f"{label} are no zip file of subquad")
    if listed > MOST_DIRECTORY:
        raise RunError(
            f"{label} have a list of files of {listed:,} bytes; allowed are {MOST_DIRECTORY:,}"
        )


def _members(
    label: str, packed: zipfile.ZipFile, folder: Path
) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """The files of an archive by their places, once names and sizes were checked.

    Raises:
        RunError: there are too many or too large ones, or one lies elsewhere or is no regular file.
    """
    entries = packed.infolist()
    size = sum(entry.file_size for entry in entries)
    sent = sum(entry.compress_size for entry in entries)
    if len(entries) > MOST_FILES or size > MOST_BYTES:
        raise RunError(
            f"{label} are {len(entries):,} files with {size:,} bytes; allowed are "
            f"{MOST_FILES:,} and {MOST_BYTES:,}"
        )
    if size > SMALL and size > MOST_RATIO * sent:
        raise RunError(
            f"{label} would become {size:,} bytes from {sent:,}: more than "
            f"{MOST_RATIO} times as much"
        )
    members = {_place_of(label, entry, folder): entry for entry in entries}
    if len(members) < len(entries):
        raise RunError(f"{label} have two files with one name")
    return members


def _place_of(label: str, entry: zipfile.ZipInfo, folder: Path) -> PurePosixPath:
    name = entry.orig_filename  # as it was sent: `filename` ends at a NUL
    try:
        below(folder, name)
    except ValueError as error:
        raise RunError(f"{label}: {error}") from None
    place = PurePosixPath(name)
    is_odd = any(part.startswith((".", "-")) for part in place.parts)  # hidden, or an option
    if len(place.parts) < 4 or place.parts[0] != "runs" or is_odd:
        raise RunError(f"{label}: {name!r} is no visible file below runs/NAME/STAMP")
    is_known = entry.compress_type in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
    if entry.is_dir() or entry.external_attr >> 16 & 0o170000 not in (0, 0o100000) or not is_known:
        raise RunError(f"{label}: {name!r} is no regular file")
    return place


def _refuse_foreign(label: str, job: str, into: Path, top: PurePosixPath) -> None:
    """Refuse to write into a folder that did not come from the job.

    Raises:
        RunError: it is there.
    """
    target = below(into, str(top))
    if not os.path.lexists(target):
        return
    came_from = (read_json(target / FETCHED) or {}).get("job")
    if came_from != job:
        origin = f"came from job {came_from}" if came_from else "did not come from a job"
        raise RunError(
            f"{label}: {target} is there and {origin}: move it away, or give another --into"
        )


def _place(source: Path, target: Path) -> None:
    """Rename a folder into place; where that is there, its files one by one, and others of it
    stay.
    """
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        return
    for path in sorted(source.rglob("*")):
        place = below(target, path.relative_to(source).as_posix())
        if path.is_dir():
            with suppress(FileExistsError):
                place.mkdir()
        else:
            os.replace(path, place)
