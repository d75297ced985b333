"""Every exception subquad raises on purpose.

SubquadError                      exit code 1
├── UserError                     exit code 2: one line, no traceback, nothing left half-written
│   ├── ConfigError               an experiment, study, recipe or override is wrong
│   ├── PluginError               a plugin is unknown, ambiguous, broken or of another API version
│   ├── DataError                 a data set is missing, malformed or used against its protocol
│   ├── CheckpointError           no checkpoint can be used, or it belongs to another experiment
│   └── RunError                  a run directory is missing, in use, or of another version
│       └── DiskError             the disk that it is on is full or cannot be written
├── TrainingFailed                exit code 1: the run stopped itself (diverged, no progress)
└── Interrupted                   exit code 130 or 143: a signal arrived, the state was saved
"""

from __future__ import annotations

import errno
import unicodedata
from functools import cache

from subquad.addresses import mask

# Control, format (bidirectional overrides), surrogate, private, line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def escaped(text: object, limit: int = 400, *, keep: str = "") -> str:
    """`text` with every character that could steer a terminal or break a line shown as an escape;
    cut at `limit`.

    Args:
        keep: such characters that stay as they are.
    """
    first = str(text)[: limit + 1]  # escapes only make it longer
    shown = first.translate(_shown(keep))
    if len(shown) <= limit:
        return shown
    return shown[: limit - 1] + "…"


def in_one_line(error: object) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())


def by_class(error: BaseException) -> str:
    """An error in one line: its class, and what it says."""
    return f"{type(error).__name__}: {in_one_line(error)}"


def and_more(count: int) -> str:
    """What follows a few names of many: "" where there are no others."""
    if count <= 0:
        return ""
    return f" and {count} more"


class _Shown(dict[int, str]):
    """What stands for a character, by its number; filled as they come."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        if unicodedata.category(character) in _HIDDEN:
            self[number] = character.encode("unicode_escape").decode("ascii")
        else:
            self[number] = character
        return self[number]


@cache
def _shown(keep: str) -> _Shown:
    return _Shown({ord(character): character for character in keep})


class SubquadError(Exception):
    """Root of the tree.

    Attributes:
        exit_code: what the command line returns.
        shared: every rank raises it alike, so no rank waits for another.
    """

    exit_code = 1
    shared = False


class UserError(SubquadError):
    """Something the user can mend: the message is one line that says what, where and what is
    allowed.

    Attributes:
        longest: characters of a message; what is more is cut.
    """

    exit_code = 2
    longest = 4000

    def __init__(self, message: object):
        text = mask(str(message))
        super().__init__(escaped(text, self.longest))


class ConfigError(UserError):
    """An experiment, study, recipe or override that cannot be used."""

    longest = 600


class PluginError(UserError):
    """A plugin that is unknown, ambiguous, broken or written for another plugin API."""


class DataError(UserError):
    """A data set that is missing, malformed or used against its protocol."""


class CheckpointError(UserError):
    """No checkpoint can be used, or it belongs to another experiment."""


class RunError(UserError):
    """A run directory that is missing, in use by another process, or of another format version."""


class DiskError(RunError):
    """The disk of a run directory is full, or cannot be written: no fault of the run."""

    reasons = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class TrainingFailed(SubquadError):
    """The run stopped itself: non-finite losses, or repeated failures without progress."""


class Interrupted(SubquadError):
    """A signal stopped the run after its state was saved.

    Args:
        signum: the signal's number.
        message: what was saved and how to go on.
    """

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum
        self.exit_code = 128 + int(signum)
