"""The end of a run: the chosen checkpoint meets the test split, once, and result.json is written.

The keys of result.json are described in docs/reference/run-directory.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.torch import save
from torch import Tensor

from subquad.cost import Cost
from subquad.data import Dataset, Split, TestKey
from subquad.data.copies import check_copies
from subquad.engine import checkpoint
from subquad.engine.evaluate import evaluate
from subquad.engine.group import Group
from subquad.engine.inputs import note_test
from subquad.engine.parts import Parts
from subquad.engine.state import Progress
from subquad.engine.tensors import load_model
from subquad.errors import DiskError, TrainingFailed, escaped, in_one_line
from subquad.experiment import Run
from subquad.nn import Decoder
from subquad.plugin import Metric, TaskPlugin
from subquad.record.files import append_line, read_lines
from subquad.record.integrity import write_result
from subquad.record.names import OPENINGS, PREDICTIONS
from subquad.record.storage import put

_FORMAT = 1
_EXAMPLE = 2000
"""Characters of an example that are kept."""

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Seal:
    """The test split of a run's data set, closed until `open` is called: the only place that makes
    a key.

    Attributes:
        dataset: the data set.
        run: who opens it.
        attempt: the run's attempt.
        ledgers: files that record each opening; none on ranks other than the first, which open with
            it.
    """

    dataset: Dataset
    run: Run
    attempt: int
    ledgers: Sequence[Path]

    def open(self, reason: str) -> tuple[Split, tuple[str, ...]]:
        """Record the opening with its reason, then open the split.

        Returns:
            the split, and notes on copies of training samples in it.

        Raises:
            DataError: it is mostly such copies, or cannot be read.
        """
        opening = {
            "dataset": self.run.dataset_label,
            "experiment": self.run.digest,
            "protocol": self.run.experiment.protocol,
            "run": str(self.run.files.kept),
            "attempt": self.attempt,
            "reason": reason,
            "opening": self.openings() + 1,
            "time": time.time(),
        }
        for ledger in self.ledgers:
            append_line(ledger, opening)
        if self.ledgers:
            self.run.files.mirror()
        split = self.dataset.split("test", TestKey(self.run.dataset_label, reason))
        honest = self.run.experiment.protocol == "honest"
        return split, check_copies(self.dataset, split, validation=honest)

    def openings(self) -> int:
        """How often the split was opened so far for this run, or for an earlier one in its
        place.
        """
        name = str(self.run.files.kept)
        counts = [0]
        for ledger in self.ledgers:
            counts.append([line.get("run") for line in read_lines(ledger)].count(name))
        return max(counts)


def _reference_scores(
    goal: TaskPlugin, dataset: Dataset, split: Split
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """What guesses that need no trained model score on an open split; a plain number is a share of
    right answers.

    Returns:
        by metric and the guess's name; and notes: what guesses say of themselves, and what went
        wrong, so that the run keeps its result.
    """
    scores = dict[str, dict[str, float]]()
    notes = list[str]()
    shares = [name for name, metric in goal.reports.items() if metric.answers] or ["accuracy"]
    try:
        for name, given in dict(dataset.reference_scores(split)).items():
            values = given if isinstance(given, Mapping) else {shares[0]: given}
            for metric, value in values.items():
                if metric == "note" and isinstance(value, str):
                    notes.append(f"reference score {name}: {value}")
                elif _is_name(name) and _is_name(metric) and _is_score(goal.shown(metric), value):
                    scores.setdefault(metric, {})[name] = float(value)
                else:
                    notes.append(f"reference score {name!r} left out: {value!r} is no {metric}")
    except Exception as error:  # a plugin's: a row beside the result must not cost the result
        scores = {}
        notes = [f"no reference scores: {type(error).__name__}: {error}"]
    return scores, list(map(_note, notes))


def _note(text: str) -> str:
    """What a plugin says, on one line of 200 characters at most."""
    return escaped(in_one_line(text), 200)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name.strip())


def _is_score(metric: Metric, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
        return False
    if metric.is_fraction:
        return bool(0.0 <= value <= 1.0)
    return bool(-_LARGEST <= value <= _LARGEST)


def _conclude(
    parts: Parts, seal: Seal, progress: Progress, stop_requested: Callable[[], int]
) -> dict[str, Any]:
    """Load the checkpoint the protocol chooses, open the test split, evaluate, keep the
    predictions.

    Raises:
        CheckpointError: its weights are damaged; the test split stays closed.
        TrainingFailed: no evaluation gave a number to choose by; the test split stays closed.
    """
    run = parts.run
    chosen, step = _load_chosen(parts, progress)
    reason = f"final evaluation of the {chosen} checkpoint, step {step}"
    split, copies = parts.group.together(seal.open, reason)
    parts.group.of_first(note_test, run.folder, split)
    metrics, answers = _evaluated(parts, split, stop_requested)
    openings = seal.openings()
    notes = [*getattr(split, "notes", ()), *copies]
    examples = []
    reference = None
    if parts.group.first:
        if answers:
            notes += map(_note, parts.task.remarks(answers))
            for example in parts.task.examples(answers):
                words = {"target": example.target[:_EXAMPLE], "answer": example.answer[:_EXAMPLE]}
                examples.append(words)
        scores, wrong = _reference_scores(run.goal, seal.dataset, split)
        notes += wrong
        if scores:
            reference = {"samples": len(split), "scores": scores}
    if openings > 1 and run.experiment.protocol != "paper":
        notes.append(f"the test split was opened {openings} times for this run, see {OPENINGS}")
    return {
        "openings": openings,
        "protocol_label": run.protocol_label(openings),
        "test": {"metrics": metrics, "samples": len(split), "checkpoint": chosen, "step": step},
        "reference_scores": reference,
        "examples": examples,
        "notes": notes,
    }


def _load_chosen(parts: Parts, progress: Progress) -> tuple[str, int]:
    """Load the weights of the checkpoint the protocol chooses. Returns which it is, and its
    step.
    """
    run = parts.run
    chosen = "last"
    step = progress.step
    if run.experiment.protocol != "fixed":
        if not progress.best:
            raise TrainingFailed(
                f"no evaluation gave a finite {run.goal.metric}: there is no best checkpoint to "
                "test"
            )
        chosen = "best"
        step = progress.best["step"]
    # The last one, too: where an average is kept, the model in memory has the weights that go on
    # training.
    weights = parts.group.together(checkpoint.read_weights, run.files.checkpoints, step, run.digest)
    load_model(parts.bare_model, weights)
    return chosen, step


def _evaluated(
    parts: Parts, split: Split, stop_requested: Callable[[], int]
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics of the test split, and per-sample values, which are kept."""
    if isinstance(parts.bare_model, Decoder):  # it may be asked to write texts
        parts.group.make_whole(parts.bare_model)
    metrics, answers = evaluate(parts, split, per_sample=True, stop_requested=stop_requested)
    if parts.group.first and answers:
        put({parts.run.folder / PREDICTIONS: save(answers)})
    return metrics, answers


def result_of(
    parts: Parts, seal: Seal, cost: Cost, progress: Progress, stop_requested: Callable[[], int]
) -> dict[str, Any]:
    """The result of a run whose training is over, with its final evaluation, which a trial has none
    of.

    Every rank must call it.

    Raises:
        EvaluationStopped: on every rank, where one was asked to stop.
    """
    spec = seal.dataset.describe()
    if parts.run.is_trial:
        final = {"test": None, "reference_scores": None, "examples": [], "notes": []}
    else:
        final = _conclude(parts, seal, progress, stop_requested)
    more = {}
    if cost.uncounted:
        more["uncounted"] = list(cost.uncounted)
    if parts.start:
        more["init"] = parts.start
    if spec.benchmark:
        more["published_keys"] = {"benchmark": spec.benchmark}
    return {
        **_identity(parts.run),
        "status": "pruned" if progress.pruned else "finished",
        "reason": progress.pruned or None,
        "parameters": sum(weight.numel() for weight in parts.parameters),
        "flops_per_step": cost.flops_per_step,
        "bytes_per_step": cost.bytes_per_step,
        "steps": progress.step,
        "epochs": parts.plan.epochs(progress.step),
        "seconds": progress.seconds,
        "best": progress.best or None,
        "last": progress.last or None,
        "attempts": seal.attempt,
        "skipped_steps": progress.skipped,
        "sizes": dict(spec.sizes),
        **final,
        "notes": [*spec.notes, *parts.plan.notes(), *final["notes"]],
        **more,
    }


def fail(run: Run, group: Group, reason: str) -> Literal["failed"]:
    """Record that a run ended without a result; `resume` tries it again."""
    if group.first:
        unknown = dict.fromkeys(("test", "best", "last", "seconds_per_step", "peak_memory_bytes"))
        result = {**_identity(run), "status": "failed", "reason": reason, **unknown}
        write_result(run.folder, result)
        with suppress(DiskError):  # the reason is more than what keeps it from storage
            run.files.mirror()
    return "failed"


def _identity(run: Run) -> dict[str, Any]:
    return {"format": _FORMAT, **run.names, "experiment": run.digest, "launch": run.launch}
