"""What is looked at before a folder is made or a cluster started: devices, data, models, and
that they fit together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from subquad.data import Dataset, DataSpec
from subquad.data.copies import check_copies
from subquad.engine.evaluate import check_bad
from subquad.engine.model import build_model
from subquad.engine.parts import build_dataset, build_task, make_plan
from subquad.engine.start import start_from
from subquad.errors import ConfigError, DataError, UserError
from subquad.experiment import Run, Study
from subquad.experiment.schema import Resources
from subquad.experiment.settings import path_fields
from subquad.preparation.costs import MODEL, settings_of
from subquad.processes import available_cpus
from subquad.record.storage import check_storage, is_remote
from subquad.record.stores import ADDRESSES, address_fault, place_at


@dataclass(frozen=True)
class Room:
    """What there is to train on.

    Attributes:
        machines: CPUs and GPUs of each; CPUs that are shared, not reserved, are infinite.
        where: what the machines are called together.
    """

    machines: tuple[tuple[float, float], ...]
    where: str = "this machine"

    @property
    def cpus(self) -> float:
        return sum(cpus for cpus, _ in self.machines)

    @property
    def gpus(self) -> int:
        return int(sum(gpus for _, gpus in self.machines))

    def check(self, resources: Resources) -> None:
        """Refuse workers that never fit; Ray would wait for them for ever.

        Raises:
            ConfigError: what is asked, and what there is.
        """
        workers = resources.fewest
        cpus = resources.cpus_per_worker
        gpus = resources.gpus_per_worker
        requirements = (
            ("cpu", cpus, self.cpus, ""),
            ("gpu", gpus, self.gpus, "; resources.gpus_per_worker: 0 trains on the CPU"),
        )
        for name, each, have, remedy in requirements:
            if workers * each > have:
                raise ConfigError(
                    f"resources.workers x resources.{name}s_per_worker: {workers} x {each:g} = "
                    f"{workers * each:g} {name.upper()}s asked, {self.where} has {have:g}{remedy}"
                )
        fitting = sum(_fitting(resources, *machine) for machine in self.machines)
        if fitting < workers:
            raise ConfigError(
                f"resources.workers: {workers} asked with {cpus:g} CPUs and {gpus:g} GPUs each, "
                f"on the machines of {self.where} {fitting} fit"
            )


def _fitting(resources: Resources, cpus: float, gpus: float) -> int:
    """Workers that fit on a machine; as many as are asked where CPUs are shared."""
    fitting: list[float] = [resources.most]
    if resources.cpus_per_worker:
        fitting.append(cpus / resources.cpus_per_worker + 1e-6)
    if resources.gpus_per_worker:
        fitting.append(gpus / resources.gpus_per_worker + 1e-6)
    return int(min(fitting))


def this_machine(*, shared: bool = False) -> Room:
    """What this machine has.

    Args:
        shared: CPUs are not reserved for workers.
    """
    return Room(((math.inf if shared else available_cpus(), torch.cuda.device_count()),))


_DECIDE_DATA = {"bucket_batches", "max_bad"}
"""Of training: what decides whether data can be used."""


def one_of_each(study: Study) -> Study:
    """The study with one run of each kind: most of its runs differ in nothing that is looked at."""
    parts = {*MODEL, "protocol", "init", "resources", "tracking"}
    kinds = {settings_of(run, parts, _DECIDE_DATA): run for run in reversed(study.runs)}
    return replace(study, runs=tuple(reversed(kinds.values())))


def storages(study: Study) -> list[str]:
    """Where its runs keep what all machines see."""
    given = dict.fromkeys(run.experiment.resources.storage for run in study.runs)
    return [storage for storage in given if storage is not None]


def check_parts(study: Study, *, writes: bool = True) -> None:
    """Refuse what cannot run with the data there are here; what takes no time is looked at first.

    Args:
        study: see `one_of_each`.
        writes: storage is looked at, too.

    Raises:
        DataError: a data set is not there, cannot be read, or cannot be split as the protocol
            wants.
        PluginError: a model cannot be built.
    """
    check_paths(study)
    for storage in storages(study) if writes else ():
        check_storage(storage)
    specs: dict[str, DataSpec] = {}
    for run in study.runs:
        data = settings_of(run, {"dataset", "protocol"}, _DECIDE_DATA)
        with naming(run, study), torch.random.fork_rng(devices=[]):
            if data not in specs:
                specs[data] = checked_dataset(run).describe()
            spec = specs[data]
            # its mixers now know their longest sequence; the weights it starts from must fit it
            start_from(build_model(run, spec, build_task(run, spec).num_outputs), run.experiment)


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
    """Refuse data paths that do not exist, of all runs, before the data of any are generated or
    downloaded.

    Raises:
        DataError: the first such path, its run and the setting to give.
    """
    for run in study.runs:
        config = run.dataset_config
        for field in path_fields(type(config)):
            given = getattr(config, field)
            if not given:
                continue
            if fault := address_fault(given, ADDRESSES):
                raise DataError(f"dataset.params.{field}: {fault}{_of(run, study)}")
            place = place_at(given)
            if not is_remote(place) and not place.exists():
                label = run.axes.get("dataset")
                setting = f"matrix.dataset.{label}.params" if label else "dataset.params"
                raise DataError(
                    f"dataset.params.{field}: {given} does not exist{_of(run, study)}; "
                    f"give {setting}.{field}=FOLDER"
                )


def checked_dataset(run: Run) -> Dataset:
    """A run's data set, prepared, after all that is looked at before training: what `subquad data
    show` shows.

    Raises:
        DataError: it is not there, cannot be read, cannot be split as the protocol wants, has too
            many samples that cannot be read, or tests on what it trains on.
        ConfigError: its samples cannot be ordered as the experiment wants.
    """
    experiment = run.experiment
    dataset = build_dataset(run)
    make_plan(experiment, dataset)
    honest = experiment.protocol == "honest"
    test = dataset.prepared_test()
    check_copies(dataset, test, validation=honest)
    names = ("train", "validation") if honest else ("trainval",)
    for split in filter(None, (*map(dataset.split, names), test)):
        if bad := split.unreadable().tolist():
            check_bad(split, bad, experiment.train.max_bad, len(split))
    return dataset
