"""For all tests: bytecode is cached, and Hypothesis draws the same examples every time, without a
time limit.

Bytecode is cached here and in every process that a test starts, also where the environment switches
that off. Without a cache each of them compiles torch, Ray and MLflow anew: most of what a short
test would cost.
"""

import itertools
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from object_store import Asked, Bucket

from subquad.record import trust
from subquad.security import disk
from subquad_check.command import FOR_CHECKS

if TYPE_CHECKING:
    from ranks import Ranks

# Tensors of tests are small: a second thread costs more than it saves.
os.environ.update({"OMP_NUM_THREADS": "1", **FOR_CHECKS, **os.environ})
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
CONFIGURATION = tempfile.mkdtemp(prefix="subquad-tests-")
"""What commands remember of their user: not this user's, and gone at the end. Processes of tests
have it too.
"""
os.environ["XDG_CONFIG_HOME"] = CONFIGURATION

settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")
# Hypothesis would also draw constants of the modules that earlier tests happened to import.
assert hasattr(providers, "is_local_module_file")
providers.is_local_module_file = lambda path: False  # pyright: ignore

WAITS = ("ray", "mlflow", "tracking")
"""In the names of integration tests that mostly wait for servers: for each of these words one
process does them all.
"""

SLOW_FOLDERS = ("guards", "integration")


def _waits_for(item: pytest.Item) -> str:
    """The word of WAITS that names the server; "" where there is none."""
    words = [
        word for word in WAITS if word in item.path.stem and item.path.parent.name == "integration"
    ]
    return words[0] if words else ""


def _shares(item: pytest.Item) -> bool:
    """Whether tests of a file use something that is made once for them."""
    fixtures: Any = getattr(item, "_fixtureinfo", None)
    found = chain.from_iterable(fixtures.name2fixturedefs.values()) if fixtures else ()
    return any(fixture.scope in ("module", "class") for fixture in found)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts processes or tries combinations is of the ci tier, by its folder.

    Under pytest-xdist those of all files that wait for a server stay in one process, and those of
    a file that share a fixture; any process takes the others, one by one. What waits comes first
    and what is short last, so that all processes have work until the end.
    """
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker(pytest.mark.ci)
        group = _waits_for(item) or (item.path.stem if _shares(item) else "")
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (not _waits_for(item), not item.get_closest_marker("ci")))


def pytest_collection_finish(session: pytest.Session) -> None:
    """End where pytest-xdist does not find the groups, as with a pytest that is newer than it
    knows.
    """
    if getattr(session.config.option, "loadgroup", False):
        of_servers = [item for item in session.items if _waits_for(item)]
        assert all("@" in item.nodeid for item in of_servers)


def pytest_unconfigure() -> None:
    shutil.rmtree(CONFIGURATION, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_folder_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of one command: it does not know what earlier tests have opened."""
    monkeypatch.setattr(disk, "_held", set())


@pytest.fixture(autouse=True)
def any_address_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests call in this process may ask any address; tests of strangers begin without."""
    monkeypatch.setattr(trust, "_given", ["s3://", "gs://", "http://", "https://"])


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of this process draw none, which takes more time than their trials; tests of
    pictures look at them.
    """
    from subquad.search import run
    from subquad.search.plots import Drawn

    monkeypatch.setattr(run, "draw", lambda told, folder: Drawn())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu-device",
        default="cuda",
        help="where tests marked gpu run; cpu finds errors of the tests",
    )
    parser.addoption(
        "--guard-seed",
        type=int,
        help="of what extended guards draw; drawn and printed if not given",
    )
    parser.addoption(
        "--guard-rows",
        type=int,
        help="how many combinations an extended guard draws; all if not given",
    )


@pytest.fixture(scope="session")
def guard_seed(request: pytest.FixtureRequest) -> int:
    """The seed of what an extended guard draws. Failures print it, so that the same can be drawn
    again.
    """
    given = request.config.getoption("--guard-seed")
    seed = random.SystemRandom().randrange(2**31) if given is None else given
    print(f"guard seed {seed}: repeat with --guard-seed {seed}")
    return seed


@pytest.fixture(scope="session")
def guard_rows(request: pytest.FixtureRequest) -> int | None:
    """How many combinations an extended guard draws; None for all."""
    return request.config.getoption("--guard-rows")


@pytest.fixture(scope="module")
def ranks() -> Iterator["Ranks"]:
    """Starts groups of training processes; none is left when other files look for processes that
    were left.
    """
    from ranks import Ranks

    with Ranks() as started:
        yield started


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, Any, list[str], Iterator[int]]]:
    """Address of an S3-compatible server, a client of it, what it was asked, and numbers for
    buckets.
    """
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    requests: list[str] = []
    log = logging.getLogger("werkzeug")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(Asked(requests))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "region_name": "us-east-1",
    }
    yield endpoint, boto3.client("s3", endpoint_url=endpoint, **keys), requests, itertools.count(1)
    server.stop()


@pytest.fixture
def bucket(
    s3_server: tuple[str, Any, list[str], Iterator[int]], monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """An empty bucket, which this process's environment leads to."""
    import s3fs

    endpoint, client, requests, numbers = s3_server
    found = Bucket(f"bucket-{next(numbers)}", endpoint, client, requests)
    client.create_bucket(Bucket=found.name)
    requests.clear()
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # it remembers the address of its server
    return found
