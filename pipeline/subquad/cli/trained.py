"""`subquad predict`, `eval` and `export`: what can be done with a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.options import JSON
from subquad.completion import run_folders
from subquad.output.terminal import LocalPath, print_json, print_line

if TYPE_CHECKING:
    from subquad.data import Split
    from subquad.trained.model import Trained

_WHICH = click.Choice(["best", "last"])
_FILE = LocalPath(exists=True, path_type=Path)
_settings = click.argument("settings", nargs=-1, metavar="[task.params.KEY=VALUE]...")
_which = click.option("--which", type=_WHICH, default="best", show_default=True, help="Checkpoint.")


@click.command("predict")
@click.argument("run", shell_complete=run_folders)
@click.argument("file", type=_FILE)
@_settings
@click.option(
    "--out",
    type=LocalPath(path_type=Path, dir_okay=False),
    help="File of the answers. Default: stdout.",
)
@_which
@click.option(
    "--batch-size", type=click.IntRange(min=1), help="Samples at once. Default: as in evaluations."
)
def predict_command(
    run: str,
    file: Path,
    settings: tuple[str, ...],
    out: Path | None,
    which: str,
    batch_size: int | None,
) -> None:
    """Write RUN's answer to each sample of FILE.

    RUN is the folder of a run, or its address in storage. FILE has the layout that the run's data
    set reads, which may be a folder; it needs no labels. There is one JSON object for each sample,
    in the order of the file: a class and the probability of each, numbers by name, or a text.
    Settings of the task may be others than in training, such as those of a search for texts.

    \b
    subquad predict runs/quickstart/20260101-101500-ab12cd34/cells/JapaneseVowels-agf-seed0 new.ts
    subquad predict runs/summaries/20260101-101500-ab12cd34 articles.jsonl --out summaries.jsonl
    subquad predict runs/writer/20260101-101500-ab12cd34 prompts.txt task.params.temperature=0.8
    """
    from subquad.record.files import json_value, write_output

    trained, split = _opened(run, which, file, settings, labelled=False)
    rows = (_line(json_value(row)) for row in trained.answers(split, batch_size))
    if out is None:
        for row in rows:
            click.echo(row)
    else:
        write_output(out, "".join(f"{row}\n" for row in rows))


def _line(row: Any) -> str:
    """A row as JSON in UTF-8; what could steer a terminal is an escape."""
    text = json.dumps(row, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


@click.command("eval")
@click.argument("run", shell_complete=run_folders)
@click.argument("file", type=_FILE)
@_settings
@_which
@JSON
def eval_command(
    run: str, file: Path, settings: tuple[str, ...], which: str, as_json: bool
) -> None:
    """Score RUN on another labelled FILE.

    RUN is the folder of a run, or its address in storage. FILE has the layout that the run's data
    set reads. The scores are no result of the run, whatever FILE holds: nobody records what is read
    here, and no file of the run changes. Settings of the task may be others than in training.

    \b
    subquad eval runs/quickstart/20260101-101500-ab12cd34/cells/JapaneseVowels-agf-seed0 other.ts
    """
    from subquad.record.files import json_value
    from subquad.reports.text import metric_lines

    trained, split = _opened(run, which, file, settings, labelled=True)
    scores = trained.scores(split)
    if as_json:
        about = {"run": str(trained.parts.run.folder), "file": str(file), "is_result": False}
        print_json(
            json_value({**about, "checkpoint": which, "samples": len(split), "metrics": scores})
        )
        return
    print_line(
        f"{len(split):,} samples of {file}, {which} checkpoint of {run}; a score "
        "of this file, no result of the run"
    )
    for line in metric_lines(scores, trained.parts.run.goal.reports):
        print_line(line)


@click.command("export")
@click.argument("run", shell_complete=run_folders)
@click.argument("folder", type=LocalPath(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["safetensors", "torch-export"]),
    default="safetensors",
    show_default=True,
    help="Weights alone, or also a program for other runtimes.",
)
@_which
def export_command(run: str, folder: Path, form: str, which: str) -> None:
    """Write RUN's model into a new FOLDER, which needs neither the run nor its data.

    RUN is the folder of a run, or its address in storage. FOLDER gets model.safetensors and
    config.json, which `subquad.load` reads, and with --format torch-export also model.pt2. Not
    every model can be such a program; then nothing is written.

    \b
    subquad export runs/quickstart/20260101-101500-ab12cd34/cells/JapaneseVowels-agf-seed0 agf-model
    """
    from subquad.cli.folders import found
    from subquad.trained.export import export
    from subquad.trained.model import Trained

    export(Trained.of(found(run), which), folder, form)
    print_line(folder)


def _opened(
    run: str, which: str, file: Path, settings: tuple[str, ...], *, labelled: bool
) -> tuple[Trained, Split]:
    """On a GPU where there is one. What a reader of the answers must know goes to stderr."""
    import torch

    from subquad.cli.folders import found
    from subquad.trained.model import Trained

    trained = Trained.of(
        found(run), which, torch.device("cuda" if torch.cuda.is_available() else "cpu"), settings
    )
    split = trained.dataset.open_file(file, labelled=labelled)
    for note in getattr(split, "notes", ()):
        print_line(note, err=True)
    return trained, split
