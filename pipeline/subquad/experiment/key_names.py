"""Names of settings: which there are, and the one that somebody meant."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from subquad.experiment.settings import KeyPath, dotted
from subquad.registry.parameters import models_below
from subquad.suggest import nearest

Known = Mapping[KeyPath, tuple[str, ...]]
"""The keys of each mapping of an experiment, by the mapping's path."""

_ELSEWHERE_CALLED = {
    "lr": "learning_rate",
    "weight_decay": "wd l2",
    "batch_size": "bs batch global_batch_size",
    "micro_batch": "per_device_batch_size",
    "epochs": "num_epochs n_epochs max_epochs",
    "steps": "num_steps max_steps iterations",
    "optimizer": "optim",
    "beta1": "momentum",
    "schedule": "scheduler lr_scheduler",
    "warmup_steps": "warmup",
    "clip_norm": "grad_clip gradient_clip max_grad_norm",
    "precision": "amp dtype",
    "seed": "random_seed",
    "patience": "early_stopping",
    "loader_workers": "num_workers",
    "workers": "world_size",
    "gpus_per_worker": "gpus num_gpus",
    "num_heads": "heads n_heads",
    "dim": "hidden_size d_model",
    "num_layers": "depth n_layers layers",
    "backbone": "model",
    "mixer": "attention",
    "dataset": "data",
    "tracking": "mlflow",
}
_OTHER_NAMES = {
    other: name for name, others in _ELSEWHERE_CALLED.items() for other in others.split()
}
"""What other tools call our keys."""


def known_keys(model: type[BaseModel], path: KeyPath = ()) -> dict[KeyPath, tuple[str, ...]]:
    """The keys of `model` and of the models below it."""
    found: dict[KeyPath, tuple[str, ...]] = {path: tuple(model.model_fields)}
    for name, spec in model.model_fields.items():
        for inner in models_below(spec):
            found |= known_keys(inner, (*path, name))
    return found


def suggest_key(path: KeyPath, known: Known) -> str:
    """What to write instead of a key: `; did you mean 'train'?`, `; it belongs at train.lr`, or
    what there is.
    """
    parent = path[:-1]
    key = str(path[-1])
    siblings = known.get(parent, ())
    if places := _places(key, parent, known):
        return f"; it belongs at {places}"
    if found := nearest(key, siblings):
        return f"; did you mean {found[0]!r}?"
    name = _other_name(key)
    if name in siblings:
        return f"; did you mean {name!r}?"
    if places := _places(name, parent, known):
        return f"; did you mean {places}?"
    if found := nearest(key, set[str]().union(*known.values())):
        places = _places(found[0], (), known)
        return f"; did you mean {places}?"
    if siblings:
        return f"; there is {', '.join(siblings)}"
    return "; it takes none"


def _places(key: str, parent: KeyPath, known: Known) -> str:
    """Where exactly this key stands, below its parent if it does there; at most three places."""
    everywhere = [path for path, keys in known.items() if key in keys]
    below = [path for path in everywhere if path[: len(parent)] == parent]
    return " or ".join([dotted((*path, key)) for path in (below or everywhere)[:3]])


def _other_name(key: str) -> str:
    """What is called by this name, or nearly so, in other tools; "" where nothing is."""
    spelled = key.lower().replace("-", "_")
    if spelled not in _OTHER_NAMES and len(spelled) > 5:
        spelled = "".join(nearest(spelled, _OTHER_NAMES))
    return _OTHER_NAMES.get(spelled, "")
