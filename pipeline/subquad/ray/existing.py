"""A Ray cluster that somebody else started and this machine is part of."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from subquad.errors import TrainingFailed, UserError, in_one_line
from subquad.execution.executor import GOES_ON, Made
from subquad.execution.signals import Signum, listen_again
from subquad.experiment import Run, Study
from subquad.experiment.schema import Resources
from subquad.output.terminal import print_line
from subquad.preparation.preflight import Room
from subquad.ray.cluster import SETTINGS, OwnCluster, forget_token, in_thread, job_config
from subquad.ray.executor import RayExecutor
from subquad.ray.machines import (
    ROOM_SECONDS,
    lacking,
    look_there,
    room_now,
    room_there,
    waited_for,
)
from subquad.ray.train import machine_of
from subquad.record.layout import below_root

_CONNECT_SECONDS = 5.0
_LOST_SECONDS = 180.0
"""That a run waits for machines that were lost; more with `resources.wait_s`."""
_LOOKS = 2
"""After so many in a row it is told what room is waited for: workers that start wait a moment."""


def _attach(address: str) -> None:
    """Connect this process to a cluster, once.

    Args:
        address: "auto" for the one that this machine is part of, or HOST:PORT of its head.

    Raises:
        UserError: it cannot be reached, or does not accept the token.
    """
    settings = {name: value for name, value in SETTINGS.items() if name != "RAY_AUTH_MODE"}
    os.environ.update(settings)  # Ray reads some when it is imported
    import ray

    if ray.is_initialized():
        return
    place = _place_of(address)
    if (
        any((os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH")))
        or Path("~/.ray/auth_token").expanduser().exists()
    ):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    forget_token()
    ours = {name: value for name, value in os.environ.items() if name.startswith("SUBQUAD_")}
    ours.pop("SUBQUAD_DATA", None)  # each machine says itself where its data are

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
        reason = in_one_line(error) or type(error).__name__
        raise UserError(
            f"--address {address}: the cluster at {place} did not let this process in: {reason}. "
            "Its token belongs into RAY_AUTH_TOKEN, or into the file that RAY_AUTH_TOKEN_PATH "
            "names; this machine must be part of it"
        ) from error


def _tell(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    """Of what the cluster reports, tell which machines are lost."""
    for name in re.findall(r"node name: (\S+) has been marked dead", " ".join(data["lines"])):
        print_line(
            f"machine {name} was lost; training goes on from the newest checkpoint "
            "where there is room",
            err=True,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what Ray's C++ part prints for each attempt to connect."""
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
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
            f"--address {address}: give auto or HOST:PORT on a machine of the "
            "cluster; from outside use subquad submit"
        )
    services: Any = import_module("ray._private.services")
    try:
        place = services.canonicalize_bootstrap_address_or_die(address)
        host, _, port = place.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"--address {address}: no Ray cluster answers there: {in_one_line(error)}"
        ) from error
    return place


class _There:
    """An object in a process of the cluster, which the calls of its methods are passed on to."""

    def __init__(self, make: Any, **options: Any):
        import ray

        self.make = make
        self.options = options
        self._actor: Any = ray.remote(make).options(**options).remote()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import ray
        from ray.exceptions import RayTaskError

        def call(*given: Any) -> Any:
            try:
                return ray.get(getattr(self._actor, name).remote(*given))
            except RayTaskError as error:
                raise error.cause from error

        return call


class ClusterExecutor(RayExecutor):
    """Workers of a cluster that is there, on any of its machines.

    Args:
        address: see `_attach`.
    """

    def __init__(self, address: str, jobs: int | None = None):
        super().__init__(jobs)
        self._address = address
        self._fitted: list[Resources] = []
        """What there was room for."""
        self._placed = time.monotonic()
        self._due = 0.0
        """When workers were last seen that have their place, or could have it; the next look."""
        self._waits = 0
        """Looks in a row at which room was waited for."""
        self.words = f"on the Ray cluster at {address}"
        if os.environ.get("RAY_ADDRESS") != address:
            self.options = ("--address", address, *self.options)

    def check(self) -> None:
        super().check()
        _attach(self._address)

    def room(self, resources: Resources) -> Room:
        _attach(self._address)
        return room_there(resources)

    def look(self, study: Study, *, writes: bool) -> None:
        look_there(study, writes=writes)

    def there(self, make: Callable[[], Made], resources: Resources) -> Made:
        return cast(
            "Made",
            _There(
                make,
                num_cpus=resources.cpus_per_worker,
                num_gpus=min(1, resources.gpus_per_worker),
                label_selector=machine_of(resources),
            ),
        )

    def freed(self, made: Made) -> Made:
        held = cast("_There", made)
        return cast("Made", _There(held.make, **held.options | {"num_cpus": 0, "num_gpus": 0}))

    def room_now(self, resources: Resources) -> Room:
        return room_now(resources)

    def sent(self, run: Run) -> dict[str, Any]:
        if run.files.storage is None:
            return run.as_values()
        run.files.mirror()
        return run.as_values() | {"place": str(below_root(run.folder))}

    def fetch(self, run: Run) -> None:
        run.files.fetch()

    def check_room(self, resources: Resources, signum: Signum) -> None:
        if resources not in self._fitted:
            super().check_room(resources, signum)
            self._fitted.append(resources)
            return
        patient = resources.model_copy(update={"wait_s": self._patience(resources)})
        if reason := lacking(room_there(patient, signum), resources):
            raise TrainingFailed(f"{reason}; {GOES_ON}")

    def still_lacking(self, unplaced: list[Resources] | None) -> str:
        now = time.monotonic()
        if unplaced is None:
            self._placed = now
            self._waits = 0
        if not unplaced or now < self._due:
            return ""
        self._due = now + ROOM_SECONDS
        reasons = [lacking(room_now(resources), resources) for resources in unplaced]
        if not all(reasons):
            self._placed = now
        told = "" if all(reasons) else waited_for()
        self._waits = self._waits + 1 if told else 0
        if self._waits == _LOOKS:
            print_line(told, err=True)
        if now - self._placed > max(map(self._patience, unplaced)):
            return reasons[0]
        return ""

    @staticmethod
    def _patience(resources: Resources) -> float:
        return max(_LOST_SECONDS, resources.wait_s)

    def cluster(self) -> OwnCluster:
        _attach(self._address)
        return _Attached()


class _Attached(OwnCluster):
    """The cluster that this process is connected to, which stays as it is."""

    def do(
        self,
        work: Callable[[], Any],
        signum: Signum = lambda: 0,
        lost: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        return in_thread(work, signum, lost)
