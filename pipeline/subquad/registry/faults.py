"""What plugins raise, as one line that names them; what they print, kept away from stdout."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator

from subquad.errors import Interrupted, PluginError, in_one_line

_ELSEWHERE = re.compile(
    r"^<frozen importlib|/subquad/(registry|testing|experiment)/[\w/]+\.py$"
    r"|/(importlib|torch|numpy|pydantic)/"
)
"""Frames that say nothing about where a plugin is wrong: the import system, this package, the
libraries it calls.
"""


def cause(error: BaseException) -> str:
    """One line that says what a plugin raised, and where in its own code."""
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"it called sys.exit({code}){_place(error)}"
    parts = [type(error).__name__]
    with contextlib.suppress(Exception):  # its __str__ may raise too
        parts += filter(None, [in_one_line(error)])
    return f"{': '.join(parts)}{_place(error)}"


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):  # its own text names file and line
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _ELSEWHERE.search(frame.filename)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


@contextlib.contextmanager
def blamed(label: str, *, passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn whatever a plugin's code raises, `sys.exit` included, into a PluginError.

    Args:
        label: who is to blame for what: "mixer 'x' (dist 1.0) cannot be loaded".
        passing: exceptions that go through unchanged. Ctrl-C and `Interrupted` always do.

    Raises:
        PluginError: the label and the cause, in one line.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted, *passing):
        raise
    except BaseException as error:
        raise PluginError(f"{label}: {cause(error)}") from error


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is printed inside to stderr, by Python, by C code or by a child, so that stdout
    stays parsable.
    """
    try:
        saved = os.dup(1)
    except OSError:  # started with stdout closed
        yield
        return
    flush_output()
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        flush_output()
        os.dup2(saved, 1)
        os.close(saved)


def flush_output() -> None:
    """Empty Python's buffer of stdout, and the C library's."""
    import ctypes

    if sys.stdout is not None:
        sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):  # a platform without a C library to ask
        ctypes.CDLL(None).fflush(None)
