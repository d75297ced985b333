"""Foreign text made safe to print: one line, no control characters."""

from __future__ import annotations

import traceback
import unicodedata
from pathlib import Path

# Control, format (bidirectional overrides), surrogate, private, line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
# Frames that say nothing about where a plugin is wrong: the import system, this package, the libraries it calls.
_ELSEWHERE = {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}
_LIBRARIES = {"importlib", "torch", "numpy", "pydantic"}


def plain(text: object, limit: int = 400) -> str:
    """`text` with every character that could steer a terminal or break a line shown as an escape; cut at `limit`."""
    shown = "".join(_escape(char) if unicodedata.category(char) in _HIDDEN else char for char in str(text))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


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
