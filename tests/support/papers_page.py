"""docs/reference/papers.md, made of the recipes and of the published table `papers`.

python tests/support/papers_page.py     # writes the page
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from subquad.experiment import Run, dump, load_study
from subquad.record.files import flatten
from subquad.registry import recipes, resolve
from subquad.reports.beside import Beside, published_beside, value_text
from subquad.reports.published import published_tables, source_title
from subquad.reports.reported_run import Machine, ReportedRun
from subquad.reports.rows import TableRow, make_rows

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/papers.md"
SMALLER = ("-small", "-smoke")
"""Endings of recipes that are no paper's experiment, but a smaller one like it."""

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

HEAD = """\
# The papers' rows

What the recipes train beside what the papers print, for every row of a recipe that a paper has a
number for. The page is made of the recipes and of the published table `papers`
(`subquad show published papers`), whose numbers and conditions were typed from the papers, with the
table that they stand in. [Reports](report.md#published-rows) compare in the same way.

- *printed*: the number as the paper prints it.
- *conditions*: what the paper, or the code that it names, says of data, network and training.
- *differs in*: every condition in which a finished run of the recipe as it is would differ, so that
  its score is not comparable. Runs have as many test samples as the data set, and all seeds.

Settings of a mixer are those that are not its defaults. Recipes choose checkpoints on validation
data. Some published numbers are the best test accuracy over epochs: there the selection is a
difference, which `protocol=paper` takes away. ListOps and Pathfinder are generated, which a folder
of the official files takes away (`matrix.dataset.listops.params.path=FOLDER`).

Where a row can be comparable, any setting that decides numbers is held against it, except these:

{not_held}

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


def page() -> str:
    """The page's text."""
    head = HEAD.format(not_held=_not_held(), read_twice=_read_twice())
    return head + "".join(part for name in _names() for part in _recipe(name))


def _not_held() -> str:
    return "\n".join(
        f"- {why}: {', '.join(f'`{key}`' for key in keys)}" for why, keys in NOT_HELD.items()
    )


def _read_twice() -> str:
    return "\n".join(f"- {place}: {rows}" for place, rows in READ_TWICE.items())


def _names() -> list[str]:
    return sorted(name for name in recipes() if not name.endswith(SMALLER))


def _recipe(name: str) -> Iterator[str]:
    found = cells(name)
    places = dict.fromkeys(
        (cell.beside.published.source, cell.beside.published.table) for cell in found
    )
    for source, table in sorted(places, key=_in_order):
        shown = [
            cell
            for cell in found
            if (cell.beside.published.source, cell.beside.published.table) == (source, table)
        ]
        yield f"\n## {name}: {source}, {table}\n\n{source_title(source)}.\n"
        yield from _conditions(shown)
        yield "\n| mixer | called in the paper | benchmark | printed | differs in |\n"
        yield "|---|---|---|---|---|\n"
        yield from dict.fromkeys(map(_line, shown))


def _in_order(place: tuple[str, str]) -> tuple[str, int]:
    source, table = place
    return source, int("".join(filter(str.isdigit, table)) or 0)


def _conditions(shown: Sequence[Cell]) -> Iterator[str]:
    """The conditions of each benchmark, those of the mixer left out: they are in the rows. What
    all of them share stands first.
    """
    (papers,) = published_tables()
    conditions = dict[str, dict[str, str]]()
    for cell in shown:
        printed = cell.beside.published
        rule = papers.conditions_of(printed)
        where = (
            f"{printed.benchmark}, {printed.model}" if rule and rule.never else printed.benchmark
        )
        if rule is None or where in conditions:
            continue
        expect = {**rule.expect, **rule.exceptions.get(printed.benchmark, {})}
        terms = {word: value_text(value) for word, value in expect.values()}
        samples = rule.samples[printed.benchmark]
        if terms:
            conditions[where] = terms | ({"test samples": f"{samples:,}"} if samples else {})
    if not conditions:
        return
    first, *others = conditions.values()
    shared = {
        word: value
        for word, value in first.items()
        if others and all(other.get(word) == value for other in others)
    }
    yield "\n| benchmark | conditions |\n|---|---|\n"
    if shared:
        yield _told("all", shared)
    for where, terms in conditions.items():
        yield _told(where, {word: terms[word] for word in terms if word not in shared})


def _told(where: str, terms: Mapping[str, str]) -> str:
    return f"| {where} | {'; '.join(f'{word} {value}' for word, value in terms.items())} |\n"


def _line(cell: Cell) -> str:
    printed = cell.beside.published
    deviation = f" ± {printed.std}" if printed.std else ""
    mixer = cell.run.experiment.mixer
    defaults = resolve("mixer", mixer.name).plugin.config().model_dump()
    settings = [
        f"{key} {value_text(value)}"
        for key, value in mixer.params.items()
        if defaults.get(key, ...) != value
    ]
    own = f"`{cell.mixer}`{' with ' if settings else ''}{', '.join(settings)}"
    cells = (
        own,
        printed.model,
        printed.benchmark if printed.metric == "accuracy" else printed.metric,
        f"{printed.printed}{deviation}",
        "; ".join(cell.beside.reasons) or "nothing",
    )
    return f"| {' | '.join(text.replace('|', '/') for text in cells)} |\n"


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
        environment=Machine(),
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
    PAGE.write_text(page(), encoding="utf-8")
