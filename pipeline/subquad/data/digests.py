"""Digests of samples and of arrays. Imports numpy, not torch."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b, sha256
from typing import Any

import numpy as np


def digest_of(parts: Iterable[np.ndarray | str]) -> str:
    """SHA-256 (hex) of arrays, with their types and shapes, and of texts."""
    digest = sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(part.tobytes())
    return digest.hexdigest()


def hashed(rows: Iterable[Any]) -> np.ndarray:
    """(n,) uint64: a hash of the bytes of each row."""
    digests = bytearray()
    for row in rows:
        digests += blake2b(row, digest_size=8).digest()
    return np.frombuffer(bytes(digests), np.uint64)
