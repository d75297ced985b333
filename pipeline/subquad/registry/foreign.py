"""What plugins raise, named; what they print and change, kept apart where that is asked for."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from subquad.errors import Interrupted, PluginError, plain

# Frames that say nothing about where a plugin is wrong: the import system, this package, the libraries it calls.
_ELSEWHERE = {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}
_LIBRARIES = {"importlib", "torch", "numpy", "pydantic"}


def cause(error: BaseException) -> str:
    """One line that says what a plugin raised, and where in its own code."""
    if isinstance(error, SystemExit):
        return plain(f"it called sys.exit({'' if error.code is None else repr(error.code)}){_place(error)}")
    try:
        message = " ".join(str(error).split())
    except Exception:  # a foreign exception's __str__ may raise too
        message = ""
    return plain(f"{type(error).__name__}{': ' if message else ''}{message}{_place(error)}")


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):  # its own text names file and line
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_elsewhere(frame.filename)]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _is_elsewhere(filename: str) -> bool:
    path = Path(filename)
    return filename in _ELSEWHERE or path.parent == Path(__file__).parent or not _LIBRARIES.isdisjoint(path.parts)


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


def process_state() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """What an import must leave alone, by name: its value, which pickles alike each time, and what puts one back."""
    state: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
    state["Python's random state"] = (random.getstate(), random.setstate)
    with contextlib.suppress(OSError):  # the folder we stand in was removed: nothing to go back to
        state["the working directory"] = (os.getcwd(), os.chdir)
    if numpy := sys.modules.get("numpy"):
        state["numpy's random state"] = (numpy.random.get_state(), numpy.random.set_state)
    if torch := sys.modules.get("torch"):
        state["torch's random state"] = (
            torch.get_rng_state().numpy(),
            lambda words: torch.set_rng_state(torch.from_numpy(words)),
        )
        state["torch's default dtype"] = (torch.get_default_dtype(), torch.set_default_dtype)
    return state


@contextlib.contextmanager
def state_kept() -> Iterator[None]:
    """Put back what an import must not change: random states, torch's default dtype, the working directory."""
    before = process_state()
    try:
        yield
    finally:
        for value, restore in before.values():
            restore(value)
        if "torch's default dtype" not in before and (torch := sys.modules.get("torch")):
            torch.set_default_dtype(torch.float32)  # perhaps it was loaded by this very plugin


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is printed inside to stderr, by Python, by C code or by a child, so that stdout stays parsable."""
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
