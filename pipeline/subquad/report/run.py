"""One run as the report sees it, from its folder: finished, failed, stopped or without a result yet."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subquad.errors import RunError
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.report.text import DASH, duration, printable
from subquad.runs import ENVIRONMENT, EXPERIMENT, IDENTITY, RESULT, STUDY, flatten, read_json, runs_below

_FORMAT = 1
_NOT_SETTINGS = ("format", "name", "resources", "tracking", "train.seed")
_NO_EFFECT = ("train.micro_batch", "train.loader_workers", "train.log_every", "train.keep_checkpoints")
_PREFIXES = tuple(f"{name}." for name in _NOT_SETTINGS)
_UNFINISHED = "running/unfinished"
_PROTOCOLS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened once",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened once",
    "paper": "best test accuracy over epochs, chosen on the test split",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Evaluation(_Part):
    """Metrics at one step; a metric that could not be computed is None."""

    step: int = 0
    epoch: float = 0.0
    split: str = ""
    metrics: dict[str, float | None] = Field(default_factory=dict)


class _Test(_Part):
    """The final evaluation on the test split."""

    metrics: dict[str, float | None]
    samples: int | None = None
    checkpoint: str = ""
    step: int | None = None


class _ReferenceScores(_Part):
    """Accuracies of guesses that need no trained model, on the test split."""

    samples: int = Field(ge=1)
    accuracy: dict[str, Annotated[float, Field(ge=0, le=1)]]


class _Result(_Part):
    """What the report reads of a run's result.json. Keys and meaning: docs/reference/run-directory.md."""

    status: Literal["finished", "pruned", "failed", "stopped"]
    reason: str | None = None
    axes: dict[str, Any] = Field(default_factory=dict)
    mixer: str
    dataset: str
    protocol: str
    protocol_label: str = ""
    seed: int
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    parameters: int | None = None
    flops_per_step: int | None = None
    steps: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    best: _Evaluation | None = None
    last: _Evaluation | None = None
    test: _Test | None = None
    reference_scores: _ReferenceScores | None = None
    attempts: int | None = None
    skipped_steps: int | None = None
    workers: int | None = None
    notes: tuple[str, ...] = ()
    experiment: str | None = None
    published_keys: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run.

    Attributes:
        folder: its directory.
        name: its directory relative to what was asked for.
        dataset: the data set's name in tables.
        label: the mixer's name in tables; a study may name several variants of one mixer.
        mixer: the plugin's name.
        baseline: label of the mixer that its study holds the others against, "" where it names none.
        settings: what its score may depend on, by dotted key.
        experiment: leaves of experiment.yaml by dotted key.
        environment: environment.json.
        result: result.json, None while there is none.
    """

    folder: Path
    name: str
    dataset: str
    label: str
    mixer: str
    protocol: str
    baseline: str
    seed: int
    settings: Mapping[str, str]
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    result: _Result | None

    @property
    def status(self) -> str:
        return self.result.status if self.result else _UNFINISHED

    @property
    def counts(self) -> bool:
        """It finished and has the test score its metric asks for."""
        return self.score(self.result.metric if self.result else "") is not None

    @property
    def protocol_label(self) -> str:
        known = printable(self.result.protocol_label) if self.result else ""
        return known or _PROTOCOLS.get(self.protocol, self.protocol)

    @property
    def test_samples(self) -> int | None:
        return self.result.test.samples if self.result and self.result.test else None

    def score(self, metric: str) -> float | None:
        """A test metric of a finished run."""
        if self.result is None or self.result.status != "finished" or self.result.test is None:
            return None
        return self.result.test.metrics.get(metric)

    def last_score(self, metric: str) -> float | None:
        """The metric at the last evaluation of a finished run, if that was on the test split."""
        last = self.result.last if self.result and self.result.status == "finished" else None
        return last.metrics.get(metric) if last and last.split == "test" else None

    def validation_score(self, metric: str) -> float | None:
        """The metric of the chosen checkpoint, if it was chosen on a validation split."""
        best = self.result.best if self.result else None
        return best.metrics.get(metric) if best and best.split == "validation" else None

    def provenance(self) -> dict[str, str]:
        """Where its numbers come from: experiment, source revision, versions, plugin distributions; by name."""
        digest = hashlib.sha256((self.folder / EXPERIMENT).read_bytes()).hexdigest()
        facts = {"experiment.yaml sha256": digest, **_run_facts(self.result), **_environment_facts(self.environment)}
        return {name: printable(value) for name, value in facts.items() if value}


def reported_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """The runs of all run and study folders, each once, in the order given.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    root = Path(os.path.commonpath([folder.resolve().parent for folder in folders]))
    runs: dict[Path, ReportedRun] = {}
    for folder in folders:
        found = runs_below(folder)
        if not found:
            raise RunError(f"{folder}: a study ({STUDY}) without runs so far")
        for run in found:
            runs.setdefault(run.resolve(), _read(run, root))
    return _named_like_siblings(list(runs.values()))


def _read(run: Path, root: Path) -> ReportedRun:
    experiment = _experiment(run)
    leaves = flatten(experiment)
    result = _result(run)
    axes = result.axes if result else _axes(run)
    mixer = result.mixer if result else experiment["mixer"]["name"].rpartition(":")[2]
    train, study = experiment.get("train") or {}, run.parent.parent / STUDY
    return ReportedRun(
        folder=run,
        name=printable(run.resolve().relative_to(root).as_posix()),
        dataset=printable(result.dataset if result else _component(experiment["dataset"])),
        label=printable(str(axes["mixer"]) if isinstance(axes.get("mixer"), str) else mixer),
        mixer=printable(mixer),
        protocol=printable(result.protocol if result else str(experiment.get("protocol", "honest"))),
        baseline=_baseline(study, study.stat().st_mtime_ns) if study.exists() else "",
        seed=result.seed if result else int(train.get("seed", 0)),
        settings=_settings(run, leaves, axes),
        experiment=leaves,
        environment=read_json(run / ENVIRONMENT) or {},
        result=result,
    )


@lru_cache
def _baseline(study: Path, changed: int) -> str:
    """What a study.yaml that was `changed` then names, "" where there is none."""
    data = parse_yaml(read_text(study, str(study)), str(study)).data
    return printable(str(data.get("baseline") or "")) if isinstance(data, dict) else ""


def _axes(run: Path) -> Mapping[str, Any]:
    """Coordinates in its study of a run without a result."""
    known = (read_json(run / IDENTITY) or {}).get("axes")
    return known if isinstance(known, Mapping) else {}


def _experiment(run: Path) -> dict[str, Any]:
    path = run / EXPERIMENT
    data = parse_yaml(read_text(path, str(path)), str(path)).data
    for key in ("dataset", "mixer"):
        part = data.get(key) if isinstance(data, dict) else None
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            raise RunError(f"{path}: {key}.name: missing")
    return data


def _result(run: Path) -> _Result | None:
    """A run's result, None while there is none.

    Raises:
        RunError: the file is of another format, or not what this version writes.
    """
    path = run / RESULT
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: not readable as JSON ({type(error).__name__})") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != _FORMAT:
        raise RunError(f"{path}: result format {found!r}, this subquad reads format {_FORMAT}")
    try:
        return _Result.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{path}: {where}: {first['msg'].lower()}") from error


def _settings(run: Path, leaves: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, str]:
    """Settings a score may depend on, as text by dotted key; where it runs only if the study varies it.

    Where the mixer was given as a file its hash is a setting: another text is another mixer.

    Args:
        run: its folder.
        leaves: of experiment.yaml.
        axes: the run's coordinates in its study; a choice of several settings is a mapping.
    """
    swept = set(axes).union(*(value for value in axes.values() if isinstance(value, Mapping)))
    found = {
        key: _text(value)
        for key, value in leaves.items()
        if key != "train.seed" and (key in swept or not _ignored(key))
    }
    source = next(iter(sorted((run / "source").glob("*"))), None)
    return found if source is None else {**found, "mixer.source": source.name.partition("-")[0]}


def _ignored(key: str) -> bool:
    return key in _NOT_SETTINGS or key in _NO_EFFECT or key.startswith(_PREFIXES)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _component(part: Mapping[str, Any]) -> str:
    """A data set's name before its run has said what to call it."""
    chosen = part.get("params") or {}
    return " ".join([str(part["name"]), *(f"{key}={value}" for key, value in sorted(chosen.items()))])


def _named_like_siblings(runs: list[ReportedRun]) -> list[ReportedRun]:
    """A run without a result takes its names in the tables from a run of the same settings, or of the same data set."""
    known = {_key(run): run for run in runs if run.result}
    datasets = {_key(run, "dataset."): run.dataset for run in runs if run.result}
    named = []
    for run in runs:
        if run.result is None:
            twin = known.get(_key(run))
            dataset = datasets.get(_key(run, "dataset."), run.dataset)
            run = replace(run, dataset=dataset, label=twin.label if twin else run.label)
        named.append(run)
    return named


def _key(run: ReportedRun, prefix: str = "") -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in run.settings.items() if item[0].startswith(prefix)))


def _run_facts(result: _Result | None) -> dict[str, str]:
    if result is None:
        return {}
    return {
        "experiment hash": result.experiment or "",
        "reason": result.reason or "",
        "steps": f"{result.steps} in {duration(result.seconds)}" if result.steps is not None else "",
        "attempts": str(result.attempts or ""),
        "skipped steps": str(result.skipped_steps or ""),
        "workers": str(result.workers or ""),
        "tested": f"{result.test.checkpoint} checkpoint, {result.test.samples} samples" if result.test else "",
    }


def _environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    git = environment.get("git") or {}
    commit = str(git.get("commit") or DASH)
    return {
        "git commit": f"{commit} with uncommitted changes" if git.get("dirty") else commit,
        "python": str(environment.get("python") or ""),
        "platform": str(environment.get("platform") or ""),
        "GPUs": ", ".join(map(str, environment.get("gpus") or ())),
        "packages": ", ".join(f"{name} {found}" for name, found in sorted((environment.get("packages") or {}).items())),
        "plugins": "; ".join(_plugin(one) for one in environment.get("plugins") or ()),
    }


def _plugin(facts: Mapping[str, Any]) -> str:
    """`mixer running-mean from acme-mixers 1.2 (sha256 0f3c52d1a9e4)`."""
    origin = f"{facts.get('distribution') or 'a file'} {facts.get('version') or ''}".strip()
    marks = ["editable"] if facts.get("editable") else []
    marks += [f"sha256 {str(facts['sha256'])[:12]}"] if facts.get("sha256") else []
    return f"{facts.get('kind')} {facts.get('name')} from {origin}" + (f" ({', '.join(marks)})" if marks else "")
