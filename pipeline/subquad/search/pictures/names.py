"""Short names of settings, for axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MAX_LETTERS = 24


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The end of each dotted path that no other one shares, without `params`: `mixer.params.order` is `order`.

    Args:
        paths: different ones.
    """
    parts = {path: [part for part in path.split(".") if part != "params"] or [path] for path in paths}
    length = dict.fromkeys(paths, 1)
    while True:
        names = {path: ".".join(parts[path][-length[path] :]) for path in paths}
        shared = Counter(names.values())
        clashing = [path for path in paths if shared[names[path]] > 1 and length[path] < len(parts[path])]
        if not clashing:
            return names
        for path in clashing:
            length[path] += 1


def cut(text: str, letters: int = MAX_LETTERS) -> str:
    """Text for a plot: no mathtext (`$` would start it), and of a long one the beginning."""
    text = text if len(text) <= letters else f"{text[: letters - 1]}…"
    return text.replace("$", r"\$")
