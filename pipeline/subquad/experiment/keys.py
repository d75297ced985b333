"""Unknown keys: the nearest allowed one, or where the key belongs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from subquad.experiment.origins import KeyPath, dotted
from subquad.suggest import nearest

Known = Mapping[KeyPath, tuple[str, ...]]
"""The keys of each mapping of an experiment, by the mapping's path."""

_OTHER_NAMES = {
    "learning_rate": "lr",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "bs": "batch_size",
    "batch": "batch_size",
    "global_batch_size": "batch_size",
    "per_device_batch_size": "micro_batch",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "num_steps": "steps",
    "max_steps": "steps",
    "iterations": "steps",
    "optim": "optimizer",
    "momentum": "beta1",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "warmup": "warmup_steps",
    "grad_clip": "clip_norm",
    "gradient_clip": "clip_norm",
    "max_grad_norm": "clip_norm",
    "amp": "precision",
    "dtype": "precision",
    "random_seed": "seed",
    "early_stopping": "patience",
    "num_workers": "loader_workers",
    "world_size": "workers",
    "gpus": "gpus_per_worker",
    "num_gpus": "gpus_per_worker",
    "heads": "num_heads",
    "n_heads": "num_heads",
    "hidden_size": "dim",
    "d_model": "dim",
    "depth": "num_layers",
    "n_layers": "num_layers",
    "layers": "num_layers",
    "model": "backbone",
    "attention": "mixer",
    "data": "dataset",
    "mlflow": "tracking",
}


def known_keys(model: type[BaseModel], path: KeyPath = ()) -> dict[KeyPath, tuple[str, ...]]:
    """The keys of `model` and of the models below it."""
    found: dict[KeyPath, tuple[str, ...]] = {path: tuple(model.model_fields)}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= known_keys(field.annotation, (*path, name))
    return found


def suggest_key(path: KeyPath, known: Known) -> str:
    """What to write instead of an unknown key: `; did you mean 'train'?`, `; it belongs at train.lr`, or what there is.

    Args:
        path: the key as it was given.
        known: all keys of the experiment.
    """
    parent, key = path[:-1], str(path[-1])
    siblings = known.get(parent, ())
    if places := _places(key, parent, known):
        return f"; it belongs at {places}"
    if found := nearest(key, siblings):
        return f"; did you mean {found[0]!r}?"
    if found := _other_name(key, parent, known) or _elsewhere(key, known):
        return f"; did you mean {found}?"
    return f"; there is {', '.join(siblings)}" if siblings else "; it takes none"


def _places(key: str, parent: KeyPath, known: Known) -> str:
    """Where exactly this key stands, below its parent if it does there; at most three places."""
    where = [path for path, keys in known.items() if key in keys]
    below = [path for path in where if path[: len(parent)] == parent]
    return " or ".join(dotted((*path, key)) for path in (below or where)[:3])


def _other_name(key: str, parent: KeyPath, known: Known) -> str:
    """What other tools call by this name, or nearly so, is called here."""
    spelled = key.lower().replace("-", "_")
    alike = nearest(spelled, _OTHER_NAMES) if len(spelled) > 5 else []
    name = _OTHER_NAMES.get(spelled) or next((_OTHER_NAMES[other] for other in alike), None)
    if name is None:
        return ""
    return repr(name) if name in known.get(parent, ()) else _places(name, parent, known)


def _elsewhere(key: str, known: Known) -> str:
    """The nearest key anywhere, with its path."""
    everything: Iterable[str] = {name for keys in known.values() for name in keys}
    found = nearest(key, everything)
    return _places(found[0], (), known) if found else ""
