"""`subquad diagnose`: the spectral passport of trained and untrained models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from subquad.output.terminal import LocalPath, print_json, print_line, print_table

if TYPE_CHECKING:
    from subquad.trained.model import Trained
    from subquad_tools.diagnose.measure import Passport

SAMPLES, TOKENS = 4, 512
"""What is measured on where nothing else is said."""


@click.command("diagnose")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=SAMPLES,
    show_default=True,
    help="Samples to measure on.",
)
@click.option(
    "--tokens",
    type=click.IntRange(2),
    default=TOKENS,
    show_default=True,
    help="Most tokens of a sample to measure on.",
)
@click.option(
    "--out",
    type=LocalPath(path_type=Path),
    help="Folder of the files. Default: that of a single run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def diagnose_command(
    targets: tuple[str, ...], samples: int, tokens: int, out: Path | None, as_json: bool
) -> None:
    """Measure what mixers do to frequencies, and whether tokens become alike from layer to layer.

    TARGET is the folder of a run, which is measured before and after its training, or an experiment
    file or recipe, of which the first seed of each run is measured untrained. The samples are the
    first of TRAIN.

    \b
    subquad diagnose runs/quickstart/20260101-101500-ab12cd34/cells/JapaneseVowels-agf-seed0
    subquad diagnose lra-agf-smoke --samples 2 --out passports
    """
    from subquad.record.files import write_json
    from subquad.record.layout import enter
    from subquad.record.names import DIAGNOSIS
    from subquad.tracking.mirror import SENDING, whole_of
    from subquad.tracking.publisher import sync
    from subquad_tools.diagnose.draw import draw_passports

    found = {
        name: passport_of(trained, samples, tokens)
        for target in targets
        for name, trained in _models(target)
    }
    run = enter(Path(targets[0])) if len(targets) == 1 and Path(targets[0]).is_dir() else None
    where = out or run or Path()
    path = where / DIAGNOSIS
    pictures = draw_passports(found, path.with_suffix(""))
    values = {name: asdict(measured) for name, measured in found.items()}
    write_json(path, values)
    if where == run and (whole_of(where.resolve()) / SENDING).exists():
        sync(where)
    if as_json:
        return print_json(values)
    print_passports(found)
    for written in (path, *pictures):
        print_line(written)


def print_passports(found: dict[str, Passport]) -> None:
    """A line for the embedded tokens of each model, then one for each mixer."""
    rows = []
    for name, measured in found.items():
        rows.append((name, "none", "", "", "", f"{measured.similarity[0]:.3f}"))
        alike = iter(measured.similarity[1:])
        for _, operators in groupby(
            measured.operators, lambda operator: operator.layer.rpartition(".")[0]
        ):
            after = f"{next(alike, math.nan):.3f}"
            for operator in operators:
                gains = f"{operator.response[0]:.3g}", f"{operator.response[-1]:.3g}"
                rank = f"{100 * operator.effective_rank:.1f}"
                rows.append((name, operator.layer, *gains, rank, after))
    print_table(
        (
            "model",
            "mixer",
            "gain at frequency 0",
            "gain at pi",
            "effective rank (%)",
            "tokens alike after layer",
        ),
        rows,
    )


def _models(target: str) -> Iterator[tuple[str, Trained]]:
    """Models by what they are called."""
    from subquad.experiment import load_given
    from subquad.experiment.folder import reopen_one
    from subquad.record.names import CELLS
    from subquad.trained.model import Trained

    path = Path(target)
    if path.is_dir():
        run = reopen_one(path)
        name = run.folder.name if run.folder.parent.name == CELLS else run.label
        yield f"{name}, untrained", Trained.before(run)
        yield name, Trained.of(path, "best")
        return
    runs = load_given(target).runs
    for run in runs:
        if run.experiment.train.seed == runs[0].experiment.train.seed:
            yield run.label, Trained.before(run)


def passport_of(trained: Trained, samples: int = SAMPLES, tokens: int = TOKENS) -> Passport:
    """Measured on the first samples of TRAIN, and on the first tokens of each."""
    import numpy as np

    from subquad_tools.diagnose.measure import passport

    parts = trained.parts
    is_honest = parts.run.experiment.protocol == "honest"
    split = trained.dataset.split("train" if is_honest else "trainval")
    fetched = split.fetch(np.arange(min(samples, len(split))), epoch=0, seed=parts.train.seed)
    return passport(parts.bare_model, parts.on_device(fetched), tokens=tokens)
