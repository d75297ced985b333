"""The last section of each page in docs/reference/papers, made of the recipes and of the published
table `papers`; the whole page index.md.

python tests/support/papers_page.py     # writes them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from subquad.experiment import Run, dump, load_study
from subquad.record.files import flatten
from subquad.record.models import Environment
from subquad.registry import recipes
from subquad.reports.beside import Beside, published_beside
from subquad.reports.published import published_tables
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, make_rows

PAGES = Path(__file__).resolve().parents[2] / "docs/reference/papers"
SOURCES = {"agf": "wi2025agf", "cur": "francois2025cur", "mdfwa": "kiruluta2025mdfwa"}
"""Pages, and what the published table calls their papers."""

BEGIN = "\n## Rows beside the printed numbers\n"
APART = ("-small", "-smoke", "-swaps")
"""Endings of recipes that are no paper's experiment: a smaller one like it, or one whose mixers get
weights instead of training.
"""

NOT_HELD = {
    "the path, the label and the version of a file": (
        "format", "dataset.params.path", "dataset.params.problem", "dataset.params.download",
        "dataset.params.check_utf8", "dataset.params.processes",
    ),
    "what changes rounding alone": (
        "train.precision", "train.tf32", "train.compile", "train.kernels", "mixer.params.kernel",
    ),
    "seeds": (
        "train.seed", "dataset.params.seed", "dataset.params.split_seed",
        "dataset.params.pair_seed",
    ),
    "how a validation part is cut": (
        "dataset.params.validation", "dataset.params.validation_fraction", "dataset.params.split",
    ),
    "what says which benchmark, method and protocol it is, without which no number is beside it": (
        "dataset.name", "dataset.params.difficulty", "dataset.params.discs",
        "dataset.params.resolution", "task.name", "mixer.name", "protocol",
    ),
    "how data are generated or made of other files, as such runs are never comparable": (
        "dataset.params.train_size", "dataset.params.validation_size", "dataset.params.test_size",
        "dataset.params.test_fraction", "dataset.params.min_length", "dataset.params.max_length",
        "dataset.params.max_depth", "dataset.params.max_args", "dataset.params.first",
        "dataset.params.second", "dataset.params.missing",
    ),
    "what has no effect or is refused beside the settings that are held": (
        "train.epochs", "train.steps", "train.eval_every_epochs", "train.eval_every_steps",
        "train.min_lr_ratio", "backbone.params.vocab_size", "backbone.params.embedding_init",
        "mixer.params.mask_padding", "mixer.params.order", "mixer.params.basis",
        "mixer.params.jacobi_a", "mixer.params.jacobi_b", "mixer.params.fix_identity",
        "mixer.params.coeff_activation", "mixer.params.sigma_map", "mixer.params.column",
        "mixer.params.ridge",
    ),
    "the steps of CUR's inverse, which the paper does not print": ("mixer.params.iterations",),
}  # fmt: skip
"""Settings that decide numbers and that no condition of a row that can be comparable names, by why.

A test finds any other."""

READ_TWICE = {
    "AGF, Table 1": "AGF on EthanolConcentration and SelfRegulationSCP1, "
    "Transformer on JapaneseVowels",
    "AGF, Table 2": "AGF on text and image, Transformer on pathfinder",
    "AGF, Tables 4 and 14 to 17": "gamma 0.01 on retrieval, K = 8 on FaceDetection, "
    "K = 7 on image, a = 1.5 on pathfinder, b = -1 on image",
    "AGF, Table 7": "both rows, on ImageNet-100 and ImageNet-1k",
    "AGF, Tables 18 to 20": "sigmoid on retrieval, the monomial on PEMS-SF, "
    "both filters on Handwriting",
    "CUR, Table 1": "CURformer on listops, text and retrieval, Mega on image",
    "CUR, Table 5": "16 and 64 indices, and the standard model",
    "MDFWA, Tables 1 and 2": "all rows",
    "SFPC, Section VI": "it prints no number",
}
"""Rows that were held against the papers' text a second time, by paper and table."""

SECTION = """
A finished run of a recipe as it is, with all seeds and test samples, beside the number of its row.
The last column counts the numbers that differ in something, or with which no run can be compared,
and why. `subquad report RUN` shows all of it.

| recipe | printed in | numbers | comparable | differs in |
|---|---|---|---|---|
"""
INDEX = """\
# The papers

What each paper reports, which recipe trains it, and where a run would differ:
[AGF](agf.md), [CUR and MegaCUR](cur.md), [MDFWA](mdfwa.md), [SFPC](sfpc.md).

- `subquad show published papers` prints where the printed numbers lie (`papers.csv` beside the file
  that it shows), the conditions of each, and what a reader must know of them.
- `subquad report RUN` puts the printed number beside a run, comparable or not, with every condition
  in which they differ ([how](../report.md#published-rows)).

Recipes choose checkpoints on validation data. Some printed numbers are the best test accuracy over
epochs: `protocol=paper` takes this difference away. ListOps and Pathfinder are generated; a folder
of the official files is given as `matrix.dataset.listops.params.path=FOLDER`.

Where a row can be comparable, any setting that decides numbers is held against it, except these
(`NOT_HELD` in `tests/support/papers_page.py` names each): {not_held}.

These rows were read a second time against the papers, with their conditions:

{read_twice}
"""


@dataclass(frozen=True)
class Cell:
    """A run of a recipe beside a printed number."""

    run: Run
    leaves: Mapping[str, Any]
    beside: Beside

    @property
    def mixer(self) -> str:
        """Its mixer's name, without the package's."""
        return self.run.mixer.found.name


def index() -> str:
    """The text of index.md."""
    return INDEX.format(not_held=_not_held(), read_twice=_read_twice())


def page(name: str) -> str:
    """The text of a paper's page, with its last section as it has to be."""
    before, _, _ = (PAGES / f"{name}.md").read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + SECTION + "".join(_rows(SOURCES[name]))


def _not_held() -> str:
    return "; ".join(NOT_HELD)


def _read_twice() -> str:
    return "\n".join(f"- {place}: {rows}" for place, rows in READ_TWICE.items())


def _names() -> list[str]:
    return sorted(name for name in recipes() if not name.endswith(APART))


def _rows(source: str) -> Iterator[str]:
    """A line for each recipe with numbers of a paper."""
    for name in _names():
        shown = [cell for cell in cells(name) if cell.beside.published.source == source]
        if shown:
            yield _line(name, shown)


def _line(name: str, shown: Sequence[Cell]) -> str:
    tables = sorted({cell.beside.published.table for cell in shown}, key=_in_order)
    comparable = sum(not cell.beside.reasons for cell in shown)
    counts = Counter(reason for cell in shown for reason in _reasons(cell))
    reasons = "; ".join(f"{reason} ({count})" for reason, count in counts.items()) or "–"
    row = (f"`{name}`", ", ".join(tables), str(len(shown)), str(comparable), reasons)
    return f"| {' | '.join(text.replace('|', '/') for text in row)} |\n"


def _reasons(cell: Cell) -> Sequence[str]:
    """In what a run differs; of a number that no run can be compared with, why."""
    (papers,) = published_tables()
    rule = papers.conditions_of(cell.beside.published)
    return [rule.never] if rule and rule.never else cell.beside.reasons


def _in_order(table: str) -> tuple[str, int]:
    word, number = table.split()
    return word, int(number)


@cache
def cells(name: str, *overrides: str) -> list[Cell]:
    """Of each row and data set of a recipe the numbers that are printed for it, in its order."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in load_study(name, overrides).runs:
        row = (benchmark_of(run), str(run.axes.get("mixer")), str(run.axes.get("change")))
        groups.setdefault(row, []).append(run)
    found = list[Cell]()
    for (benchmark, *_), runs in groups.items():
        leaves = flatten(yaml.safe_load(dump(runs[0].experiment)))
        (row,) = make_rows([_reported(run, leaves, benchmark) for run in runs])
        for metric in runs[0].goal.tested:
            shown = replace(row, samples=None, metric=metric)
            printed = _printed(shown, runs[0].axes.get("change"))
            found += [Cell(runs[0], leaves, beside) for beside in printed]
    return found


def _printed(row: TableRow, change: Mapping[str, Any] | None) -> list[Beside]:
    """Of a row with a changed setting the numbers from the tables that change it alone."""
    if change is None:
        return published_beside(row)
    (papers,) = published_tables()
    keys = change or papers.varied.get(row.mixer, {})
    main = [] if change else published_beside(row)
    return [*main, *(beside for key in keys for beside in published_beside(row, key))]


def benchmark_of(run: Run) -> str:
    """What the table calls a run's data: as the recipe, but for summaries, which have no label."""
    if run.dataset.found.name in ("pubmed-summarization", "pubmed-rct"):
        return "PubMed"
    return str(run.axes.get("dataset", run.dataset_label))


def _reported(run: Run, leaves: Mapping[str, Any], benchmark: str) -> ReportedRun:
    """A finished run as a report has it, with as many test samples as the benchmark has."""
    goal = run.goal
    metrics = dict.fromkeys(goal.tested, 0.5)
    can_generate = "dataset.params.train_size" in leaves
    generated = can_generate and leaves.get("dataset.params.path") is None
    return ReportedRun(
        folder=Path(),
        name=run.label,
        leaves={**leaves, "train.seed": run.experiment.train.seed},
        environment=Environment(),
        status="finished",
        axes=dict(run.axes),
        mixer=run.mixer.found.name,
        dataset=benchmark,
        protocol=run.experiment.protocol,
        seed=run.experiment.train.seed,
        metric=goal.metric,
        tested=tuple(goal.tested),
        metrics={metric: goal.shown(metric) for metric in goal.tested},
        test={"metrics": metrics, "samples": 0, "checkpoint": "best", "step": 1},
        published_keys={"benchmark": benchmark},
        notes=["stand-in data"] if generated else [],
    )


if __name__ == "__main__":
    (PAGES / "index.md").write_text(index(), encoding="utf-8")
    for paper in SOURCES:
        (PAGES / f"{paper}.md").write_text(page(paper), encoding="utf-8")
