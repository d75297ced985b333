"""Counts of tokens that stand for a whole sequence: landmarks, picks, packed tokens. Light."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from subquad.plugin import MixerConfig, Site, param


def count_of_tokens(most: int, *, meaning: str, **more: Any) -> Any:
    """A field whose default, 0, is `most`, or the longest sequence's length where that is less."""
    words = f"{meaning}; 0: {most}, or as many as the longest sequence has if these are fewer"
    return param(0, meaning=words, ge=0, **more)


class CountedConfig(MixerConfig):
    """Parameters of mixers with such a field.

    Attributes:
        counted: its name, and what its default is where sequences are long enough.
    """

    counted: ClassVar[tuple[str, int]]

    def longest(self, site: Site) -> int:
        """How many tokens there are to choose from; 0 while not known."""
        return site.max_len

    def check(self, site: Site) -> None:
        super().check(site)
        name, _ = self.counted
        longest = self.longest(site)
        if longest and getattr(self, name) > longest:
            raise ValueError(
                f"{name} {getattr(self, name)} is more than the longest sequence has: "
                f"use {longest} or less"
            )

    def at(self, site: Site) -> Self:
        name, most = self.counted
        count = getattr(self, name) or min(most, self.longest(site) or most)
        return super().at(site).model_copy(update={name: count})
