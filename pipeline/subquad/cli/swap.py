"""`subquad swap`: other mixers in a trained model's layers, with its weights and without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import LocalPath, print_json, print_line, print_table
from subquad.errors import ConfigError
from subquad.runs import OPENINGS, json_value, runs_root, write_json

if TYPE_CHECKING:
    from subquad.data import Split
    from subquad.drivers.trained import Trained
    from subquad.experiment import Run
    from subquad.nn import Batch
    from subquad.registry import Resolved

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
@click.option("--out", type=LocalPath(path_type=Path), help="Folder of the files. Default: swap-MIXER.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
def swap_command(
    model: str,
    mixer: str,
    settings: tuple[str, ...],
    weights: str | None,
    data: str | None,
    part: str,
    samples: int | None,
    layer_samples: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Put MIXER into every layer that has MODEL's mixer, keep the weights, and evaluate without training.

    MODEL is the folder of a run, or an experiment file or recipe, of which the first run is taken. KEY is a parameter
    of MIXER; [A,B] tries both values, and several such keys all combinations. A key stands at its default where
    others leave it no effect. A KEY with a dot is of MODEL's experiment, such as another model of the same kind. The
    folder gets swap.json, a picture of the errors of layers, and one of the scores.

    \b
    subquad swap runs/pets/20260101-101500-ab12cd34 cur num_indices=[16,32,64] selection=[step,random,sum]
    subquad swap vit-b16-cur-finetune cur --weights vit.safetensors --data shards --split test num_indices=64
    subquad swap vit-b16-cur-finetune cur backbone.params.model=deit_small_patch16_224 dataset.params.size=224
    """
    from subquad.diagnose.draw import draw_swaps

    asked, own = _parted(settings)
    original = _original(model, weights, data, own)
    runs = list(_runs(original.parts.run, mixer, asked))
    out = out or Path(f"swap-{Path(mixer).stem}")
    split, protocol = _opened(original, Path(model).is_dir(), part, out)
    split = _spaced(split, samples or len(split))
    found = {
        "model": model,
        "mixer": mixer,
        "protocol": protocol,
        "samples": len(split),
        "metric": original.parts.run.goal.metric,
        "mode": original.parts.run.goal.mode,
        "original": original.scores(split),
        "swaps": [_swap(original, params, run, split, layer_samples) for params, run in runs],
    }
    out.mkdir(parents=True, exist_ok=True)
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


def _runs(original: Run, mixer: str, asked: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Run]]:
    """Each combination of parameters, and the run with that mixer; projections are as the original has them.

    Raises:
        ConfigError: a parameter is unknown or cannot be so.
        PluginError: no such mixer.
    """
    from subquad.experiment import check, parse
    from subquad.plugin import AttentionConfig
    from subquad.registry import resolve

    plugin = resolve("mixer", mixer)
    both = AttentionConfig.model_fields.keys() & plugin.plugin.config.model_fields.keys()
    kept = {key: value for key, value in original.mixer_config.model_dump().items() if key in both}
    plain = original.experiment.model_dump(mode="json")
    for params in combinations(plugin, asked):
        yield params, check(parse({**plain, "mixer": {"name": mixer, "params": {**kept, **params}}}))


def combinations(plugin: Resolved, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the values asked for, each once; of keys that the others leave an effect."""
    from subquad.effect import unmet_conditions
    from subquad.registry import describe_config

    rows = {row.name: row for row in describe_config(plugin.plugin.config)}
    defaults = {name: row.default for name, row in rows.items()}
    found: list[dict[str, Any]] = []
    for values in product(*(value if isinstance(value, list) else [value] for value in asked.values())):
        params = dict(zip(asked, values, strict=True))
        at = {**defaults, **params}
        idle = {key for key in params if key in rows and unmet_conditions(plugin.plugin.config, key, at)}
        kept = {key: value for key, value in params.items() if key not in idle}
        if kept not in found:
            found.append(kept)
    return found


def _opened(original: Trained, trained_here: bool, part: str, out: Path) -> tuple[Split, str]:
    """The split to evaluate on, and what a reader of a score on it has to know."""
    from subquad.engine.result import Seal

    run = original.parts.run
    if part == "test":
        ledgers = [out / OPENINGS, *([runs_root(run.folder) / OPENINGS] if run.place else [])]
        out.mkdir(parents=True, exist_ok=True)
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


def _swap(original: Trained, params: dict[str, Any], run: Run, split: Split, layer_samples: int) -> dict[str, Any]:
    """What one swap does: scores, errors of layers, and which tensors the original had no weights for."""
    from subquad.diagnose.swap import output_errors

    swapped, imported = original.swapped(run)
    model = swapped.parts.bare_model
    untrained = [name for name, _ in model.named_parameters() if name in imported.missing]
    metrics = swapped.scores(split)
    batches = _batches(original, _spaced(split, layer_samples))
    errors = output_errors(original.parts.bare_model, model, batches)
    return {"params": params, "metrics": metrics, "untrained": untrained, "errors": [asdict(one) for one in errors]}


def _batches(trained: Trained, split: Split) -> Iterator[Batch]:
    import numpy as np

    train = trained.parts.train
    size = train.eval_batch_size or train.batch_size
    for indices in np.split(np.arange(len(split)), range(size, len(split), size)):
        yield split.finish(trained.parts.on_device(split.fetch(indices, epoch=0, seed=train.seed)))


def print_swaps(found: Mapping[str, Any]) -> None:
    """A row for the original and one for each swap; then the layers of the best one."""
    metric, swaps = found["metric"], found["swaps"]
    print_line(f"{found['samples']:,} samples: {found['protocol']}; no training after the swap")
    keys = list(dict.fromkeys(key for one in swaps for key in one["params"]))
    rows: list[tuple[str, ...]] = [("original", *("" for _ in keys), f"{found['original'][metric]:.4f}", "", "", "")]
    for one in swaps:
        means = [sum(error[name] for error in one["errors"]) / len(one["errors"]) for name in _ERRORS]
        params = (one["params"].get(key, "") for key in keys)
        rows.append((found["mixer"], *params, f"{one['metrics'][metric]:.4f}", *(f"{mean:.4f}" for mean in means)))
    print_table(("mixer", *keys, metric, *_ERRORS.values()), rows)
    choose = max if found["mode"] == "max" else min
    best = choose(swaps, key=lambda one: one["metrics"][metric])
    print_line()
    print_line(f"layers with {_said(best['params']) or 'the defaults'}")
    layers = [(error["layer"], *(f"{error[name]:.4f}" for name in _ERRORS)) for error in best["errors"]]
    print_table(("layer", *_ERRORS.values()), layers)
    if best["untrained"]:
        print_line(f"{len(best['untrained'])} tensors have no weights in the original ({best['untrained'][0]})")


_ERRORS = {"relative": "error / output", "first_token": "of the first token", "absolute": "mean error"}


def _said(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items())
