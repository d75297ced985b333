"""Searches that are drawn: pairs of everything that `subquad tune` can be asked for, really run,
and looked at after.

What is expected is told by the files of a search and by the words of its row alone, not by what
planned it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from command import cli
from covertable.main import make
from result_file import read_result
from small_run import SMALL

from subquad.cli.main import main
from subquad.experiment import load_study
from subquad.experiment.strict_yaml import parse_yaml
from subquad.record.files import flatten, read_json
from subquad.record.metrics import read_records
from subquad.search.search import read_search
from subquad.search.settings import KEYS

Row = Mapping[str, Any]
TRIALS = 3

SMALLER = SMALL.replace(
    "train_size: 203, validation_size: 40, test_size: 60",
    "train_size: 64, validation_size: 24, test_size: 24",
)


def base_of(row: Row) -> str:
    """The experiment without its study's keys."""
    steps = steps_of(row)
    length = (
        f"train: {{steps: {steps}, epochs: null, eval_every_epochs: null, "
        f"eval_every_steps: {steps // 3}"
    )
    return SMALLER.replace("train: {epochs: 3", length).replace("batch_size: 16", "batch_size: 8")


def steps_of(row: Row) -> int:
    """Steps of a trial. With few of them `trial.match=flops` could not come near enough, whatever
    the point.
    """
    return 6 if row["match"] == "none" else 24


OTHER = "{name: agf, params: {order: 4}, label: other, set: {train.optimizer: sgd}}"
"""Another optimiser has its best rates elsewhere, so that two rows have different winners."""
STUDIES = {
    "single": "",
    "mixers": "matrix: {mixer: [softmax, agf], seed: [3, 4]}\nbaseline: softmax\n",
    "rows": f"matrix: {{mixer: [agf, {OTHER}]}}\n",
    "rows reversed": f"matrix: {{mixer: [{OTHER}, agf], seed: [0]}}\n",
    "labels all": (
        "matrix: {seed: [{value: 2, label: two}], mixer: [{name: softmax, label: "
        "a}, {name: softmax, label: b}]}\n"
    ),
    "crossed labels": (
        "matrix: {mixer: [{name: softmax, label: agf}, "
        "{name: agf, label: softmax, only: [cosine]}], "
        "train.schedule: [{value: constant, label: cosine}, {value: cosine, label: flat}]}\n"
    ),
    "values": "matrix: {train.weight_decay: [0.1, {value: 0.1, label: again}, {value: 0.0, "
    "label: none}]}\n",
    "set": (
        "matrix: {mixer: [{name: agf, set: {train.clip_norm: 0.5}}, "
        "{name: agf, label: wide, set: {mixer.params.order: 5}}]}\n"
    ),
}
SPACES = {
    "rates": "dims: {train.lr: {loguniform: [3.0e-3, 3.0]}, train.clip_norm: {uniform: "
    "[0.5, 2.0]}}",
    "grid": "dims: {train.lr: {choice: [3.0e-3, 1.0]}, train.clip_norm: {choice: [0.5, 1.0, 2.0]}}",
}

DIMENSIONS: dict[str, list[Any]] = {
    "target": list(STUDIES),
    "overrides": ["none", "train.log_every=2", "pruner"],
    "space": ["rates", "grid", "auto", "auto+rates"],
    "sampler": ["random", "grid", "tpe", "gp"],
    "pruner": ["none", "median", "asha"],
    "budget": ["trials", "flops", "seconds"],
    "match": ["none", "flops"],
    "cost": ["none", "seconds", "flops"],
    "seeds_per_trial": [1, 2],
    "points": ["none", "text", "file"],
    "final_seeds": [1, 2],
    "seed": [0, 5],
    "dry_run": [False, True],
    "resume": ["never", "killed", "killed twice", "extended", "ended"],
    "root": [".", "elsewhere"],
    "as_json": [False, True],
    "parameters": ["own", "equal"],
}
"""By what a search calls its settings, and options of `tune`; `parameters` is the study's `match`,
`resume` how the search is broken off and goes on.
"""

LEFT_OUT = {
    "local": "always given: what differs without is Ray's, see test_tune_ray.py",
    "address": "another place for the same work, see test_cluster_ray.py",
    "jobs": "how many trials run at once, see test_side_by_side.py",
    "debug": "shows tracebacks, and changes nothing else",
}
"""Options that are no dimension, with the reason."""

POINT = {
    "rates": "train.lr=0.01",
    "grid": "train.lr=1.0",
    "auto": "",
    "auto+rates": "train.lr=0.01",
}
"""A point for each space; that of mixers alone has none that all have."""


_SEVERAL = ("mixers", "rows", "rows reversed", "labels all", "crossed labels", "set")

Rule = tuple[str, tuple[str, ...], Callable[..., bool]]
"""A reason, dimensions, and whether their values may not stand together."""

REFUSED: list[Rule] = [
    (
        "a grid over a continuous dimension",
        ("sampler", "space"),
        lambda sampler, space: sampler == "grid" and space != "grid",
    ),
    (
        "a pruner beside a second objective",
        ("cost", "pruner"),
        lambda cost, pruner: "none" not in (cost, pruner),
    ),
    (
        "trial.match with a pruner and a budget in another unit",
        ("match", "pruner", "budget"),
        lambda match, pruner, budget: "none" not in (match, pruner) and budget != "flops",
    ),
    (
        "match: parameters with one mixer",
        ("parameters", "target"),
        lambda parameters, target: parameters == "equal" and target not in _SEVERAL,
    ),
]
"""What is documented to be refused."""

POINTLESS: list[Rule] = [
    ("", ("space", "target"), lambda space, target: space == "auto" and target == "labels all"),
    (
        "",
        ("overrides", "pruner"),
        lambda overrides, pruner: overrides == "pruner" and pruner == "none",
    ),
    ("", ("points", "space"), lambda points, space: points != "none" and not POINT[space]),
    ("", ("resume", "budget"), lambda resume, budget: resume == "extended" and budget == "seconds"),
]
"""Values that would mean nothing beside others."""


def _broken(row: Row, rules: Sequence[Rule]) -> Iterator[Rule]:
    """The rules that a row, or the part of it that is known, breaks."""
    for rule in rules:
        _, names, breaks = rule
        if all(name in row for name in names) and breaks(*(row[name] for name in names)):
            yield rule


def fits(row: Row) -> bool:
    """Whether a row breaks no rule."""
    return not any(_broken(row, [*REFUSED, *POINTLESS]))


def drawn_rows(seed: int, count: int | None = None) -> list[dict[str, Any]]:
    """Rows that cover every pair of values that may stand together; more of them, or fewer,
    where a count is asked.
    """
    draw, rows = random.Random(seed), list[dict[str, Any]]()
    constraints = [
        {"operator": "fn", "requires": list(names), "evaluate": partial(_holds, names, breaks)}
        for _, names, breaks in (*REFUSED, *POINTLESS)
    ]
    while not rows or (count is not None and len(rows) < count):
        covering = [
            dict(row) for row in make(DIMENSIONS, salt=str(draw.random()), constraints=constraints)
        ]
        rows += draw.sample(covering, len(covering))
    return rows if count is None else rows[:count]


def _holds(names: Sequence[str], breaks: Callable[..., bool], row: Row) -> bool:
    return not breaks(*(row[name] for name in names))


@dataclass(frozen=True)
class Place:
    """Where a search is run.

    Attributes:
        folder: working directory of its own.
    """

    folder: Path

    @property
    def root(self) -> Path:
        found = [self.folder, self.folder / "elsewhere"]
        return next((path for path in found if (path / "runs").exists()), self.folder)

    @property
    def searches(self) -> list[Path]:
        """The newest last."""
        return sorted(
            self.root.glob("runs/small-search/*"), key=lambda path: path.stat().st_mtime_ns
        )


def amount(row: Row, *, extended: bool = False) -> str:
    """The budget as typed."""
    trials = TRIALS + extended
    amounts = {
        "trials": f"{trials}-trials",
        "flops": f"{1.3e6 * steps_of(row) * trials:g}flops",
        "seconds": "3s",
    }
    return amounts[row["budget"]]


def command(row: Row, folder: Path) -> list[str]:
    """The command of a row; its files are written."""
    (folder / "small.yaml").write_text(base_of(row) + STUDIES[row["target"]])
    for name, text in SPACES.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "points.yaml").write_text(
        json.dumps([_point(POINT[row["space"]])]) if POINT[row["space"]] else "[]"
    )
    space = "+".join(
        name if name == "auto" else f"./{name}.yaml" for name in row["space"].split("+")
    )
    arguments = [
        "tune",
        "small.yaml",
        "--space",
        space,
        "--local",
        "--jobs",
        "1",
        "--budget",
        amount(row),
    ]
    for name in ("sampler", "pruner", "cost", "root"):
        arguments += [f"--{name}", str(row[name])]
    arguments += [f"{key}={row[name]}" for key, name in KEYS.items()]
    if row["points"] != "none":
        arguments += [
            "--points",
            POINT[row["space"]] if row["points"] == "text" else "./points.yaml",
        ]
    if row["parameters"] == "equal":
        arguments.append("match=parameters")
    if row["overrides"] == "pruner":
        arguments.append(
            "pruner.n_warmup_steps=40" if row["pruner"] == "median" else "pruner.reduction_factor=2"
        )
    elif row["overrides"] != "none":
        arguments.append(row["overrides"])
    return arguments


def _point(text: str) -> dict[str, float]:
    key, _, value = text.partition("=")
    return {key: float(value)}


EXPLAINED = ("evaluations alone take", "too small for one trial")
"""What a search may be refused with because of the machine: it is about measured times."""


def run_row(row: Row, folder: Path) -> list[str]:
    """Run the search of a row, and say what is wrong with it; nothing where all is as told."""
    place = Place(folder)
    arguments = command(row, folder)
    before = place.searches
    ledger = len(openings(place))
    if row["dry_run"]:
        written = sorted(folder.rglob("*"))
        code = main([*arguments, "--dry-run"])
        if sorted(folder.rglob("*")) != written:
            return ["the dry run has written something"]
        if code:
            return ["refused"] if code == 2 else [f"the dry run ended with {code}"]
    shown = ["--json"] if row["as_json"] else []
    code = _conduct(row, arguments, shown, place, len(before))
    made = [path for path in place.searches if path not in before]
    if code == 2 and not made:
        return ["refused"]
    if code or len(made) != 1:
        return [f"ended with {code}, made {len(made)} searches"]
    return [*faults_of(row, made[0], folder), *_opened_once(made[0], openings(place)[ledger:])]


def _conduct(row: Row, arguments: list[str], shown: list[str], place: Place, before: int) -> int:
    """Run a search to its end as its row says. Returns the last exit code."""
    if row["resume"] in ("killed", "killed twice"):
        steps = steps_of(row) * TRIALS * 2
        draw = random.Random(repr(sorted(row.items())))
        cli(arguments, place.folder, fault=f"kill@step:{draw.randrange(3, steps)}", check=None)
        for _ in range(row["resume"] == "killed twice"):
            if len(place.searches) > before:
                fault = f"kill@step:{draw.randrange(1, steps // 2)}"
                cli(
                    ["resume", str(place.searches[-1]), "--local", "--jobs", "1"],
                    place.folder,
                    fault=fault,
                    check=None,
                )
    else:
        code = main([*arguments, *shown])
        if code or row["resume"] == "never":
            return code
    if len(place.searches) == before:
        return 2
    more = ["--budget", amount(row, extended=True)] if row["resume"] == "extended" else []
    return main(["resume", str(place.searches[-1]), "--local", "--jobs", "1", *more, *shown])


def openings(place: Place) -> list[dict[str, Any]]:
    ledger = place.root / "runs" / "test-openings.jsonl"
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def _opened_once(search: Path, ledger: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """TEST is opened by final runs alone, once for each experiment and place."""
    cells = search / "final" / "cells"
    strange = [line["run"] for line in ledger if Path(line["run"]).parent != cells]
    if strange:
        yield f"TEST was opened by {strange[0]}"
    opened = [(line["run"], line["experiment"]) for line in ledger]
    if len(set(opened)) < len(opened):
        yield "TEST was opened twice for one experiment"
    finished = {
        (str(path.parent), (read_result(path.parent) or {})["experiment"])
        for path in cells.glob("*/result.json")
    }
    if not finished <= set(opened):
        yield "a final run is not in the ledger"


def faults_of(row: Row, search: Path, folder: Path) -> Iterator[str]:
    """What the files of a search say that is not what its row asks for."""
    summary = read_json(search / "search.json") or {}
    spaces = {candidate.label: candidate.space for candidate in read_search(search).candidates}
    overrides = ["match=parameters"] if row["parameters"] == "equal" else []
    study = load_study(str(folder / "small.yaml"), overrides)
    rows = {}
    for run in study.runs:
        cell = "-".join(label for key, label in run.labels.items() if key != "seed") or "small"
        rows.setdefault(cell, run)
    if set(rows) != {candidate["label"] for candidate in summary["candidates"]}:
        yield (
            f"candidates {[candidate['label'] for candidate in summary['candidates']]}, the study "
            f"has {list(rows)}"
        )
        return
    for candidate in summary["candidates"]:
        label = candidate["label"]
        trials = sorted((search / "trials" / label).glob("[0-9]*"))
        documents = [read_json(path / "trial.json") or {} for path in trials]
        ran = [
            path
            for path, line in zip(trials, documents, strict=True)
            if line.get("state") != "infeasible"
        ]
        yield from _budget_faults(row, candidate, ran, spaces[label], len(trials))
        for path in ran:
            yield from _trial_faults(row, path, rows[label])
        yield from _winner_faults(row, search, candidate, ran)
    yield from _matched_faults(row, search)
    if main(["verify", str(search)]):
        yield "verify finds something wrong"
    yield from _report_faults(search, summary)


def _budget_faults(
    row: Row, candidate: Mapping[str, Any], ran: Sequence[Path], space: Any, drawn: int
) -> Iterator[str]:
    label = candidate["label"]
    extended = row["resume"] == "extended"
    wanted = TRIALS + extended
    if row["budget"] == "trials":
        size = 1 if not space.dims else space.size()
        whole = wanted if size is None else min(wanted, size)
        if len(ran) != whole and not (size is not None and drawn == size):
            yield f"{label}: {len(ran)} trials, {whole} were asked for"
    results = [result for path in ran for result in results_of(path)]
    flops = sum(result["steps"] * result["flops_per_step"] for result in results)
    allowed = float(amount(row, extended=extended)[:-5]) if row["budget"] == "flops" else math.inf
    if not 0 < flops <= allowed * 1.000001:
        yield f"{label}: used {flops:.4g} FLOPs of {amount(row)}"
    if not math.isclose(flops, candidate["flops"], rel_tol=1e-9):
        yield f"{label}: used {flops:.6g} FLOPs, search.json says {candidate['flops']}"
    if not candidate["over"]:
        yield f"{label}: it is not said why there are no more trials"
    if not ran:
        yield f"{label}: has no trial"


def results_of(trial: Path) -> list[dict[str, Any]]:
    """Results of a trial's runs."""
    runs = sorted(trial.glob("seed-*")) or [trial]
    return [result for run in runs if (result := read_result(run))]


def experiment_of(run: Path) -> dict[str, Any]:
    """A run's settings by dotted key, without its seed and name."""
    path = run / "experiment.yaml"
    data = flatten(parse_yaml(path.read_text(), str(path)).data)
    return {key: value for key, value in data.items() if key not in ("train.seed", "name")}


def _trial_faults(row: Row, path: Path, own: Any) -> Iterator[str]:
    document = read_json(path / "trial.json") or {}
    runs = sorted(path.glob("seed-*")) or [path]
    pruned = any(result["status"] != "finished" for result in results_of(path))
    if row["seeds_per_trial"] == 2 and not pruned and len(runs) != 2:
        yield f"{path}: {len(runs)} runs, 2 seeds were asked for"
    before = flatten(own.experiment.model_dump(mode="json"))
    for run in runs:
        now = experiment_of(run)
        changed = {key for key, value in now.items() if before.get(key) != value}
        if strange := changed - set(document["settings"]) - {"train.log_every"}:
            yield f"{path}: differs from its row in {sorted(strange)}"
        if (run / "checkpoints").exists():
            yield f"{path}: kept its weights"
        if any(result["test"] for result in results_of(path)):
            yield f"{path}: has a test score"
    if row["points"] != "none" and path.name == "00000":
        point = {key: document["point"].get(key) for key in _point(POINT[row["space"]])}
        if point != _point(POINT[row["space"]]):
            yield f"{path}: is not the point that was given: {point}"


def _value_of(trial: Path) -> tuple[float, float]:
    """Mean over the runs of each one's best validation accuracy, and of the loss there; by its
    records alone.
    """
    best = []
    for run in sorted(trial.glob("seed-*")) or [trial]:
        records = [
            record.metrics
            for record in read_records(run)
            if record.kind == "eval" and record.split == "validation"
        ]
        best.append(min((-record["accuracy"], record["loss"]) for record in records))
    return fmean(trial[0] for trial in best), fmean(trial[1] for trial in best)


def _winner_faults(
    row: Row, search: Path, candidate: Mapping[str, Any], ran: Sequence[Path]
) -> Iterator[str]:
    label = candidate["label"]
    wanted = 2 if row["seeds_per_trial"] == 2 else 1
    finished = [
        path
        for path in ran
        if [result["status"] for result in results_of(path)] == ["finished"] * wanted
    ]
    if len(finished) != candidate["trials"]["finished"]:
        yield (
            f"{label}: {len(finished)} trials finished, search.json says "
            f"{candidate['trials']['finished']}"
        )
    if not finished:
        return
    winner = min(finished, key=lambda path: (*_value_of(path), path.name))
    if int(winner.name) != candidate["best"]["number"]:
        yield (
            f"{label}: trial {winner.name} is the best, search.json says "
            f"{candidate['best']['number']}"
        )
    settings = experiment_of((sorted(winner.glob("seed-*")) or [winner])[0])
    cells = [
        f"seed{seed}" if label == "small" else f"{label}-seed{seed}"
        for seed in range(row["final_seeds"])
    ]
    for seed, cell in enumerate(cells):
        run = search / "final" / "cells" / cell
        if not (run / "result.json").exists():
            yield f"{label}: no final run {cell}"
            continue
        if experiment_of(run) != settings:
            yield f"{label}: final run {cell} has another winner's settings"
        if (read_result(run) or {})["seed"] != seed:
            yield f"{label}: final run {cell} has another seed"


def _matched_faults(row: Row, search: Path) -> Iterator[str]:
    """With `trial.match=flops` all finished trials of all candidates use the same, each within 5 %
    of one amount.
    """
    if row["match"] != "flops":
        return
    found = [result for path in search.glob("trials/*/[0-9]*") for result in results_of(path)]
    used = [
        fault["steps"] * fault["flops_per_step"] for fault in found if fault["status"] == "finished"
    ]
    if used and max(used) > min(used) * 1.05 / 0.95 * 1.001:
        yield f"matched trials used {min(used):.4g} to {max(used):.4g} FLOPs"


def _report_faults(search: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Each final row says its candidate's trials, dimensions and FLOPs, and unequal ones are
    marked.
    """
    from subquad.reports import search_document
    from subquad.search.summary import read_summary

    values = search_document(search, read_summary(search)).values["final"]
    candidates = {
        candidate["label"]: candidate for candidate in summary["candidates"] if candidate["best"]
    }
    by_run = {Path(run["name"]).name: row for row in values["rows"] for run in row["runs"]}
    spent = {}
    for label, candidate in candidates.items():
        row = by_run["seed0" if label == "small" else f"{label}-seed0"]
        wanted = (candidate["trials"]["finished"], candidate["dimensions"], candidate["flops"])
        spent[label] = wanted
        if len({Path(run["name"]).name.rpartition("seed")[0] for run in row["runs"]}) > 1:
            continue  # two candidates have won with the same settings
        tuning = row["tuning"]
        if (tuning["trials"], tuning["dimensions"], tuning["flops"]) != wanted:
            yield f"{label}: its row says {tuning['words']}, it had {wanted}"
    for first, second in itertools.combinations(spent.values(), 2):
        if first[0] != second[0] and not any(
            "unequal tuning" in note
            for comparison in values["comparisons"]
            for note in comparison["notes"]
        ):
            apart = {run["dataset"] for run in values["rows"]}
            if values["comparisons"]:
                yield f"unequal budgets are not marked: {first}, {second} ({apart})"
