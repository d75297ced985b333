"""A Ray cluster of several nodes on this machine, with a token; a node may be killed and another
one started.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from command import ready
from waiting import until

APART = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
PORTS = (
    "port",
    "dashboard-port",
    "ray-client-server-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
)


class Cluster:
    """See `cluster`.

    Attributes:
        address: HOST:PORT of its head.
        environment: what a process needs to reach it: the token, and the address of its dashboard.
        nodes: in the order of their starts.
        folder: Ray's files.
    """

    def __init__(self, folder: Path):
        ports = {name: free_port() for name in PORTS}
        self.address = f"{_own_address()}:{ports['port']}"
        self._token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment = self._token | {
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports['dashboard-port']}"
        }
        self.folder, self.nodes = folder, list[subprocess.Popen[bytes]]()
        self._flags = [f"--{name}={port}" for name, port in ports.items()]

    def start(
        self,
        *flags: str,
        private: Sequence[Path] = (),
        within: Sequence[str] = (),
        again: bool = False,
        **more: str,
    ) -> subprocess.Popen[bytes]:
        """Start a node, the head first, and wait for it.

        Args:
            flags: of `ray start`.
            private: folders that are empty for it, as on a machine apart, where the system allows
                that.
            within: words of a command that runs the node's.
            again: the head once more, after it was killed.
            more: of its environment.
        """
        head = again or not self.nodes
        where = ["--head", *self._flags] if head else [f"--address={self.address}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, "--block", *flags]
        if private and APART:
            mounts = [f"mount -t tmpfs none {path}" for path in private]
            command = [
                "unshare",
                "-m",
                "bash",
                "-c",
                " && ".join([*mounts, 'exec "$@"']),
                "node",
                *command,
            ]
        more = {
            **more,
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # the other test process would starve it
            "RAY_TMPDIR": str(self.folder),
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        log = (self.folder / f"node-{len(self.nodes)}.log").open("wb")
        environment = {**os.environ, **self._token, **more, "PATH": path}
        node = subprocess.Popen(
            [*within, *command], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self.nodes.append(node)
        until(lambda: self.alive() == sum(node.poll() is None for node in self.nodes))
        assert node.poll() is None, "the node did not start: is the machine too busy?"
        return node

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End a node as a power cut does."""
        for process in [*_below(node.pid), psutil.Process(node.pid)]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        node.wait()

    def living(self) -> list[psutil.Process]:
        """The nodes that were not killed."""
        return [psutil.Process(node.pid) for node in self.nodes if node.poll() is None]

    def ask(self, path: str) -> Any:
        """What the dashboard answers."""
        request = urllib.request.Request(f"{self.environment['RAY_API_SERVER_ADDRESS']}/api/{path}")
        request.add_header("Authorization", f"Bearer {self._token['RAY_AUTH_TOKEN']}")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def alive(self) -> int:
        """Nodes that the head has heard of lately."""
        try:
            nodes = self.ask("v0/nodes")["data"]["result"]["result"]
        except OSError:
            return 0
        return sum(node["state"] == "ALIVE" for node in nodes)

    def stop(self) -> None:
        for node in reversed(self.nodes):
            if node.poll() is None:
                self.kill(node)


@contextmanager
def cluster(*nodes: Sequence[str]) -> Iterator[Cluster]:
    """A cluster, its head first; each node by its flags of `ray start`."""
    # the paths of Ray's sockets may have 107 characters
    folder = Path("/tmp") / f"sq{secrets.token_hex(4)}"
    folder.mkdir()
    made = Cluster(folder)
    try:
        for flags in nodes:
            made.start(*flags)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def apart(root: Path, nodes: int) -> Iterator[Cluster]:
    """A head that trains nothing, and nodes with one CPU each, which do not see the driver's
    `root`.
    """
    ready()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    with cluster(["--num-cpus=0"]) as made:
        for _ in range(nodes):
            made.start("--num-cpus=1", private=[root])
        yield made
    shutil.rmtree(root, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _own_address() -> str:
    import ray.util

    return ray.util.get_node_ip_address()


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
