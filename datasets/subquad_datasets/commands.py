"""`subquad data`: what can be done with data sets besides training on them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from subquad.errors import DataError, escaped

if TYPE_CHECKING:
    from subquad.data import Dataset

_JOBS = click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    help="Processes. Default: one for each core.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("data")
def data_command() -> None:
    """Prepare and look at data sets.

    \b
    subquad data show quickstart
    subquad data shard PICTURES FOLDER --split train
    subquad data index 'FOLDER/train-*.tar'
    """


@data_command.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--split", type=click.Choice(["train", "val"]), required=True, help="What the shards hold."
)
@click.option(
    "--labels", type=click.Path(exists=True, path_type=Path), help="Classes of a tar of pictures."
)
@click.option(
    "--classes",
    type=click.Path(exists=True, path_type=Path),
    help="A file with the classes to take.",
)
@click.option(
    "--size", type=click.IntRange(1), default=1000, show_default=True, help="Samples of a shard."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of the order of the samples.",
)
@_JOBS
def shard(
    source: Path,
    folder: Path,
    split: str,
    labels: Path | None,
    classes: Path | None,
    size: int,
    seed: int,
    jobs: int,
) -> None:
    """Write shards and their indices from pictures in classes.

    SOURCE is a folder with a folder of pictures for each class; or a tar with a tar for each class
    (ILSVRC2012_img_train.tar); or, with --labels, a tar of pictures (ILSVRC2012_img_val.tar). A
    call that was stopped goes on when it is made again, and gives the same bytes.

    \b
    subquad data shard ILSVRC2012_img_train.tar shards --split train
    subquad data shard ILSVRC2012_img_val.tar shards --split val --labels LOC_val_solution.csv
    """
    from subquad_datasets.shards.source import chosen_classes, find_pictures, read_classes
    from subquad_datasets.shards.write import CLASSES, plan_shards, write_shards

    pictures = find_pictures(source, labels)
    kinds = sorted({picture.kind for picture in pictures})
    listed = folder / CLASSES
    known = read_classes(listed) if listed.exists() else kinds
    if classes:
        chosen = chosen_classes(classes, known)
        pictures = [picture for picture in pictures if picture.kind in chosen]
    else:
        chosen = known
        if unknown := [kind for kind in kinds if kind not in known]:
            raise DataError(
                f"{source}: class {unknown[0]} is not in {listed}; use another folder, or --classes"
            )
    plans = plan_shards(folder, split, pictures, chosen, size, seed)
    counts = _shown(write_shards(folder, split, chosen, plans, jobs), len(plans))
    click.echo(
        f"{folder}: {sum(counts):,} samples of {len(chosen)} classes in "
        f"{len(counts)} shards, split {split}"
    )


@data_command.command()
@click.argument("shards", nargs=-1, required=True)
@_JOBS
def index(shards: tuple[str, ...], jobs: int) -> None:
    """Write the indices of shards that are there.

    SHARDS are tars, or patterns of their names: *, ? and {00000..00999}. They may be addresses,
    s3://... or gs://..., where the indices are written too.

    \b
    subquad data index 'imagenet1k-train-{0000..1023}.tar' 'imagenet1k-validation-*.tar'
    """
    from subquad_datasets.shards.index import find_shards, write_index
    from subquad_datasets.shards.write import in_processes

    paths = find_shards(shards)
    counts = _shown(
        (len(index.rows) for index in in_processes(write_index, paths, jobs)), len(paths)
    )
    click.echo(f"{sum(counts):,} samples in {len(counts)} shards")


@data_command.command("list")
@click.option("--check", is_flag=True, help="Compare the sums of all files, which reads them.")
@_JSON
def list_prepared(check: bool, as_json: bool) -> None:
    """Show which data lie prepared in subquad's data folder.

    That is $SUBQUAD_DATA, else the user's cache folder. A folder that is damaged is prepared again
    when it is needed.

    \b
    subquad data list --check
    """
    from subquad.record.storage import data_root
    from subquad_datasets.shown import prepared_folders

    folders = list(prepared_folders(data_root(), sums=check))
    if as_json:
        return click.echo(json.dumps(folders, indent=2))
    for entry in folders:
        size = f"{entry['bytes'] / 1e6:,.1f} MB"
        state = entry["fault"] or "good"
        _print(
            f"{entry['folder']}  {size:>12}  {entry['time']}  {state}  {json.dumps(entry['about'])}"
        )
    click.echo(
        f"{data_root()}: {len(folders)} data sets, "
        f"{sum(entry['bytes'] for entry in folders) / 1e6:,.1f} MB"
    )


@data_command.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET... [KEY=VALUE]...")
def prepare(targets: tuple[str, ...]) -> None:
    """Prepare the data of experiments without training.

    TARGET is an experiment file, a recipe, or the name of a data set. Settings are those of an
    experiment, such as dataset.params.path=FOLDER.

    \b
    subquad data prepare lra-agf-smoke
    subquad data prepare text-lm dataset.params.path=input.txt dataset.params.tokenizer=bpe
    """
    for name, dataset in _opened(targets).items():
        spec = dataset.describe()
        sizes = ", ".join(f"{part} {size:,}" for part, size in spec.sizes.items())
        _print(f"{name}: {sizes}")
        for note in spec.notes:
            _print(f"  {note}")


@data_command.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET... [KEY=VALUE]...")
@click.option(
    "--samples",
    type=click.IntRange(1, 64),
    default=12,
    show_default=True,
    help="Samples of the picture.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder of the pictures. Default: here.",
)
@_JSON
def show(targets: tuple[str, ...], samples: int, out: Path, as_json: bool) -> None:
    """Describe data sets, say how their files were read, and draw some training samples as a model
    sees them.

    TARGET is an experiment file, a recipe, or the name of a data set, which is prepared first. What
    `subquad train` would refuse is refused. The picture is NAME.png. Of TEST nothing is shown.

    \b
    subquad data show quickstart
    subquad data show image-folder dataset.params.path=pictures dataset.params.size=64 --samples 24
    """
    from subquad_datasets.shown import described, draw_samples, length_quantiles, read_lines

    about = {}
    for name, dataset in _opened(targets).items():
        picture = out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.png"
        draw_samples(dataset, picture, samples)
        quantiles = length_quantiles(dataset)
        about[name] = {
            **described(dataset.describe()),
            **({"training_lengths": quantiles} if quantiles else {}),
            "read": read_lines(dataset),
            "picture": str(picture),
        }
    if as_json:
        return click.echo(json.dumps(about, indent=2))
    for name, facts in about.items():
        _print(name)
        for line in facts.pop("read"):
            _print(f"  {line}")
        for key, value in facts.items():
            told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            _print(f"  {key}: {told}")


def _print(text: str) -> None:
    """One line that may hold names of somebody else's files."""
    click.echo(escaped(text, limit=100_000))


def _opened(targets: Iterable[str]) -> dict[str, Dataset]:
    """The data sets of all targets; what has a = is a setting."""
    import subquad

    settings = [target for target in targets if "=" in target]
    names = [target for target in targets if "=" not in target]
    if not names:
        raise click.UsageError(
            "Missing argument 'TARGET...': a recipe, an experiment file or a data set"
        )
    return {
        name: dataset
        for target in names
        for name, dataset in subquad.datasets(target, settings).items()
    }


def _shown(counts: Iterable[int], total: int) -> list[int]:
    """Samples of each shard, with a bar on a terminal while they come."""
    shown = sys.stderr.isatty()
    with click.progressbar(
        counts, length=total, label="shards", file=sys.stderr, hidden=not shown
    ) as bar:
        return list(bar)
