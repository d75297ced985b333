"""Optuna without its log."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that parts of it are experimental."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
