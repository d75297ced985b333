"""`matrix.dataset.text.params.path=FOLDER`: a parameter of one value of a component's axis, the value by its label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subquad.experiment.axes import parse_axes
from subquad.experiment.settings import COMPONENTS, KeyPath, Marks, Setting, problem, shown_key
from subquad.suggest import did_you_mean


def choice_params(setting: Setting, matrix: Mapping[str, Any], marks: Marks) -> Setting | None:
    """One value of an axis with one of its parameters set, None where `setting` means something else.

    Args:
        setting: of `("matrix", key)`.
        matrix: the axes so far.
        marks: where they were given.

    Returns:
        a setting of `("matrix", axis, position)`.

    Raises:
        ConfigError: the axis has no value of this label.
    """
    kind, _, rest = str(setting.path[1]).partition(".")
    label, params, name = rest.rpartition(".params.")
    if kind not in COMPONENTS or kind not in matrix or not params:
        return None
    choices = parse_axes({kind: matrix[kind]}, marks)[0].choices
    position = next((number for number, choice in enumerate(choices) if choice.label == label), None)
    if position is None:
        labels = [choice.label for choice in choices]
        hint = did_you_mean(label, labels) or f"; there is {', '.join(map(shown_key, labels[:10]))}"
        path: KeyPath = ("matrix", kind, label)
        raise problem(path, f"no value of the axis has this label{hint}", {(): setting.origin})
    chosen = choices[position].value
    value = {**chosen, "params": {**chosen.get("params", {}), name: setting.value}, "label": label}
    return Setting(("matrix", kind, position), value, setting.origin)
