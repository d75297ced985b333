"""A run's result.json. Its keys are described in docs/reference/run-directory.md."""

from __future__ import annotations

from typing import Any

from subquad.cost import Cost
from subquad.data import DataSpec
from subquad.engine.final import Final
from subquad.engine.plan import Plan
from subquad.engine.progress import Progress
from subquad.engine.ticket import Ticket, dataset_label
from subquad.plugin import TaskPlugin

FORMAT = 1
PROTOCOL_LABELS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened once",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened once",
    "paper": "best test accuracy over epochs (the published convention; the checkpoint is chosen on the test split)",
}

TRIAL_LABEL = "a trial of a search: evaluated on a validation part of TRAIN; test not opened"


def result_of(
    ticket: Ticket, spec: DataSpec, cost: Cost, plan: Plan, progress: Progress, attempt: int, final: Final | None
) -> dict[str, Any]:
    """The result of a finished run; of a trial, which has no final evaluation, `final` is None."""
    return {
        **_identity(ticket),
        "status": "pruned" if progress.pruned else "finished",
        "reason": progress.pruned or None,
        "parameters": cost.parameters,
        "flops_per_step": cost.flops_per_step,
        "bytes_per_step": cost.bytes_per_step,
        **({"uncounted": list(cost.uncounted)} if cost.uncounted else {}),
        "steps": progress.step,
        "epochs": progress.step / plan.steps_per_epoch,
        "seconds": progress.seconds,
        "best": progress.best or None,
        "last": progress.last or None,
        "test": _test(final) if final else None,
        "oracles": final.oracles.to_json() if final else None,
        "attempts": attempt,
        "skipped_steps": progress.skipped,
        "sizes": dict(spec.sizes),
        "notes": [*spec.notes, *(final.notes if final else ())],
        **({"published_keys": {"benchmark": spec.benchmark}} if spec.benchmark else {}),
    }


def _test(final: Final) -> dict[str, Any]:
    return {
        "metrics": dict(final.metrics),
        "samples": final.samples,
        "checkpoint": final.checkpoint,
        "step": final.step,
    }


def failure_of(ticket: Ticket, reason: str) -> dict[str, Any]:
    """The result of a run that stopped itself."""
    return {**_identity(ticket), "status": "failed", "reason": reason, "test": None, "best": None, "last": None}


def _identity(ticket: Ticket) -> dict[str, Any]:
    checked = ticket.checked
    experiment, task = checked.experiment, checked.task.plugin
    assert isinstance(task, TaskPlugin)
    return {
        "format": FORMAT,
        "name": experiment.name,
        "label": ticket.label,
        "axes": ticket.axes,
        "mixer": checked.mixer.found.name,
        "dataset": dataset_label(checked),
        "task": checked.task.found.name,
        "backbone": checked.backbone.found.name,
        "protocol": experiment.protocol,
        "protocol_label": TRIAL_LABEL if ticket.trial else PROTOCOL_LABELS[experiment.protocol],
        "seed": experiment.train.seed,
        "metric": task.metric,
        "mode": task.mode,
        "workers": experiment.resources.workers,
        "experiment": ticket.digest,
        "session": ticket.session,
    }
