"""What is looked at before a folder is made or a cluster started: devices, data, models, and that they fit together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from subquad.data import DataSpec, check_copies
from subquad.drivers.executor import Executor
from subquad.engine.parts import build_dataset, build_model, build_task, make_plan
from subquad.engine.start import start_from
from subquad.errors import ConfigError, DataError, UserError
from subquad.experiment import Run, Study
from subquad.experiment.schema import Resources
from subquad.experiment.settings import path_fields
from subquad.tracking.publisher import check_tracking


def preflight(study: Study, executor: Executor) -> None:
    """Refuse what cannot run on this machine or with the data there are; what takes no time is looked at first.

    Raises:
        UserError: Ray or MLflow is asked for and not installed.
        ConfigError: more CPUs or GPUs are asked than there are, or `tracking.uri` is no store.
        DataError: a data set is not there, cannot be read, or cannot be split as the protocol wants.
        PluginError: a model cannot be built.
    """
    executor.check()
    for run in study.runs:
        with naming(run, study):
            check_room(run.experiment.resources, cpus=executor.reserves)
            check_tracking(run.experiment.tracking, Path.cwd())
    check_paths(study)
    specs: dict[str, DataSpec] = {}
    built: set[str] = set()
    for run in study.runs:
        experiment = run.experiment
        buckets = experiment.train.bucket_batches > 0
        data = f"{experiment.dataset.model_dump_json()} {experiment.protocol} {buckets}"
        model = f"{data} {experiment.task} {experiment.backbone} {experiment.mixer}"
        with naming(run, study):
            if data not in specs:
                specs[data] = _check_data(run)
            if model not in built:
                _check_model(run, specs[data])
                built.add(model)


@contextmanager
def naming(run: Run, study: Study) -> Iterator[None]:
    """What a user did wrong in a run of a study is told with the run's label."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{error}{_of(run, study)}") from error


def _of(run: Run, study: Study) -> str:
    return "" if study.single else f" (run {run.label})"


def check_paths(study: Study) -> None:
    """Refuse data paths that do not exist, of all runs, before the data of any are generated or downloaded.

    Raises:
        DataError: the first such path, its run and the setting to give.
    """
    for run in study.runs:
        config = run.dataset_config
        for field in path_fields(type(config)):
            given = getattr(config, field)
            if given and "://" not in given and not Path(given).exists():
                label = run.axes.get("dataset")
                setting = f"matrix.dataset.{label}.params" if label else "dataset.params"
                raise DataError(
                    f"dataset.params.{field}: {given} does not exist{_of(run, study)}; give {setting}.{field}=FOLDER"
                )


def _check_data(run: Run) -> DataSpec:
    dataset = build_dataset(run)
    make_plan(run.experiment, dataset)
    check_copies(dataset, dataset.prepared_test(), validation=run.experiment.protocol == "honest")
    return dataset.describe()


def _check_model(run: Run, spec: DataSpec) -> None:
    """Build the model once: its mixers now know their longest sequence, and the weights it starts from must fit it."""
    import torch

    with torch.random.fork_rng(devices=[]):
        start_from(build_model(run, spec, build_task(run, spec)), run.experiment)


def check_room(resources: Resources, *, cpus: bool) -> None:
    """Refuse what this machine cannot give; Ray would wait for it for ever.

    Args:
        resources: what is asked.
        cpus: look at CPUs too; without Ray they are shared, not reserved.
    """
    have, wanted = available_cpus(), resources.workers * resources.cpus_per_worker
    if cpus and wanted > have:
        raise ConfigError(
            f"resources.workers x resources.cpus_per_worker: {resources.workers} x "
            f"{resources.cpus_per_worker:g} = {wanted:g} CPUs "
            f"asked, this machine has {have}"
        )
    if resources.gpus_per_worker and resources.workers * resources.gpus_per_worker > (gpus := _gpus()):
        raise ConfigError(
            f"resources.workers x resources.gpus_per_worker: {resources.workers} x "
            f"{resources.gpus_per_worker:g} GPUs asked, "
            f"this machine has {gpus}; resources.gpus_per_worker: 0 trains on the CPU"
        )


def available_cpus() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
