"""Tensors in safetensors files. Of a sharded run each rank has a file: the rows of each tensor that
it held, and in the header the first of them.

The header's entry is that of torch.distributed.checkpoint, whose reader reads such files too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import IO, Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from subquad.errors import DataError
from subquad.security.limits import check_safetensors

_PAIRS = ":complex128"
"""Ends the names of complex numbers that are written as pairs: safetensors has those of 64 bits
alone.
"""
_SHARDS, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
Pieces = list[bytes | memoryview]


def pieces_of(tensors: Mapping[str, Tensor], first_rows: Mapping[str, int]) -> Pieces:
    """A safetensors file of tensors on the CPU, in pieces; no number is copied.

    Args:
        first_rows: of those that are some rows of a tensor, the place of the first; empty where
            all are whole.
    """
    header: dict[str, Any] = {}
    offsets = {}
    pieces: Pieces = []
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        first = first_rows.get(name, 0)
        if tensor.dtype == torch.complex128:
            name += _PAIRS
            tensor = torch.view_as_real(tensor)
        start = end
        end += tensor.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": _code(tensor.dtype), "shape": shape, "data_offsets": [start, end]}
        offsets[name] = {_OFFSETS: [first, *[0] * len(shape)][: len(shape)]}
        numbers = tensor.detach().contiguous().view(-1).view(torch.uint8)
        pieces.append(numbers.numpy().data)
    if first_rows:
        header["__metadata__"] = {_SHARDS: json.dumps(offsets)}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *pieces]


@cache
def _code(dtype: torch.dtype) -> str:
    """What the format calls a kind of number."""
    return json.loads(save({"": torch.empty(0, dtype=dtype)})[8:])[""]["dtype"]


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Whole tensors as a safetensors file."""
    return b"".join(pieces_of(tensors, {}))


def unpacked(where: object, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        DataError: it is none.
    """
    check_safetensors(where, content)
    found = {}
    with _reading(where):
        for name, tensor in load(content).items():
            found[name.removesuffix(_PAIRS)] = _kind(name, tensor)
    return found


@contextmanager
def _reading(where: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # damaged files raise what their bytes happen to say
        raise DataError(f"{where}: not a safetensors file: {error}") from error


def _kind(name: str, tensor: Tensor) -> Tensor:
    return torch.view_as_complex(tensor) if name.endswith(_PAIRS) else tensor


class Stored(Mapping[str, Tensor]):
    """The tensors of safetensors files, each read when it is asked for.

    Args:
        files: by what an error calls each; they may be closed, and deleted, once this is made.

    Attributes:
        kinds: each tensor without its numbers, on the device meta.

    Raises:
        DataError: one is no such file, or they do not fit together.
    """

    def __init__(self, files: Mapping[Any, IO[bytes]]):
        self._parts = defaultdict[str, list[_Part]](list)
        self.kinds: dict[str, Tensor] = {}
        where = ""
        for where, stream in files.items():
            stream.seek(0)
            check_safetensors(where, stream.read(8))
            with _reading(where):
                file = safe_open(f"/dev/fd/{stream.fileno()}", "pt")
                shards = json.loads((file.metadata() or {}).get(_SHARDS, "{}"))
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    rows = file.get_tensor(name)
                    offsets = shards.get(name, {}).get(_OFFSETS) or [0]
                    part = _Part(offsets[0], rows, _kind(name, rows.to("meta")))
                    self._parts[name.removesuffix(_PAIRS)].append(part)
        with _reading(where):
            for name, parts in self._parts.items():
                self.kinds[name] = _whole(parts)

    def __getitem__(self, name: str) -> Tensor:
        return self.rows(name, 0, sum(self.kinds[name].shape[:1]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Some rows of a tensor, in memory of their own; all of one without rows."""
        kind = self.kinds[name]
        found = []
        for first, rows, _ in self._parts[name]:
            if kind.ndim:
                rows = rows[max(start - first, 0) : max(end - first, 0)]
            # bytes: in a file numbers may lie where a processor cannot read them
            found.append(rows.reshape(-1).view(torch.uint8))
        shape = [end - start, *kind.shape[1:]][: kind.ndim]
        return torch.cat(found).view(kind.dtype).view(shape)


class _Part(NamedTuple):
    """Rows of a tensor, which the system reads when they are touched."""

    first: int
    rows: Tensor
    kind: Tensor


def _whole(parts: list[_Part]) -> Tensor:
    """The kind of a tensor; puts its parts in order."""
    parts.sort(key=lambda part: part.first)
    end = 0
    for first, _, kind in parts:
        if first != end:
            raise ValueError(f"rows {end} to {first} of a tensor are missing")
        end += sum(kind.shape[:1])
    kinds = [part.kind for part in parts]
    return torch.cat(kinds) if len(kinds) > 1 else kinds[0]
