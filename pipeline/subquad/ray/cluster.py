"""A Ray cluster of our own on this machine: never somebody else's, with a token, its dashboard on loopback only.

Ray's placement-group cleaner asks a dashboard it finds by itself whether our job lives. With a second cluster on the
host it may ask that one, and then kills healthy workers; so the dashboard gets a port we know, and the workers
inherit its address.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from subquad.drivers.preflight import available_cpus, check_room
from subquad.errors import TrainingFailed, UserError
from subquad.experiment.schema import Resources

# Ray's own defaults poll the workers every 2 s, print every line twice and wait for ever.
_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run` Ray would start every worker through uv again, from an uploaded copy of the working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def _free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _forget_token() -> None:
    """Make Ray read mode and token again: it keeps what it saw when it was first imported or last used.

    The loader is private, but it is what Ray's own command line resets after making a token.
    """
    try:
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):  # another Ray: a first cluster in a process works without
        return


@contextmanager
def local_cluster(resources: Resources) -> Iterator[None]:
    """Start a cluster on this machine for the block, and stop it behind.

    Raises:
        UserError: Ray is not installed.
        ConfigError: the machine has fewer CPUs or GPUs than the experiment asks for.
        TrainingFailed: Ray did not start, for which it allows itself 30 s.
    """
    check_room(resources, cpus=True)
    if os.environ.get("RAY_ADDRESS"):
        click.echo("RAY_ADDRESS is set, but subquad does not use it yet: Ray starts on this machine", err=True)
    port = _free_port()
    ours = _SETTINGS | {
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}",
    }
    before = dict(os.environ)
    os.environ.update(ours)
    try:
        try:
            import ray
        except ImportError as error:
            raise UserError("Ray is not installed: `pip install 'subquad[ray]'`, or train with --local") from error
        _forget_token()
        try:
            ray.init(
                address="local",
                num_cpus=available_cpus(),
                include_dashboard=True,
                dashboard_host="127.0.0.1",
                dashboard_port=port,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:  # Ray has no class of its own for it; its processes end with this one
            raise TrainingFailed(
                f"Ray did not start: {type(error).__name__}: {' '.join(str(error).split())} Where the machine is "
                "overloaded, go on later, or without Ray by --local"
            ) from error
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        for name in set(os.environ) - set(before):  # Ray adds some of its own, a debugger hook among them
            del os.environ[name]
        os.environ.update(before)
