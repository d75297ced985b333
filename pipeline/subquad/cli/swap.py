"""`subquad swap`: other mixers in a trained model's layers, with its weights and without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import LocalPath, print_json, print_line, print_table
from subquad.disk import make_folder
from subquad.effect import as_written
from subquad.errors import ConfigError
from subquad.metric import metric_of, read_metrics
from subquad.reach import Reach
from subquad.runs import OPENINGS, json_value, runs_root, write_json

if TYPE_CHECKING:
    from subquad.data import Split
    from subquad.drivers.swap import Swap
    from subquad.drivers.trained import Trained
    from subquad.nn import Batch

SWAP = "swap.json"


@click.command("swap")
@click.argument("model")
@click.argument("mixer")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--weights", help="Weights to start from, as init.from has them. Of a run: its best checkpoint.")
@click.option("--data", help="Where the data are, as dataset.params.path has it. Of a run: its own.")
@click.option(
    "--split",
    "part",
    type=click.Choice(["validation", "test"]),
    default="validation",
    show_default=True,
    help="What to evaluate on; test is opened, and the opening recorded.",
)
@click.option("--samples", type=click.IntRange(1), help="Samples, evenly spaced over the split. Default: all.")
@click.option(
    "--layer-samples",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Samples, evenly spaced too, that the errors of layers are measured on.",
)
@click.option("--new-weights", is_flag=True, help="Draw weights that the original lacks, rather than refuse.")
@click.option("--out", type=LocalPath(path_type=Path), help="Folder of the files. Default: swap-MIXER.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
@Reach(
    reads="MODEL, its data, --weights, a file in MIXER",
    runs="a file in MIXER",
    writes="--out, the record of openings beside MODEL, prepared data",
    sends="requests for data",
)
def swap_command(
    model: str,
    mixer: str,
    settings: tuple[str, ...],
    weights: str | None,
    data: str | None,
    part: str,
    samples: int | None,
    layer_samples: int,
    new_weights: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Put MIXER into every layer that has MODEL's mixer, keep the weights, and evaluate without training.

    MODEL is the folder of a run, or an experiment file or recipe, of which the first run is taken. KEY is a parameter
    of MIXER; [A,B] tries both values, and several such keys all combinations. A key stands at its default where
    others leave it no effect. Other parameters are MODEL's where MIXER has them too; what it cannot have is named. A
    KEY with a dot is of MODEL's experiment, such as another model of the same kind. Layers and roles with an entry of
    their own in `mixers` stay. The folder gets swap.json, a picture of the errors of layers, and one of the scores.

    \b
    subquad swap runs/pets/20260101-101500-ab12cd34 cur num_indices=[16,32,64] selection=[step,random,sum]
    subquad swap vit-b16-cur-finetune cur --weights vit.safetensors --data shards --split test num_indices=64
    subquad swap vit-b16-cur-finetune cur backbone.params.model=deit_small_patch16_224 dataset.params.size=224
    """
    from subquad.diagnose.draw import draw_swaps

    asked, own = _parted(settings)
    original = _original(model, weights, data, own)
    swaps = _swaps(original, mixer, asked, new_weights)
    out = out or Path(f"swap-{Path(mixer).stem}")
    split, protocol = _opened(original, Path(model).is_dir(), part, out)
    split = _spaced(split, samples or len(split))
    found = {
        "model": model,
        "mixer": mixer,
        "protocol": protocol,
        "samples": len(split),
        "metric": original.parts.run.goal.metric,
        "metrics": {name: asdict(one) for name, one in original.parts.run.goal.reports.items()},
        "staying": list(swaps[0].staying),
        "original": original.scores(split),
        "swaps": [_swapped(original, swap, split, layer_samples) for swap in swaps],
    }
    write_json(out / SWAP, json_value(found))
    pictures = draw_swaps(found, out)
    if as_json:
        return print_json(json_value(found))
    print_swaps(found)
    for path in (out / SWAP, *pictures):
        print_line(path)


def _parted(settings: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Parameters of the mixer by name, and settings of the model's experiment, which have a dot."""
    from subquad.experiment.sources import parse_overrides

    own = [one for one in settings if "." in one.partition("=")[0]]
    asked = parse_overrides([one for one in settings if one not in own], Path.cwd())
    return {str(one.path[0]): one.value for one in asked}, own


def _original(model: str, weights: str | None, data: str | None, settings: Sequence[str]) -> Trained:
    """The model that was trained, on a GPU where there is one."""
    import torch

    from subquad.drivers.trained import Trained
    from subquad.experiment import load_study

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if Path(model).is_dir():
        if given := [*(["--weights"] if weights else []), *(["--data"] if data else []), *settings]:
            raise ConfigError(f"{given[0]}: {model} is a run, which has its own; leave it out")
        return Trained.of(Path(model), "best", device)
    given = {"init.from": weights, "dataset.params.path": data}
    run = load_study(model, [*settings, *(f"{key}={value}" for key, value in given.items() if value)]).runs[0]
    if run.experiment.init is None:
        raise ConfigError(f"{model}: says no weights to start from (init.from); give --weights")
    return Trained.before(run, device)


def _swaps(original: Trained, mixer: str, asked: Mapping[str, Any], new_weights: bool) -> list[Swap]:
    """The swaps that are asked for; whether all tensors have weights is looked at before anything is evaluated.

    Raises:
        ConfigError: a tensor has no weights of its name and shape, or a trained one has no place.
    """
    from subquad.drivers.swap import swaps_of

    swaps = list(swaps_of(original.parts.run, mixer, asked))
    for swap in () if new_weights else swaps:
        _, imported = original.swapped(swap.run)
        if told := _told_of_weights(imported.missing, imported.unused):
            with_them = _said(swap.asked) or "its other defaults"
            raise ConfigError(f"{swap.run.experiment.mixer.name} with {with_them}: {told}; --new-weights goes on")
    return swaps


def _told_of_weights(untrained: Sequence[str], left_out: Sequence[str]) -> str:
    """How the tensors of a swapped model differ from the original's; "" where they do not."""
    kinds = {
        "have no weights of their name and shape in the original, and are drawn anew": untrained,
        "of the original have no place, and are left out": left_out,
    }
    return ", ".join(f"{len(names)} tensors {words} ({', '.join(names)})" for words, names in kinds.items() if names)


def _opened(original: Trained, trained_here: bool, part: str, out: Path) -> tuple[Split, str]:
    """The split to evaluate on, and what a reader of a score on it has to know."""
    from subquad.engine.result import Seal

    run = original.parts.run
    if part == "test":
        ledgers = [out / OPENINGS, *([runs_root(run.folder) / OPENINGS] if run.place else [])]
        make_folder(out, exist_ok=True)
        split, notes = Seal(original.dataset, replace(run, place=out.resolve()), 1, ledgers).open("subquad swap")
        return split, "; ".join(["TEST, opened for this", *notes])
    if not trained_here:
        said = "the weights may have been trained on it"
    elif run.experiment.protocol == "honest":
        said = "which chose the original's checkpoint"
    else:
        said = "on which the original was trained"
    return original.dataset.split("validation"), f"validation part of TRAIN, {said}"


def _spaced(split: Split, count: int) -> Split:
    """Some samples of a split, evenly spaced over it."""
    import numpy as np

    from subquad.data import Chosen

    return split if count >= len(split) else Chosen(split, np.arange(count) * len(split) // count)


def _swapped(original: Trained, swap: Swap, split: Split, layer_samples: int) -> dict[str, Any]:
    """What one swap does: settings, scores, errors of layers, and the tensors that differ from the original's."""
    from subquad.diagnose.swap import output_errors

    had = original.parts.run.mixer_config.model_dump(mode="json")
    swapped, imported = original.swapped(swap.run)
    metrics = swapped.scores(split)
    batches = _batches(original, _spaced(split, layer_samples))
    errors = output_errors(original.parts.bare_model, swapped.parts.bare_model, batches)
    return {
        "params": swap.asked,
        "kept": swap.kept,
        "lost": {key: {"value": had[key], "reason": why} for key, why in swap.lost.items()},
        "metrics": metrics,
        "untrained": imported.missing,
        "left_out": imported.unused,
        "errors": [asdict(error) for error in errors],
    }


def _batches(trained: Trained, split: Split) -> Iterator[Batch]:
    import numpy as np

    train = trained.parts.train
    size = train.eval_batch_size or train.batch_size
    for indices in np.split(np.arange(len(split)), range(size, len(split), size)):
        yield split.finish(trained.parts.on_device(split.fetch(indices, epoch=0, seed=train.seed)))


def print_swaps(found: Mapping[str, Any]) -> None:
    """What was kept of the original, a row for it and one for each swap; then the layers of the best one."""
    metric, swaps = found["metric"], found["swaps"]
    shown = metric_of(read_metrics(found["metrics"]), metric)
    print_line(f"{found['samples']:,} samples: {found['protocol']}; no training after the swap")
    for line in dict.fromkeys(line for swap in swaps for line in _differences(swap)):
        print_line(line)
    for words in found["staying"]:
        print_line(f"not swapped: {words}")
    keys = list(dict.fromkeys(key for one in swaps for key in one["params"]))
    rows: list[tuple[str, ...]] = [
        ("original", *("" for _ in keys), shown.number(found["original"][metric]), "", "", "")
    ]
    for one in swaps:
        means = [sum(error[name] for error in one["errors"]) / len(one["errors"]) for name in _ERRORS]
        params = (one["params"].get(key, "") for key in keys)
        rows.append((found["mixer"], *params, shown.number(one["metrics"][metric]), *(f"{mean:.4f}" for mean in means)))
    print_table(("mixer", *keys, shown.with_unit, *_ERRORS.values()), rows)
    choose = max if shown.mode == "max" else min
    best = choose(swaps, key=lambda one: one["metrics"][metric])
    print_line()
    print_line(f"layers with {_said(best['params']) or 'the defaults'}")
    layers = [(error["layer"], *(f"{error[name]:.4f}" for name in _ERRORS)) for error in best["errors"]]
    print_table(("layer", *_ERRORS.values()), layers)


def _differences(swap: Mapping[str, Any]) -> Iterator[str]:
    """What a swap keeps of the original, and what it cannot."""
    if swap["kept"]:
        yield f"kept: {_said(swap['kept'])}"
    for key, lost in swap["lost"].items():
        yield f"not kept: {key} {as_written(lost['value'])} ({lost['reason']})"
    if told := _told_of_weights(swap["untrained"], swap["left_out"]):
        yield told


_ERRORS = {"relative": "error / output", "first_token": "of the first token", "absolute": "mean error"}


def _said(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {as_written(value)}" for key, value in params.items())
