"""CIFAR-10's batches are pickles, and a pickle can run code. This reader cannot: nothing named in a
file is imported.

A pickle calls what its opcodes name. Here the names that NumPy arrays are made with are known, and
each gives an inert stand-in that only remembers what it was told; every other name is refused. So a
file can build numbers, strings, lists, dicts and such records, and nothing else. The library's
Python unpickler is used, not the one in C: opcodes that make room for whatever size a file states
can be left out there, and its memo is a dict, not a table as long as the largest index.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import MEMBER, allow, check_pickle

# fmt: off
_OPCODES = {
    "PROTO", "FRAME", "MARK", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "MEMOIZE", "PUT", "GET", "POP", "NONE", "NEWTRUE",
    "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG1", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
}
# fmt: on
_CODES = {ord(opcode.code) for opcode in pickletools.opcodes if opcode.name in _OPCODES}

_Python: Any = pickle._Unpickler  # type: ignore[attr-defined]  # the implementation in Python, there in every version


def read_pickle(data: bytes, name: str) -> dict[str, Any]:
    """The dict of a pickle, with its keys as text and its arrays as uint8 arrays.

    Args:
        data: the file.
        name: what it is called, for errors.

    Raises:
        DataError: damaged, not a dict, or it names anything but what uint8 arrays are made of.
    """
    allow(name, "bytes", len(data), MEMBER)
    try:
        check_pickle(name, io.BytesIO(data))
        batch = _unpickler(data, name).load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle fails in any way there is
        raise DataError(
            f"{name}: not a readable pickle ({type(error).__name__}: {error})"
        ) from error
    if type(batch) is not dict:
        raise DataError(f"{name}: holds a {type(batch).__name__}, not a dict")
    return {_text(key): _value(value, name) for key, value in batch.items()}


def _unpickler(data: bytes, name: str) -> Any:
    """An unpickler with stand-ins of its own: a pickle can set attributes on what it is given."""

    class Array:
        def __setstate__(self, state: Any) -> None:
            self.state = state

    class Kind:
        def __init__(self, code: Any, *_: Any):
            self.code = code

        def __setstate__(self, state: Any) -> None:
            pass

    def reconstruct(*_: Any) -> Array:
        return Array()

    known = {
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): reconstruct,
        ("numpy", "ndarray"): Array,
        ("numpy", "dtype"): Kind,
    }

    class Restricted(_Python):
        dispatch = {code: handler for code, handler in _Python.dispatch.items() if code in _CODES}  # noqa: RUF012

        def find_class(self, module: str, name_in_module: str) -> Any:
            if (module, name_in_module) not in known:
                raise DataError(
                    f"{name}: refused: it asks for {module}.{name_in_module}, "
                    "which images do not need"
                )
            return known[module, name_in_module]

    return Restricted(io.BytesIO(data), encoding="bytes")


def _value(value: Any, name: str) -> Any:
    state = getattr(value, "state", None)
    if state is None:
        return value
    return _array(state, name)


def _array(state: Any, name: str) -> np.ndarray:
    """The array that a NumPy state (version, shape, dtype, Fortran order, bytes) describes."""
    try:
        _, shape, kind, fortran, raw = state
        if _text(kind.code) not in ("u1", "uint8") or fortran:
            raise ValueError(f"dtype {_text(kind.code)}, Fortran order {fortran}")
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{name}: not an array of uint8 in C order ({error})") from error


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)
