"""A Ray cluster that somebody else started and this machine is part of: to connect to it, and to look at its machines.

Room, data and plugins are asked of the machines that train. The driver's own needs no GPU and no data.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import click

import subquad.errors
from subquad.drivers.executor import Made
from subquad.drivers.preflight import Room, check_parts, check_paths
from subquad.drivers.signals import Signum, listen_again
from subquad.engine.loop import Judge
from subquad.errors import ConfigError, TrainingFailed, UserError, plain
from subquad.experiment import Study
from subquad.experiment.schema import Resources
from subquad.ray.cluster import SETTINGS, forget_token, in_thread, job_config
from subquad.ray.executor import RayExecutor
from subquad.ray.files import PROTOCOL, ask_judge, head_here

_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 60.0
_ROOM_SECONDS = 5.0
_LOST_SECONDS = 180.0
"""That a run waits for machines that were lost; more with `resources.wait_s`."""
_LEAST_FREE = 1e9
_MOST_SKEW = 60.0
_MUST_AGREE = ("subquad", "torch", "ray")


def attach(address: str) -> None:
    """Connect this process to a cluster, once.

    Args:
        address: "auto" for the one that this machine is part of, or HOST:PORT of its head.

    Raises:
        UserError: it cannot be reached, or does not accept the token.
    """
    import ray

    if ray.is_initialized():
        return
    place = _place_of(address)
    known = (os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH"))
    if any(known) or Path("~/.ray/auth_token").expanduser().exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    forget_token()
    settings = {name: value for name, value in SETTINGS.items() if name != "RAY_AUTH_MODE"}
    os.environ.update(settings)
    # Each machine says itself where its data are.
    ours = {name: one for name, one in os.environ.items() if name.startswith("SUBQUAD_") and name != "SUBQUAD_DATA"}

    def connect() -> None:
        with _quiet():
            ray.init(
                address=place,
                job_config=job_config(),
                runtime_env={"env_vars": {**settings, **ours, "RAY_ADDRESS": place}},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )

    worker: Any = import_module("ray._private.worker")
    worker.print_to_stdstream = _tell  # a lost machine would print the state of all it did
    outcome = in_thread(connect)
    listen_again()
    if error := outcome.get("raised"):
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"--address {address}: the cluster at {place} did not let this process in: {reason}. Its token belongs "
            "into RAY_AUTH_TOKEN, or into the file that RAY_AUTH_TOKEN_PATH names; this machine must be part of it"
        ) from error


def _tell(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    """Of what the cluster reports, tell which machines are lost."""
    for name in re.findall(r"node name: (\S+) has been marked dead", " ".join(data["lines"])):
        said = f"machine {name} was lost; training goes on from the newest checkpoint where there is room"
        click.echo(plain(said), err=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what Ray's C++ part prints for each attempt to connect."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _place_of(address: str) -> str:
    """HOST:PORT of a cluster's head, which answers.

    Raises:
        UserError: there is none.
    """
    if "://" in address:
        raise UserError(
            f"--address {address}: give auto or HOST:PORT on a machine of the cluster; from outside use subquad submit"
        )
    services: Any = import_module("ray._private.services")
    try:
        place = services.canonicalize_bootstrap_address_or_die(address)
        host, _, port = place.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers there: {' '.join(str(error).split())}") from error
    return place


def room_there(resources: Resources, signum: Signum = lambda: 0) -> Room:
    """What the cluster's machines have; waited for, where that is not enough for some workers and it may grow."""
    from ray.autoscaler.sdk import request_resources

    until, asked = time.monotonic() + resources.wait_s, False
    each = {"CPU": resources.cpus_per_worker, "GPU": resources.gpus_per_worker}
    while (reason := _lacking(room := _room(), resources)) and time.monotonic() < until and not signum():
        if not asked:
            click.echo(plain(f"{reason}; waits for room, for {resources.wait_s:g} s at most"), err=True)
            request_resources(bundles=[{name: one for name, one in each.items() if one}] * resources.fewest)
        asked = True
        time.sleep(_ROOM_SECONDS)
    if asked:
        request_resources(bundles=[])  # else the cluster would keep its machines for ever
    return room


def _room() -> Room:
    return Room(tuple((cpus, gpus) for _, cpus, gpus in _machines()), "the cluster")


def _lacking(room: Room, resources: Resources) -> str:
    """Why workers do not fit, "" where they do."""
    try:
        room.check(resources)
        return ""
    except ConfigError as error:
        return str(error)


def _machines() -> list[tuple[str, float, float]]:
    """Id, CPUs and GPUs of each machine that is alive."""
    import ray

    alive = [(one["NodeID"], one["Resources"]) for one in ray.nodes() if one["Alive"]]
    return [(node, float(has.get("CPU", 0)), float(has.get("GPU", 0))) for node, has in alive]


def look_there(study: Study) -> None:
    """Look at every machine that may train: versions, plugins, data, disk and clock; then at data and models.

    Raises:
        UserError: what is wrong, and on which machine.
    """
    nodes, plain = _training_nodes(study), [run.plain() for run in study.runs]
    for found in _on_each(_probe(), nodes, plain, timeout=_PROBE_SECONDS).values():
        _compare(found)
    _on_each(_looked_at, nodes, study, timeout=None)


def _training_nodes(study: Study) -> list[str]:
    scales = [run.experiment.resources for run in study.runs]
    cpus, gpus = (min(getattr(one, f"{name}_per_worker") for one in scales) for name in ("cpus", "gpus"))
    return [node for node, has_cpus, has_gpus in _machines() if has_cpus >= cpus and has_gpus >= gpus]


def _on_each(
    function: Callable[..., Mapping[str, Any]], nodes: list[str], given: Any, timeout: float | None
) -> dict[str, Mapping[str, Any]]:
    """What a function returns on each node.

    Raises:
        UserError: what it said was wrong there, or that it could not run.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
    strategies = {node: NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes}
    asked = {node: task.options(scheduling_strategy=one).remote(given) for node, one in strategies.items()}
    answers: dict[str, Mapping[str, Any]] = {}
    for node, answer in asked.items():
        name = next(one["NodeManagerHostname"] for one in ray.nodes() if one["NodeID"] == node)
        try:
            found: Any = ray.get(answer, timeout=timeout)
        except Exception as error:  # of Ray: the machine is gone, or too slow
            said = str(error).strip().splitlines()
            raise UserError(f"machine {name}: {type(error).__name__}: {said[-1] if said else ''}") from error
        if found.get("error"):
            raise getattr(subquad.errors, found["kind"], UserError)(f"machine {name}: {found['error']}")
        answers[node] = {**found, "name": name}
    return answers


def _probe() -> Callable[[Any], dict[str, Any]]:
    """A function that travels by its value, so that it also runs where subquad is not installed."""
    packages = _MUST_AGREE

    def probe(plain: Any) -> dict[str, Any]:
        import shutil
        import tempfile
        import time
        from importlib.metadata import PackageNotFoundError, version

        versions: dict[str, str] = {}
        for name in packages:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                return {"error": f"{name} is not installed there", "kind": "PluginError"}
        try:
            from subquad.experiment import Run

            for one in plain:
                Run.rebuild(one)
        except Exception as error:
            return {"error": str(error), "kind": type(error).__name__}
        free = shutil.disk_usage(tempfile.gettempdir()).free
        return {"versions": versions, "free": free, "time": time.time()}

    return probe


def _compare(found: Mapping[str, Any]) -> None:
    """Refuse a machine with other versions than the driver's; tell of a full disk or a wrong clock."""
    name, versions = found["name"], found["versions"]
    if other := [one for one in _MUST_AGREE if versions[one] != _version(one)]:
        pairs = ", ".join(f"{one} {versions[one]}, the driver has {_version(one) or 'none'}" for one in other)
        raise UserError(f"machine {name}: other versions than the driver's: {pairs}")
    if found["free"] < _LEAST_FREE:
        click.echo(plain(f"machine {name}: only {found['free'] / 1e6:,.0f} MB are free for temporary files"), err=True)
    if abs(skew := found["time"] - time.time()) > _MOST_SKEW:
        click.echo(plain(f"machine {name}: its clock is {skew:+,.0f} s off the driver's"), err=True)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _looked_at(study: Study) -> dict[str, str]:
    """What is wrong with a study's data and models on this machine."""
    try:
        check_paths(study)
        check_parts(study)
        return {}
    except UserError as error:
        return {"error": str(error), "kind": type(error).__name__}


class _There:
    """An object in a process of the cluster, which the calls of its methods are passed on to."""

    def __init__(self, make: Callable[[], Any], cpus: float = 0, gpus: float = 0):
        import ray

        self.make = make
        self._actor: Any = ray.remote(_Held).options(num_cpus=cpus, num_gpus=gpus).remote(make)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import ray

        def call(*given: Any) -> Any:
            result, error = ray.get(self._actor.call.remote(name, *given))
            if error is not None:
                raise error
            return result

        return call


class _Held:
    def __init__(self, make: Callable[[], Any]):
        self._object = make()

    def call(self, name: str, *given: Any) -> tuple[Any, Exception | None]:
        try:
            return getattr(self._object, name)(*given), None
        except Exception as error:
            return None, error


class ClusterExecutor(RayExecutor):
    """Workers of a cluster that is there, on any of its machines.

    Args:
        address: see `attach`.
    """

    def __init__(self, address: str):
        self._address = address
        self.words = f"on the Ray cluster at {address}"
        self.option = "" if os.environ.get("RAY_ADDRESS") == address else f" --address {address}"

    def check(self) -> None:
        super().check()
        attach(self._address)

    def room(self, resources: Resources) -> Room:
        attach(self._address)
        return room_there(resources)

    def look(self, study: Study) -> None:
        look_there(study)

    def there(self, make: Callable[[], Made], resources: Resources) -> Made:
        return cast("Made", _There(make, resources.cpus_per_worker, min(1, resources.gpus_per_worker)))

    def freed(self, made: Made) -> Made:
        return cast("Made", _There(cast("_There", made).make))

    def session(self, work: Callable[[str], Any], signum: Signum, judge: Judge | None = None) -> dict[str, Any]:
        attach(self._address)

        def working() -> Any:
            with TemporaryDirectory(prefix="subquad-ray-", ignore_cleanup_errors=True) as folder:
                return work(self.seen(Path(folder)))

        with head_here(judge) as lost:
            outcome = in_thread(working, signum, lost)
            if not outcome and lost():
                raise TrainingFailed(
                    "the process that gives workers this machine's files has died; `subquad resume` goes on from the "
                    "newest checkpoint"
                )
        return outcome

    def recovers(self, error: BaseException, resources: Resources, signum: Signum, fruitless: int) -> bool:
        patient = resources.model_copy(update={"wait_s": max(_LOST_SECONDS, resources.wait_s)})
        reason = _lacking(room_there(patient, signum), resources)
        if reason and not signum():
            raise TrainingFailed(f"{reason}; `subquad resume` goes on from the newest checkpoint") from error
        return super().recovers(error, resources, signum, fruitless)

    def seen(self, path: Path) -> str:
        return f"{PROTOCOL}://{path}"

    def asked(self, judge: Judge | None) -> Judge | None:
        return judge and ask_judge
