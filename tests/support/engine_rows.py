"""Settings of the engine that a guard combines: what each may be, and which pairs subquad refuses.

A dimension has named choices. A choice is a set of settings by dotted key; the first one changes
nothing. What two choices cannot be together is asked of subquad itself, so no rule stands here a
second time.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from covertable.main import Controller
from odd import odd_mixer
from pictures import write_folder

from subquad.engine.parts import build_dataset, make_plan, training_cost
from subquad.errors import UserError
from subquad.experiment import Run
from subquad.experiment.components import parse
from subquad.experiment.run import checked_run
from subquad.registry import find_plugins, resolve

Settings = Mapping[str, Any]
Row = Mapping[str, str]
"""The choice of each dimension, by name."""


def _choices(key: str, *values: Any) -> dict[str, Settings]:
    """Choices of one setting; the first value is its default."""
    return {str(value): {key: value} for value in values}


RANKS: dict[str, Settings] = {
    "1": {},
    "2 ddp": {"resources.workers": 2},
    "3 ddp": {"resources.workers": 3},
    "2 fsdp2": {"resources.workers": 2, "resources.strategy": "fsdp2"},
    "3 fsdp2": {"resources.workers": 3, "resources.strategy": "fsdp2"},
}
KILLS = ("after an evaluation", "after a plain save", "before the first save", "twice in a row")

DIMENSIONS: dict[str, dict[str, Settings]] = {
    "ranks": RANKS,
    "going on": {name: {} for name in ("same", *RANKS)},
    "kill": {name: {} for name in KILLS},
    "protocol": _choices("protocol", "honest", "fixed", "paper"),
    "length": {"epochs": {"train.epochs": 4}, "steps": {"train.epochs": None, "train.steps": 14}},
    "evaluations": {
        "epochs": {},
        "steps": {"train.eval_every_epochs": None, "train.eval_every_steps": 5},
        "end": {"train.eval_every_epochs": None},
    },
    "batch": _choices("train.batch_size", 12, 7),
    "micro": _choices("train.micro_batch", None, 2),
    "evaluation batch": _choices("train.eval_batch_size", None, 5),
    "buckets": _choices("train.bucket_batches", 0, 2),
    "optimizer": _choices("train.optimizer", "adamw", "adam", "radam", "sgd"),
    "momentum": _choices("train.beta1", 0.9, 0.0),
    "second moment": {"default": {}, "other": {"train.beta2": 0.95, "train.eps": 1e-6}},
    "decay": _choices("train.weight_decay", 0.0, 0.01),
    "schedule": {
        "constant": {},
        "linear": {"train.schedule": "linear"},
        "cosine": {"train.schedule": "cosine", "train.min_lr_ratio": 0.1},
        "one-cycle": {"train.schedule": "one-cycle"},
    },
    "warm-up": _choices("train.warmup_steps", 0, 3),
    "clip": _choices("train.clip_norm", None, 0.5),
    "average": _choices("train.ema_decay", None, 0.8),
    "precision": _choices("train.precision", "fp32", "fp64", "bf16", "fp16"),
    "compile": _choices("train.compile", False, True),
    "recompute": _choices("train.activation_checkpointing", False, True),
    "kernels": _choices("train.kernels", {}, "reference"),
    "patience": _choices("train.patience", None, 1),
    "plain saves": _choices("train.checkpoint_every_steps", None, 4),
    "kept": _choices("train.keep_checkpoints", 2, 1, 50),
    "logged": _choices("train.log_every", 10, 1),
    "loaders": _choices("train.loader_workers", 0, 1),
    "dropout": _choices("backbone.params.dropout", 0.0, 0.1),
    "init": {"none": {}, "file": {"init": {"from": "weights.safetensors"}}},
    "layers": {
        "alike": {},
        "identity": {"mixers": [{"name": "identity", "layers": [1]}]},
        "linear": {"mixers": [{"name": "linear", "layers": [0]}]},
    },
}
"""Without `model` and `mixer`, which need data and a seed."""

REASONS = {
    "train.lr": "a number that only scales updates",
    "train.seed": "each row has its own",
    "train.tf32": "refused on the CPU",
    "train.max_skipped_steps": "only counts skipped steps; test_faults.py",
    "train.max_bad": "only where samples cannot be read; test_exactness.py, test_shards.py",
    "resources.cpus_per_worker": "other threads change the last bits; test_conditions.py",
    "resources.gpus_per_worker": "there is no GPU",
    "resources.max_failures": "counts failures, and the guard starts ranks itself",
    "resources.hang_timeout_s": "of a rank that hangs; a row has a limit",
    "resources.wait_s": "of a cluster that grows",
    "resources.storage": "where checkpoints are; test_storage.py",
}
"""Settings that are no dimension, and why."""

DEAR = ("compile", "loaders")
"""Their second choice costs seconds in each process, so it stands in as few rows as the pairs
need.
"""

_STRUCTURE = {"model", "mixer", "layers", "buckets"}
"""What two choices make is known only when the model is built."""


def settings_of(dimensions: Mapping[str, Mapping[str, Settings]]) -> set[str]:
    """Dotted keys of all settings that some choice sets."""
    return {key for choices in dimensions.values() for choice in choices.values() for key in choice}


def mixers_of(folder: Path, seed: int, count: int) -> dict[str, Settings]:
    """Mixers of the guard: those that do something of their own, and `count` others, drawn."""
    chosen: dict[str, Any] = {
        "softmax": {"name": "softmax"},
        "agf": {"name": "agf", "params": {"order": 3, "ortho_weight": 0.01}},  # an extra loss
        "luna": _fitting("luna"),  # a carry
        "reformer": {"name": "reformer"},  # random rotations
        "cur": _fitting("cur"),  # picks tokens
        "odd": {"name": odd_mixer(folder)},
    }
    others = sorted({found.name for found in find_plugins("mixer")} - chosen.keys())
    drawn = random.Random(seed).sample(others, count)
    return {name: {"mixer": component} for name, component in chosen.items()} | {
        name: {"mixer": _fitting(name)} for name in drawn
    }


def _fitting(name: str) -> dict[str, Any]:
    """A mixer that picks no more tokens than the shortest sequences have."""
    known = resolve("mixer", name).plugin.config.model_fields
    return {
        "name": name,
        "params": {key: 4 for key in ("rank", "num_indices", "num_landmarks") if key in known},
    }


def models_of(folder: Path) -> dict[str, Settings]:
    """A backbone, a task and small data for each kind of target."""
    rng = np.random.default_rng(0)
    rows = ["id,x,y,speed,fast,odd"]
    for number in range(60):
        speed = rng.uniform(0.2, 1.5)
        for value in np.sin(speed * np.arange(rng.integers(4, 12))):
            rows.append(
                f"w{number},{value:.4f},{value**2:.4f},{speed:.4f},{int(speed > 0.8)},{number % 2}"
            )
    (folder / "walks.csv").write_text("\n".join(rows) + "\n")
    for number, (part, count) in enumerate({"train": 20, "test": 6}.items()):
        write_folder(folder / "pictures" / part, {"cat": count, "dog": count}, number)
    (folder / "articles").mkdir()
    for part, count in {"train": 36, "val": 6, "test": 6}.items():
        lines = []
        for number in range(count):
            words = rng.integers(0, 99, rng.integers(3, 7)).astype(str)
            line = {
                "article_text": [" ".join(words)],
                "abstract_text": [" ".join(["saw", *words[: number % 3]])],
            }
            lines.append(json.dumps(line) + "\n")
        (folder / "articles" / f"{part}.jsonl").write_text("".join(lines))
    table = {
        "path": str(folder / "walks.csv"),
        "channels": ["x", "y"],
        "test_fraction": 0.2,
        "split_seed": 1,
    }
    controls = {"train_size": 36, "validation_size": 10, "test_size": 12}
    size = {"num_layers": 2, "dim": 16, "num_heads": 2, "ffn_dim": 32}
    encoder = {"name": "encoder", "params": size}
    pairs = {"num_pairs": 3, "num_keys": 6, "num_values": 5, **controls}
    articles = {"path": str(folder / "articles"), "max_source": 24, "max_target": 12}
    pictures = {"path": str(folder / "pictures"), "size": 16, "mixup": 0.8}
    vit = {"model": "deit_tiny_patch16_224", "patch_size": 8, "depth": 2, "dim": 16, "num_heads": 2}
    walks = {"labels": ["fast"], **table}
    speeds = {"target": "values", "labels": ["speed"], **table}
    several = {"target": "multilabel", "labels": ["fast", "odd"], **table}
    parts: dict[str, tuple[str, Mapping[str, Any], Any, Any]] = {
        "series": ("table", walks, encoder, "classification"),
        "values": ("table", speeds, encoder, {"name": "regression", "params": {"loss": "huber"}}),
        "labels": ("table", several, encoder, "multilabel"),
        "tokens": (
            "recall",
            pairs,
            {"name": "encoder", "params": {**size, "head": "last"}},
            "classification",
        ),
        "places": (
            "mqar",
            {"length": 12, "num_pairs": 2, **controls},
            {"name": "encoder", "params": {**size, "head": "each"}},
            "classification",
        ),
        "pair": (
            "lra-retrieval",
            {"max_len": 16, **controls},
            {"name": "dual-encoder", "params": size},
            "classification",
        ),
        "text": (
            "text-lm",
            {"context": 16, "stride": 12, "train_size": 1, "validation_size": 1, "test_size": 1},
            {"name": "decoder", "params": size},
            {"name": "language-modeling", "params": {"max_new_tokens": 4}},
        ),
        "summary": (
            "pubmed-summarization",
            articles,
            {"name": "encoder-decoder", "params": {**size, "num_layers": 2}},
            {"name": "summarization", "params": {"beam_width": 2, "max_new_tokens": 6}},
        ),
        "picture": (
            "image-folder",
            pictures,
            {"name": "timm-vit", "params": vit},
            "classification",
        ),
    }
    return {
        name: {
            "dataset": {"name": dataset, "params": dict(params)},
            "backbone": backbone,
            "task": {"name": task} if isinstance(task, str) else task,
        }
        for name, (dataset, params, backbone, task) in parts.items()
    }


@dataclass(frozen=True)
class Space:
    """Every dimension with its choices.

    Attributes:
        dimensions: settings by dimension and choice.
        folder: of data, and of weights to start from.
        forbidden: pairs of (dimension, choice) that subquad refuses, with what it says.
    """

    dimensions: Mapping[str, Mapping[str, Settings]]
    folder: Path
    forbidden: Mapping[frozenset[tuple[str, str]], str]

    @staticmethod
    def quick(folder: Path, seed: int) -> Space:
        """All dimensions without what costs seconds in each process, and without asking for
        forbidden pairs.
        """
        dimensions = {"model": models_of(folder), "mixer": mixers_of(folder, seed, 2), **DIMENSIONS}
        for name in DEAR:
            dimensions[name] = dict(list(dimensions[name].items())[:1])
        return Space(dimensions, folder, {})

    @staticmethod
    def of(folder: Path, seed: int, mixers: int) -> Space:
        """All dimensions, with so many drawn mixers, and the pairs that cannot be."""
        models, chosen = models_of(folder), mixers_of(folder, seed, mixers)
        open_space = Space({"model": models, "mixer": chosen, **DIMENSIONS}, folder, {})
        return Space(open_space.dimensions, folder, dict(open_space._refused()))

    def experiment(self, row: Row, seed: int = 0) -> dict[str, Any]:
        """An experiment as plain values. A dimension that the row does not say has its first
        choice.
        """
        data: dict[str, Any] = {
            "name": "guard",
            "train": {"seed": seed, "lr": 0.01, "batch_size": 12},
            "tracking": {"uri": "off"},
        }
        for dimension, choices in self.dimensions.items():
            for key, value in choices[row.get(dimension, next(iter(choices)))].items():
                _put(data, key, value)
        if data["backbone"]["name"] == "timm-vit":
            data["backbone"]["params"].pop("dropout", None)  # it has drop_path instead
        if "init" in data:
            data["init"] = {"from": str(self.folder / "weights.safetensors")}
        return data

    def _refused(self) -> Iterator[tuple[frozenset[tuple[str, str]], str]]:
        named = [
            (dimension, name) for dimension, choices in self.dimensions.items() for name in choices
        ]
        for combination, other in combinations(named, 2):
            if combination[0] != other[0] and (said := self._refusal([combination, other])):
                yield frozenset([combination, other]), said

    def _refusal(self, pair: Sequence[tuple[str, str]]) -> str:
        row = dict(pair)
        if said := _harness_refusal(row):
            return said
        firsts = [name == next(iter(self.dimensions[dimension])) for dimension, name in pair]
        if any(firsts) and not _STRUCTURE & row.keys():
            return ""  # a default refuses nothing that stands alone
        try:
            if row.get("going on", "same") != "same":
                checked_run(parse(self.experiment({**row, "ranks": row["going on"]})))
            run = checked_run(parse(self.experiment(row)))
            if row.keys() <= _STRUCTURE or len(row) == len(self.dimensions):
                _build(run)
        except UserError as error:
            return str(error)
        return ""

    def drawn(self, seed: int, count: int) -> list[dict[str, str]]:
        """Rows that subquad takes, drawn one by one; they need not have every pair."""
        generator, rows = random.Random(seed), list[dict[str, str]]()
        while len(rows) < count:
            row = {
                dimension: generator.choice(list(choices))
                for dimension, choices in self.dimensions.items()
            }
            if not self._refusal(list(row.items())):
                rows.append(row)
        return rows

    def rows(self, seed: int) -> tuple[list[dict[str, str]], dict[str, int]]:
        """Rows that have every pair of choices that can be, and how many pairs there were, could
        not be, are had.
        """
        factors = {dimension: list(choices) for dimension, choices in self.dimensions.items()}
        by_dimensions: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for pair in self.forbidden:
            (first, name), (second, value) = sorted(pair)
            by_dimensions.setdefault((first, second), set()).add((name, value))
        constraints = [
            {
                "operator": "fn",
                "requires": list(keys),
                "evaluate": lambda row, keys=keys, wrong=wrong: (
                    (row[keys[0]], row[keys[1]]) not in wrong
                ),
            }
            for keys, wrong in by_dimensions.items()
        ]
        controller = Controller(factors, salt=str(seed), constraints=constraints)
        rows = [dict(row) for row in controller.make()]
        generator = random.Random(seed)
        self._filled(rows, generator)
        generator.shuffle(rows)
        return rows, controller.stats

    def _filled(self, rows: list[dict[str, str]], generator: random.Random) -> None:
        """Change what no pair needs: a dear choice to the other one, and a first choice to any."""
        counts = Counter(frozenset(pair) for row in rows for pair in combinations(row.items(), 2))
        for row, dimension in product(rows, self.dimensions):
            choices = list(self.dimensions[dimension])
            others = [item for item in row.items() if item[0] != dimension]
            held = [frozenset([(dimension, row[dimension]), item]) for item in others]
            if any(counts[pair] == 1 for pair in held):
                continue
            if dimension in DEAR:
                chosen = choices[0]
            elif row[dimension] == choices[0]:
                chosen = generator.choice(choices)
            else:
                continue
            wanted = [frozenset([(dimension, chosen), item]) for item in others]
            if not any(pair in self.forbidden for pair in wanted):
                counts.subtract(held)
                counts.update(wanted)
                row[dimension] = chosen

    def uncovered(self, rows: Sequence[Row]) -> set[frozenset[tuple[str, str]]]:
        """Pairs that can be, and stand in no row."""
        had = {frozenset(pair) for row in rows for pair in combinations(row.items(), 2)}
        named = [
            (dimension, name) for dimension, choices in self.dimensions.items() for name in choices
        ]
        pairs = {
            frozenset([combination, other])
            for combination, other in combinations(named, 2)
            if combination[0] != other[0]
        }
        return pairs - had - self.forbidden.keys()


def _put(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
    data[last] = json.loads(json.dumps(value))


def _harness_refusal(row: Row) -> str:
    """What the guard itself cannot do: kill after a save that there is none of."""
    if row.get("kill") == "after an evaluation" and row.get("evaluations") == "end":
        return "there is no evaluation to be killed after"
    if row.get("kill") == "after a plain save" and row.get("plain saves") == "None":
        return "there is no plain save to be killed after"
    if row.get("kill") == "after an evaluation" and row.get("protocol") == "fixed":
        return "a fixed number of epochs has no evaluations"
    return ""


def _build(run: Run) -> None:
    dataset = build_dataset(run)
    make_plan(run.experiment, dataset)
    training_cost(run, dataset.describe())
