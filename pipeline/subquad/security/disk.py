"""Files of this machine, without following a link: a run's folder may be somebody else's.

A command opens such a folder once (`held`), which refuses each link in it. From then on what lies
below is reached through its own folder, held open, and no part of a path may be a link, also one
that was put there since. Elsewhere the user's own links count, but nothing is written through one.
Whoever writes or deletes below a run's folder does it here.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from subquad.errors import DataError, RunError

_held: set[str] = set()
"""Real paths of the folders that this process has opened, each with a `/` behind it."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""May write it: not its owner."""
_WALK = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)


def held(folder: Path) -> Path:
    """Open a folder that somebody else may have made: look for links, and follow none from here on.

    Args:
        folder: of a run, study, search or exported model; it may itself be a link, as the user
            named it.

    Returns:
        its real path; as it was given where that is the same.

    Raises:
        RunError: something below it is neither a file nor a folder, or cannot be looked at.
    """
    real = folder.resolve()
    refuse_links(real)
    hold(real)
    return folder if folder.absolute() == real else real


def hold(folder: Path) -> bool:
    """From here on this process follows no link below a folder, which need not be there yet.

    Args:
        folder: what lies on another machine is left to that one.

    Returns:
        whether the process did until now.
    """
    if not isinstance(folder, Path):
        return False
    real = str(folder.resolve())
    if _is_held(real):
        return False
    _held.add(os.path.join(real, ""))
    return True


def refuse_links(folder: Path) -> None:
    """Look at the kind of everything below a folder; nothing is opened.

    Raises:
        RunError: something is neither a file nor a folder, or cannot be looked at.
    """
    folders = [os.fspath(folder)]
    while folders:
        above = folders.pop()
        try:
            with os.scandir(above) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise _refused(Path(entry.path), entry.is_symlink())
        except FileNotFoundError:  # or removed meanwhile, by the process that works on it
            continue
        except OSError as error:
            raise RunError(f"{above}: {error.strerror or error}") from error


def _refused(path: Path, is_link: bool) -> RunError:
    kind = "a link" if is_link else "neither a file nor a folder"
    return RunError(f"{path}: {kind}, which is refused among the files of runs: remove it")


def _is_held(path: str) -> bool:
    """Whether a path lies in an open folder."""
    return os.path.join(path, "").startswith(tuple(_held))


_entered = ContextVar[tuple[str, int]]("entered", default=("", 0))


@contextmanager
def entered(folder: Path) -> Iterator[None]:
    """Open the files of a folder, if it is there, through one descriptor of it, in the block."""
    before = _entered.get()
    with ExitStack() as stack:
        if isinstance(folder, Path):
            with suppress(FileNotFoundError, NotADirectoryError):
                descriptor = stack.enter_context(_at(folder))
                stack.callback(_entered.set, before)
                _entered.set((os.path.abspath(folder), descriptor))
        yield


@contextmanager
def _at(folder: Path | str, *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder.

    Args:
        make: make it, and what is above it, where it is missing.

    Raises:
        RunError: below an open folder a part of its path is a link.
    """
    path = os.path.abspath(folder)
    entered, descriptor = _entered.get()
    if entered == path:
        yield descriptor
        return
    if make:
        _refuse_led(path)
        with suppress(FileExistsError):  # a file: opening it says the same, below a held folder too
            os.makedirs(path, exist_ok=True)
    try:
        descriptor = os.open(path, _WALK)
    except OSError:
        _refuse_led(path)
        raise
    try:
        _refuse_led(path, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_led(path: str, descriptor: int | None = None) -> None:
    """Refuse a path below an open folder that leads elsewhere, or did when it was opened."""
    if not _is_held(path):
        return
    with suppress(OSError):  # the system knows no names of descriptors
        if descriptor is not None and os.readlink(f"/proc/self/fd/{descriptor}") == path:
            return  # its real path
    if os.path.realpath(path) != path:
        parts = (Path(path), *Path(path).parents)
        raise _refused(next(filter(Path.is_symlink, reversed(parts)), Path(path)), True)
    if descriptor is not None and not os.path.samestat(os.fstat(descriptor), os.stat(path)):
        raise _refused(Path(path), True)


def opened(path: Path, mode: str = "rb", **more: Any) -> Any:
    """The stream of a regular file, which is read ("rb", "r"), appended to ("ab", "a") or new
    ("xb", "x").

    One of an object store is read too. A file that has another name elsewhere is copied before it
    is appended to: what has the other name stays as it is.

    Raises:
        OSError: it cannot be opened.
        RunError: below an open folder it or a part of its path is a link; elsewhere a link would be
            appended to.
    """
    if not isinstance(path, Path):
        return path.open(mode, **more)
    assert "w" not in mode, "files are replaced whole: use `replacing`"
    if mode[0] == "a":
        _part_from_other_names(path)
    absolute = os.path.abspath(path)
    careful = os.O_NONBLOCK if (mode[0] == "r" and not _is_held(absolute)) else _CAREFUL
    with _at(os.path.dirname(absolute)) as above:
        try:
            return open(
                path,
                mode,
                opener=lambda _, flags: _regular(
                    path, os.open(path.name, flags | careful, 0o666, dir_fd=above)
                ),
                **more,
            )
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _refused(path, True) from None
            raise


_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe without a writer would be waited for."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL


def _regular(path: Path, descriptor: int) -> int:
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # of a folder Python says what it is
        os.close(descriptor)
        raise _refused(path, False)
    return descriptor


def _part_from_other_names(path: Path) -> None:
    """Give a file content of its own where it has several names."""
    with suppress(FileNotFoundError):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
            with opened(path) as source, replacing(path) as target:
                shutil.copyfileobj(source, target)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of a file of this machine once it is on the disk; its
    folder is made.

    Its name until then cannot be guessed, and a link in its place is replaced, not followed.
    """
    temporary = temporary_beside(path).name
    with _at(path.parent, make=True) as folder:
        try:
            with open(os.open(temporary, _NEW, 0o666, dir_fd=folder), "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def temporary_beside(path: Path) -> Path:
    """A hidden name in the same folder that nobody can guess."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.tmp")


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder, and what is above it.

    Raises:
        FileExistsError: it is there, and need not be.
    """
    with _at(path if exist_ok else path.parent, make=True) as folder:
        if not exist_ok:
            os.mkdir(path.name, dir_fd=folder)


def rename(path: Path, target: Path) -> None:
    """Rename a file or folder; the folder of its new name is there."""
    with _at(path.parent) as old, _at(target.parent) as new:
        os.rename(path.name, target.name, src_dir_fd=old, dst_dir_fd=new)


def delete(path: Path) -> None:
    """Delete a file, or a link itself.

    Raises:
        FileNotFoundError: it is not there.
    """
    with _at(path.parent) as above:
        os.unlink(path.name, dir_fd=above)


def delete_tree(path: Path) -> None:
    """Delete a folder with all that is in it as far as that works, or a file."""
    with suppress(OSError), _at(path.parent) as above:
        shutil.rmtree(path.name, ignore_errors=True, dir_fd=above)
        os.unlink(path.name, dir_fd=above)


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A new folder beside, `.part`, that nobody else may write; then it is renamed into place.

    Raises:
        OSError: it cannot be made.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o755)
    try:
        yield part
        close(part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def close(folder: Path) -> None:
    """What lies below a folder can no longer be written by other users."""
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode & ~_OTHERS)


def check_own(folder: Path) -> None:
    """Refuse prepared or fetched data into which another user could have put anything.

    Raises:
        DataError: it or a file in it belongs to another user, is a link, or may be written by
            others; or all users may write the folder above.
        OSError: it is not there.
    """
    above = folder.parent.stat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise _not_own(folder.parent, "all users may write there")
    for path in (folder, *folder.rglob("*")):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise _not_own(path, "is a link")
        if found.st_uid not in (0, os.getuid()):
            raise _not_own(path, f"belongs to another user, {found.st_uid}")
        if found.st_mode & _OTHERS:
            raise _not_own(path, "other users may write it")


def _not_own(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path}: {reason}, so it is not believed; remove it, or set SUBQUAD_DATA to a folder of "
        "your own"
    )
