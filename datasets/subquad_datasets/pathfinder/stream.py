"""Random words that are a pure function of (seed, split, image, attempt, place): no state, any
order, any process.

SplitMix64: word t of a key is the mix of key + t * golden ratio. Integers only, so equal on every
machine.
Reference: Steele, Lea, Flood, 2014, Fast splittable pseudorandom number generators (OOPSLA).
"""

from __future__ import annotations

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_32, _30, _27, _31 = (np.uint64(bits) for bits in (32, 30, 27, 31))


def words(keys: np.ndarray, place: int | np.ndarray) -> np.ndarray:
    """(n,) uint64: the word at `place` of each of the streams `keys` (n,) uint64."""
    mixed = keys + np.asarray(place, dtype=np.uint64) * _GOLDEN
    mixed = (mixed ^ (mixed >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    return mixed ^ (mixed >> _31)


def child_keys(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """(n,) uint64: the keys of the streams with these `numbers` (n,) below `keys` (n,)."""
    return words(words(keys, 0), numbers.astype(np.uint64) + np.uint64(1))


def image_keys(seed: int, split: int, indices: np.ndarray) -> np.ndarray:
    """(n,) uint64: one stream for each image of a split."""
    root = np.array([seed], dtype=np.uint64)
    of_split = child_keys(root, np.array([split]))
    return child_keys(np.repeat(of_split, len(indices)), indices)


def below(bounds: int | np.ndarray, keys: np.ndarray, place: int | np.ndarray) -> np.ndarray:
    """(n,) int64: integers in [0, bounds), bounds < 2**32, each as likely to within 2**-32."""
    high = words(keys, place) >> _32
    return ((high * np.asarray(bounds, dtype=np.uint64)) >> _32).astype(np.int64)
