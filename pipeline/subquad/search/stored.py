"""Experiments and studies that a search wrote down, read back."""

from __future__ import annotations

from dataclasses import dataclass

from subquad.experiment import Study, load


@dataclass(frozen=True)
class _Stored:
    """A text, where a recipe is wanted."""

    stored: str
    name: str = "search"
    distribution: str = "search.yaml"

    def text(self) -> str:
        return self.stored


def load_text(text: str) -> Study:
    """What `subquad.experiment.load` reads from a file with this text.

    Raises:
        ConfigError: it does not load.
        PluginError: a plugin cannot be used.
    """
    return load("search", recipes=lambda: {"search": _Stored(text)})  # pyright: ignore[reportArgumentType]
