"""`subquad swap`: other mixers in a trained model's layers, with its weights and without
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from subquad.output.terminal import LocalPath, print_json, print_line

_FILE = "swap.json"


@click.command("swap")
@click.argument("model")
@click.argument("mixer")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--weights", help="Weights to start from, as init.from has them. Of a run: its best checkpoint."
)
@click.option(
    "--data", help="Where the data are, as dataset.params.path has it. Of a run: its own."
)
@click.option(
    "--split",
    "part",
    type=click.Choice(["validation", "test"]),
    default="validation",
    show_default=True,
    help="What to evaluate on; test is opened, and the opening recorded.",
)
@click.option(
    "--samples", type=click.IntRange(1), help="Samples, evenly spaced over the split. Default: all."
)
@click.option(
    "--layer-samples",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Samples, evenly spaced too, that the errors of layers are measured on.",
)
@click.option(
    "--new-weights", is_flag=True, help="Draw weights that the original lacks, rather than refuse."
)
@click.option(
    "--out", type=LocalPath(path_type=Path), help="Folder of the files. Default: swap-MIXER."
)
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
    new_weights: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Put MIXER into every layer that has MODEL's mixer, keep the weights, and evaluate without
    training.

    MODEL is the folder of a run, or an experiment file or recipe, of which the first run is taken.
    KEY is a parameter of MIXER; [A,B] tries both values, and several such keys all combinations. A
    key stands at its default where others leave it no effect. Other parameters are MODEL's where
    MIXER has them too; what it cannot have is named. A KEY with a dot is of MODEL's experiment,
    such as another model of the same kind. Layers and roles with an entry of their own in `mixers`
    stay. The folder gets swap.json, a picture of the errors of layers, and one of the scores.

    \b
    subquad swap runs/pets/20260101-101500-ab12cd34 cur \\
        num_indices=[16,32,64] selection=[step,random,sum]
    subquad swap vit-b16-cur-finetune cur \\
        --weights vit.safetensors --data shards --split test num_indices=64
    subquad swap vit-b16-cur-finetune cur \\
        backbone.params.model=deit_small_patch16_224 dataset.params.size=224
    """
    from subquad.record.files import json_value, write_json
    from subquad_tools.swap.compare import compare_swaps, original_of, swaps_on
    from subquad_tools.swap.show import draw_swaps, print_swaps

    parameters, own = _parted(settings)
    original = original_of(model, weights, data, own)
    out = out or Path(f"swap-{Path(mixer).stem}")
    compared = compare_swaps(
        original,
        swaps_on(original, mixer, parameters, new_weights=new_weights),
        part,
        out,
        samples,
        layer_samples,
    )
    found = json_value({"model": model, "mixer": mixer, **compared})
    write_json(out / _FILE, found)
    pictures = draw_swaps(found, out)
    if as_json:
        return print_json(found)
    print_swaps(found)
    for path in (out / _FILE, *pictures):
        print_line(path)


def _parted(settings: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Parameters of the mixer by name, and settings of the model's experiment, which have a dot."""
    from subquad.experiment.sources import parse_overrides

    own = [setting for setting in settings if "." in setting.partition("=")[0]]
    of_mixer = [setting for setting in settings if setting not in own]
    return {
        str(override.path[0]): override.value for override in parse_overrides(of_mixer, Path.cwd())
    }, own
