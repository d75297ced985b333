"""A run's result.json. Its keys are described in docs/reference/run-directory.md."""

from __future__ import annotations

from typing import Any

from subquad.cost import Cost
from subquad.data import DataSpec
from subquad.engine.final import Final
from subquad.engine.parts import Parts
from subquad.engine.progress import Progress
from subquad.experiment import Run

FORMAT = 1
PROTOCOL_LABELS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened once",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened once",
    "paper": "best test accuracy over epochs (the published convention; the checkpoint is chosen on the test split)",
}

TRIAL_LABEL = "a trial of a search: evaluated on a validation part of TRAIN; test not opened"


def result_of(
    parts: Parts, spec: DataSpec, cost: Cost, progress: Progress, attempt: int, final: Final | None
) -> dict[str, Any]:
    """The result of a finished run; of a trial, which has no final evaluation, `final` is None."""
    return {
        **_identity(parts.run),
        "status": "pruned" if progress.pruned else "finished",
        "reason": progress.pruned or None,
        "parameters": cost.parameters,
        "flops_per_step": cost.flops_per_step,
        "bytes_per_step": cost.bytes_per_step,
        **({"uncounted": list(cost.uncounted)} if cost.uncounted else {}),
        "steps": progress.step,
        "epochs": parts.plan.epochs(progress.step),
        "seconds": progress.seconds,
        "best": progress.best or None,
        "last": progress.last or None,
        "test": _test(final) if final else None,
        "reference_scores": final.references.to_json() if final else None,
        "attempts": attempt,
        "skipped_steps": progress.skipped,
        "sizes": dict(spec.sizes),
        "notes": [*spec.notes, *(final.notes if final else ())],
        **({"init": parts.start} if parts.start else {}),
        **({"published_keys": {"benchmark": spec.benchmark}} if spec.benchmark else {}),
    }


def _test(final: Final) -> dict[str, Any]:
    return {
        "metrics": dict(final.metrics),
        "samples": final.samples,
        "checkpoint": final.checkpoint,
        "step": final.step,
    }


def failure_of(run: Run, reason: str) -> dict[str, Any]:
    """The result of a run that stopped itself."""
    unknown = dict.fromkeys(("test", "best", "last", "seconds_per_step", "peak_memory_bytes"))
    return {**_identity(run), "status": "failed", "reason": reason, **unknown}


def _identity(run: Run) -> dict[str, Any]:
    experiment = run.experiment
    return {
        "format": FORMAT,
        "name": experiment.name,
        "label": run.label,
        "axes": run.axes,
        "mixer": run.mixer.found.name,
        "dataset": run.dataset_label,
        "task": run.task.found.name,
        "backbone": run.backbone.found.name,
        "protocol": experiment.protocol,
        "protocol_label": TRIAL_LABEL if run.is_trial else PROTOCOL_LABELS[experiment.protocol],
        "seed": experiment.train.seed,
        "metric": run.goal.metric,
        "mode": run.goal.mode,
        "workers": experiment.resources.workers,
        "experiment": run.digest,
        "launch": run.launch,
    }
