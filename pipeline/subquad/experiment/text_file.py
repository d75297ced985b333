"""Read a small text file that a stranger may have written: bounded, regular, UTF-8."""

from __future__ import annotations

from pathlib import Path

from subquad.errors import ConfigError
from subquad.experiment.origins import one_line

MAX_BYTES = 1_000_000


def read(path: Path, name: str) -> str:
    """The text of a file, at most `MAX_BYTES` of UTF-8; `name` is what messages call it.

    Raises:
        ConfigError: it is missing, not a regular file, too large, or not text.
    """
    try:
        if path.is_dir():
            raise ConfigError(one_line(f"{name}: a directory, must be a YAML file"))
        if path.exists() and not path.is_file():  # a pipe or a device could block for ever
            raise ConfigError(one_line(f"{name}: not a regular file"))
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(one_line(f"{name}: no such file")) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ConfigError(one_line(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")) from None
    return decode(content, name)


def decode(content: bytes, name: str) -> str:
    """UTF-8 text, without its byte-order mark.

    Raises:
        ConfigError: too large, another encoding, or not text.
    """
    if len(content) > MAX_BYTES:
        raise ConfigError(one_line(f"{name}: larger than {MAX_BYTES:,} bytes, which no experiment file is"))
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(one_line(f"{name}: UTF-16 text; save it as UTF-8"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start] if error.start < len(content) else 0
        raise ConfigError(one_line(f"{name}:{line}: not UTF-8 text (byte 0x{byte:02x})")) from None
