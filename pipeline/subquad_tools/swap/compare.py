"""What swaps do to a trained model: scores, the tensors that differ from the original's, and how
far the outputs of its mixers move.

Letters: B batch, L length, D model width.
Reference: François et al. 2025, Drop-in efficient self-attention approximation method, Eq. 4. Each
of both networks sees the same inputs and runs by itself, so that a layer's error has those of the
layers below it in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split, Subset
from subquad.engine.result import Seal
from subquad.errors import ConfigError
from subquad.experiment import Run, checked_run, load_given, parse
from subquad.experiment.refusals import validated
from subquad.nn import Backbone, Batch, Imported, as_output
from subquad.plugin import Config
from subquad.plugin.effect import default_of, unmet_conditions
from subquad.record.layout import runs_root
from subquad.record.names import OPENINGS
from subquad.registry import resolve
from subquad.security.disk import make_folder
from subquad.trained.model import Trained
from subquad_tools.diagnose.measure import mixer_calls, real_positions
from subquad_tools.swap.show import in_words, weight_gaps


def best_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
    device = best_device()
    if Path(model).is_dir():
        options = {"--weights": weights, "--data": data}
        for given in (*(option for option, value in options.items() if value), *settings):
            raise ConfigError(f"{given}: {model} is a run, which has its own; leave it out")
        return Trained.of(Path(model), "best", device)
    named = {"init.from": weights, "dataset.params.path": data}
    run = load_given(
        model, [*settings, *(f"{key}={value}" for key, value in named.items() if value)]
    ).runs[0]
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
        given = in_words(swap.given) or "its other defaults"
        what = f"{swap.run.experiment.mixer.name} with {given}"
        refuse_gaps(imported, what, "; --new-weights goes on")
    return swaps


def refuse_gaps(imported: Imported, what: str, way_out: str = "") -> None:
    """Refuse weights that do not fit.

    Raises:
        ConfigError: a tensor has no weights of its name and shape, or a trained one has no place.
    """
    gaps = weight_gaps(imported.missing, imported.unused)
    if gaps:
        raise ConfigError(f"{what}: {gaps}{way_out}")


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
    split, protocol = opened_split(original, part, out, "subquad swap")
    split = spaced(split, samples or len(split))
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


def opened_split(original: Trained, part: str, out: Path, command: str) -> tuple[Split, str]:
    """The split to evaluate on, and what a reader of a score on it has to know.

    Args:
        part: "validation", or "test", whose opening is recorded.
        out: folder of that record.
        command: what opens it.
    """
    run = original.parts.run
    if part == "test":
        ledgers = [out / OPENINGS]
        if run.place:
            ledgers.append(runs_root(run.folder) / OPENINGS)
        make_folder(out, exist_ok=True)
        kept = replace(run, place=out.resolve())
        split, notes = Seal(original.dataset, kept, 1, ledgers).open(command)
        return split, "; ".join(["TEST, opened for this", *notes])
    if not run.place:
        caveat = "the weights may have been trained on it"
    elif run.experiment.protocol == "honest":
        caveat = "which chose the original's checkpoint"
    else:
        caveat = "on which the original was trained"
    return original.dataset.split("validation"), f"validation part of TRAIN, {caveat}"


def spaced(split: Split, count: int) -> Split:
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
    return {
        "params": swap.given,
        "kept": swap.kept,
        "lost": {key: {"value": had[key], "reason": why} for key, why in swap.lost.items()},
        "metrics": swapped.scores(split),
        "untrained": imported.missing,
        "left_out": imported.unused,
        "errors": [
            asdict(error) for error in errors_on(spaced(split, layer_samples), original, swapped)
        ],
    }


def errors_on(split: Split, original: Trained, swapped: Trained) -> list[OutputError]:
    """Errors of each mixer's output on a split."""
    parts = original.parts
    size = parts.train.eval_batch_size or parts.train.batch_size
    places = np.arange(len(split))
    batches = (
        split.finish(parts.on_device(split.fetch(indices, epoch=0, seed=parts.train.seed)))
        for indices in np.split(places, places[size::size])
    )
    return output_errors(parts.bare_model, swapped.parts.bare_model, batches)


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """What a swap does to the outputs of one mixer; means over real tokens and channels.

    Attributes:
        layer: the module's name in the model.
        absolute: mean of |O - O'| (the paper's measure).
        relative: that over the mean of |O|.
        first_token: `relative` of the first token alone, which is the class token where there is
            one.
    """

    layer: str
    absolute: float
    relative: float
    first_token: float


@torch.no_grad()
def output_errors(
    original: Backbone, swapped: Backbone, batches: Iterable[Batch]
) -> list[OutputError]:
    """Errors of each mixer's output, in the order of their calls.

    Args:
        original: a network, set to evaluation mode.
        swapped: the same network with other mixers, set to evaluation mode too.
        batches: on the models' device.
    """
    original.eval()
    swapped.eval()
    names: list[str] = []
    sums: list[Tensor] = []
    for batch in batches:
        with mixer_calls(original) as before:
            original(batch)
        with mixer_calls(swapped) as after:
            swapped(batch)
        names = [call.name for call in before]
        of_batch = []
        for old, new in zip(before, after, strict=True):
            real = real_positions(batch, old.given[0], old.named)
            gap = (as_output(new.out).out - as_output(old.out).out).abs().double()
            size = as_output(old.out).out.abs().double()
            of_real = [gap[real].sum(), size[real].sum(), real.sum() * size.shape[-1]]
            of_batch.append(torch.stack([*of_real, gap[:, 0].sum(), size[:, 0].sum()]))
        sums.append(torch.stack(of_batch))
    return [
        OutputError(
            layer=name, absolute=gap / count, relative=gap / size, first_token=first / first_size
        )
        for name, (gap, size, count, first, first_size) in zip(
            names, torch.stack(sums).sum(0).tolist(), strict=True
        )
    ]


Values = dict[str, Any]


@dataclass(frozen=True)
class Swap:
    """One swap that the user asks for.

    Attributes:
        run: the original with the new mixer.
        given: the new mixer's parameters that the user gave, as far as they have an effect.
        kept: those that come from the original and are not the new mixer's defaults.
        lost: parameters of the original that the new mixer does not have so, each with the reason.
        staying: mixers of single layers or roles, which are not swapped, in words.
    """

    run: Run
    given: Values
    kept: Values
    lost: dict[str, str]
    staying: tuple[str, ...]


def swaps_of(original: Run, mixer: str, given: Mapping[str, Any]) -> Iterator[Swap]:
    """Each combination of the given parameters, where a list means all its values.

    Args:
        original: of which the mixer is swapped that stands wherever no entry of `mixers` does.
        mixer: the new one's name.
        given: parameters of the new one.

    Raises:
        ConfigError: a parameter is unknown, cannot be so, or never has an effect.
        PluginError: no such mixer.
    """
    target = resolve("mixer", mixer).plugin.config
    before = original.mixer_config
    plain = original.experiment.model_dump(mode="json")
    staying = []
    for number, entry in enumerate(original.experiment.mixers):
        where = "every layer"
        if entry.layers is not None:
            where = f"layers {', '.join(map(str, entry.layers))}"
        role = f", role {entry.role}" if entry.role else ""
        staying.append(f"mixers[{number}], {entry.name} in {where}{role}")
    for params in combinations(target, given, before):
        kept, lost = carried(before, target, params)
        plain["mixer"] = {"name": mixer, "params": {**kept, **params}}
        run = checked_run(parse(plain), resolve=resolve)
        told = {key: value for key, value in kept.items() if not run.mixer_config.is_default(key)}
        yield Swap(run, params, told, lost, tuple(staying))


def carried(
    original: Config, target: type[Config], given: Mapping[str, Any]
) -> tuple[Values, dict[str, str]]:
    """What a mixer keeps of another one's parameters, and why it does not keep the rest. One is
    kept where both mixers have one of this name, and the value is valid and has an effect in the
    new one.
    A parameter of the original that stands at its default and that the new mixer does not know is
    no loss.

    Args:
        original: the parameters of the mixer before.
        target: the schema of the new mixer's.
        given: parameters of the new mixer; they are not taken from the original.
    """
    waiting: Values = {}
    lost: dict[str, str] = {}
    for key, value in original.model_dump(mode="json").items():
        if key not in target.model_fields:
            if not original.is_default(key):
                lost[key] = "there is no such setting"
        elif key not in given:
            waiting[key] = value
    if not _faults(target, {**given, **waiting}):
        return waiting, lost
    kept: Values = {}
    while True:
        reasons = {
            key: _faults(target, {**given, **kept, key: value}) for key, value in waiting.items()
        }
        first = next((key for key, reason in reasons.items() if not reason), None)
        if first is None:
            return kept, lost | reasons
        kept[first] = waiting.pop(first)


def _faults(target: type[Config], params: Values) -> str:
    """What is wrong with parameters; "" where nothing is."""
    _, faults = validated(target, params, (), dict)
    return faults[0].message if faults else ""


def combinations(
    config: type[Config], given: Mapping[str, Any], original: Config | None = None
) -> list[Values]:
    """All combinations of the given values, each once; of keys that the others leave an effect.

    Args:
        config: the new mixer's schema.
        given: values, or lists of them, by key.
        original: the parameters of the mixer before, whose values stand where nothing is given.

    Raises:
        ConfigError: a key never has an effect.
    """
    defaults = {
        name: default_of(spec)
        for name, spec in config.model_fields.items()
        if not spec.is_required()
    }
    lists = [value if isinstance(value, list) else [value] for value in given.values()]
    found: list[Values] = []
    idle: dict[str, str] = {}
    for values in product(*lists):
        params = dict(zip(given, values, strict=True))
        had = carried(original, config, params)[0] if original else {}
        kept = {}
        for key, value in params.items():
            unmet = key in config.model_fields and unmet_conditions(
                config, key, {**defaults, **had, **params}
            )
            if unmet:
                idle[key] = " or ".join(map(str, unmet))
            else:
                kept[key] = value
        if kept not in found:
            found.append(kept)
    for key, needed in idle.items():
        if not any(key in params for params in found):
            raise ConfigError(f"{key}: has no effect here: leave it out, or use {needed}")
    return found
