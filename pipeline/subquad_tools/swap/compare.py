"""What swaps do to a trained model: scores, errors of layers, and the tensors that differ from the
original's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subquad.data import Split, Subset
from subquad.engine.result import Seal
from subquad.errors import ConfigError
from subquad.experiment import load_given
from subquad.nn import Batch
from subquad.record.layout import runs_root
from subquad.record.names import OPENINGS
from subquad.security.disk import make_folder
from subquad.trained.model import Trained
from subquad_tools.swap.errors import output_errors
from subquad_tools.swap.settings import Swap, swaps_of
from subquad_tools.swap.text import in_words, weight_gaps


def original_of(
    model: str, weights: str | None, data: str | None, settings: Sequence[str]
) -> Trained:
    """The model that was trained, on a GPU where there is one.

    Args:
        model: folder of a run; or an experiment file or recipe, of which the first run is taken.
        weights, data: of an experiment that is no run, see `init.from` and `dataset.params.path`.
        settings: of such an experiment, as KEY=VALUE.

    Raises:
        ConfigError: a run is given what it has itself, or an experiment has no weights.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if Path(model).is_dir():
        options = {"--weights": weights, "--data": data}
        given = [option for option, value in options.items() if value]
        given += settings
        if given:
            raise ConfigError(f"{given[0]}: {model} is a run, which has its own; leave it out")
        return Trained.of(Path(model), "best", device)
    overrides = [*settings]
    if weights:
        overrides.append(f"init.from={weights}")
    if data:
        overrides.append(f"dataset.params.path={data}")
    run = load_given(model, overrides).runs[0]
    if run.experiment.init is None:
        raise ConfigError(f"{model}: says no weights to start from (init.from); give --weights")
    return Trained.before(run, device)


def swaps_on(
    original: Trained, mixer: str, parameters: Mapping[str, Any], *, new_weights: bool
) -> list[Swap]:
    """The swaps that are asked for; whether all tensors have weights is looked at before anything
    is evaluated.

    Raises:
        ConfigError: a tensor has no weights of its name and shape, or a trained one has no place,
            and `new_weights` does not allow it.
    """
    swaps = list(swaps_of(original.parts.run, mixer, parameters))
    if new_weights:
        return swaps
    for swap in swaps:
        _, imported = original.swapped(swap.run)
        gaps = weight_gaps(imported.missing, imported.unused)
        if gaps:
            name = swap.run.experiment.mixer.name
            with_them = in_words(swap.given) or "its other defaults"
            raise ConfigError(f"{name} with {with_them}: {gaps}; --new-weights goes on")
    return swaps


def compare_swaps(
    original: Trained,
    swaps: Sequence[Swap],
    part: str,
    out: Path,
    samples: int | None,
    layer_samples: int,
) -> dict[str, Any]:
    """Evaluate the original and each swap on the same samples, without training.

    Args:
        original: the trained model.
        swaps: of it.
        part: "validation", or "test", which is opened for this.
        out: folder of the record of openings.
        samples: to evaluate on, evenly spaced over the split; None: all.
        layer_samples: of these, on which the errors of layers are measured.

    Returns:
        `protocol`: what a reader of the scores has to know; `samples`; `metric`: which one chooses;
        `metrics`: what each is; `staying`: mixers that are not swapped, in words; `original`: its
        scores; `swaps`: see `_swapped`.
    """
    split, protocol = _opened(original, part, out)
    split = _spaced(split, samples or len(split))
    goal = original.parts.run.goal
    return {
        "protocol": protocol,
        "samples": len(split),
        "metric": goal.metric,
        "metrics": {name: asdict(metric) for name, metric in goal.reports.items()},
        "staying": list(swaps[0].staying),
        "original": original.scores(split),
        "swaps": [_swapped(original, swap, split, layer_samples) for swap in swaps],
    }


def _opened(original: Trained, part: str, out: Path) -> tuple[Split, str]:
    """The split to evaluate on, and what a reader of a score on it has to know."""
    run = original.parts.run
    if part == "test":
        ledgers = [out / OPENINGS]
        if run.place:
            ledgers.append(runs_root(run.folder) / OPENINGS)
        make_folder(out, exist_ok=True)
        seal = Seal(original.dataset, replace(run, place=out.resolve()), 1, ledgers)
        split, notes = seal.open("subquad swap")
        return split, "; ".join(["TEST, opened for this", *notes])
    if not run.place:
        caveat = "the weights may have been trained on it"
    elif run.experiment.protocol == "honest":
        caveat = "which chose the original's checkpoint"
    else:
        caveat = "on which the original was trained"
    return original.dataset.split("validation"), f"validation part of TRAIN, {caveat}"


def _spaced(split: Split, count: int) -> Split:
    """Some samples of a split, evenly spaced over it."""
    size = len(split)
    if count >= size:
        return split
    return Subset(split, np.arange(count) * size // count)


def _swapped(original: Trained, swap: Swap, split: Split, layer_samples: int) -> dict[str, Any]:
    """What one swap does.

    Returns:
        `params`: those asked for; `kept`; `lost`, each with its value and the reason; `metrics`;
        `untrained` and `left_out`: tensors; `errors`: see `OutputError`.
    """
    had = original.parts.run.mixer_config.model_dump(mode="json")
    swapped, imported = original.swapped(swap.run)
    metrics = swapped.scores(split)
    batches = _batches(original, _spaced(split, layer_samples))
    errors = output_errors(original.parts.bare_model, swapped.parts.bare_model, batches)
    return {
        "params": swap.given,
        "kept": swap.kept,
        "lost": {key: {"value": had[key], "reason": why} for key, why in swap.lost.items()},
        "metrics": metrics,
        "untrained": imported.missing,
        "left_out": imported.unused,
        "errors": [asdict(error) for error in errors],
    }


def _batches(trained: Trained, split: Split) -> Iterator[Batch]:
    parts = trained.parts
    train = parts.train
    size = train.eval_batch_size or train.batch_size
    places = np.arange(len(split))
    for indices in np.split(places, places[size::size]):
        yield split.finish(parts.on_device(split.fetch(indices, epoch=0, seed=train.seed)))
