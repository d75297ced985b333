"""The scales of a study: `scales:` says how the same study looks at another size, and `--scale` chooses one."""

from __future__ import annotations

from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown, suggest_key
from subquad.experiment.settings import KeyPath, Origin, Setting, Tree, one_line, origin_of, problem, shown_key
from subquad.experiment.vary import VARY
from subquad.suggest import did_you_mean

FULL = "full"
"""The study as its file has it, unless the file says otherwise."""

SCALES = "scales"
_PARTS = ("matrix", "cases", "exclude", VARY)
_WORDS = "a mapping of scales to their matrix, cases, exclude and vary, as in smoke: {matrix: {seed: [0]}}"


def at_scale(tree: Tree, scale: str | None) -> tuple[Tree, list[Setting]]:
    """A study at a scale.

    Args:
        tree: a study with its name.
        scale: one that the file has, or "full"; None is the file as it is.

    Returns:
        The study without `scales`, with the scale's name and `vary`, its cases and exclusions followed by those of the
        scale; and the axes that the scale gives anew.

    Raises:
        ConfigError: there is no such scale, or it is not a mapping of `matrix`, `cases`, `exclude` and `vary`.
    """
    known = _known(tree)
    data = {key: value for key, value in tree.data.items() if key != SCALES}
    if scale is None or (scale == FULL and FULL not in known):
        return Tree(data, tree.marks), []
    if scale not in known:
        hint = did_you_mean(scale, [*known, FULL])
        there = f"there is {', '.join(dict.fromkeys([*known, FULL]))}" if known else "the file has no scales"
        raise ConfigError(one_line(f"--scale {shown(scale)}: no such scale{hint or f'; {there}'}"))
    chosen, path = known[scale], (SCALES, scale)
    marks = dict(tree.marks)
    for part in ("cases", "exclude"):
        if part in chosen:
            data[part] = _joined(data.get(part, []), chosen[part], (*path, part))
            before = len(data[part]) - len(chosen[part])
            marks |= _moved(tree, (*path, part), part, before)
    if VARY in chosen:
        data[VARY] = chosen[VARY]
        depth = len(path)
        given = {key[depth:]: origin for key, origin in tree.marks.items() if key[: depth + 1] == (*path, VARY)}
        marks = {key: origin for key, origin in marks.items() if key[:1] != (VARY,)} | given
    name = data["name"] if scale == FULL else f"{data['name']}-{scale}"
    axes = chosen.get("matrix", {})
    return Tree({**data, "name": name}, marks), [
        Setting(("matrix", key), values, origin_of((*path, "matrix", key), marks) or Origin("study"))
        for key, values in axes.items()
    ]


def _known(tree: Tree) -> dict[str, dict[str, Any]]:
    """The scales by name, each a mapping with nothing else in it than what may be."""
    scales = tree.data.get(SCALES, {})
    if not isinstance(scales, dict):
        raise problem((SCALES,), f"got {shown(scales)}, must be {_WORDS}", tree.marks)
    for name, parts in scales.items():
        path: KeyPath = (SCALES, name)
        if not isinstance(parts, dict) or not parts:
            raise problem(path, f"got {shown(parts)}, must be a mapping with {', '.join(_PARTS)}", tree.marks)
        for part, value in parts.items():
            if part not in _PARTS:
                raise problem((*path, part), f"unknown key{suggest_key((*path, part), {path: _PARTS})}", tree.marks)
            kind, word = (dict, "a mapping") if part in ("matrix", VARY) else (list, "a list")
            if not isinstance(value, kind):
                raise problem((*path, part), f"got {shown(value)}, must be {word}", tree.marks)
    return scales


def _joined(before: Any, added: list[Any], path: KeyPath) -> list[Any]:
    if not isinstance(before, list):
        raise problem((path[-1],), f"got {shown(before)}, must be a list; {shown_key(str(path[1]))} adds to it")
    return [*before, *added]


def _moved(tree: Tree, path: KeyPath, part: str, before: int) -> dict[KeyPath, Origin]:
    """Marks of a scale's list where its entries stand in the study's."""
    depth = len(path)
    return {
        (part, before + int(key[depth]), *key[depth + 1 :]): origin
        for key, origin in tree.marks.items()
        if key[:depth] == path and len(key) > depth
    }
