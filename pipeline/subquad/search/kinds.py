"""Optuna's samplers and pruners by name, with their own settings under their own names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import optuna
from pydantic import create_model

from subquad.errors import ConfigError
from subquad.experiment.refusals import known_keys, refusal, validated
from subquad.plugin import Config
from subquad.suggest import did_you_mean

_PLAIN: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str | int": int,
    "bool | None": bool | None,
    "int | None": int | None,
    "float | None": float | None,
}
"""Settings that a user may give, by their annotation; functions and other samplers are not among them."""

_HIDDEN = ("seed", "consider_prior", "consider_magic_clip", "consider_endpoints", "warn_independent_sampling")
"""Ours to give, on their way out of Optuna, or about warnings that are not shown."""


@dataclass(frozen=True)
class Kind:
    """A sampler or a pruner.

    Attributes:
        make: Optuna's class.
        defaults: where ours differ from Optuna's.
    """

    make: type[Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> type[Config]:
        """What a user may set, with its defaults."""
        known = {name: (_words(one.annotation), one.default) for name, one in signature(self.make).parameters.items()}
        fields: dict[str, Any] = {
            name: (_PLAIN[words], self.defaults.get(name, default))
            for name, (words, default) in known.items()
            if name not in _HIDDEN and words in _PLAIN
        }
        return create_model(self.make.__name__, __base__=Config, **fields)


def _words(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def configured(role: str, name: str, kinds: Mapping[str, Kind], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for the class of a name.

    Args:
        role: "sampler" or "pruner"; messages name a setting `sampler.n_startup_trials`.
        given: settings, as the user gave them.

    Raises:
        ConfigError: there is no such name, or the first of what is wrong with its settings.
    """
    if name not in kinds:
        hint = did_you_mean(name, kinds) or f"; there is {', '.join(kinds)}"
        raise ConfigError(f"{role}: unknown {role} {name!r}{hint}")
    schema, path = kinds[name].schema, (role,)
    settings, faults = validated(schema, given, path, None, lambda: known_keys(schema, path))
    if settings is None:
        raise refusal(faults, None)
    arguments = {**kinds[name].defaults, **settings.model_dump()}
    try:
        with quiet():
            kinds[name].make(**arguments)
    except ValueError as error:
        raise ConfigError(f"{role} {name}: {error}") from error
    return arguments


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
