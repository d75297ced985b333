"""For all tests: bytecode is cached, and Hypothesis draws the same examples every time, without a time limit.

Bytecode is cached here and in every process that a test starts, also where the environment switches that off. Without
a cache each of them compiles torch, Ray and MLflow anew: most of what a short test would cost.
"""

import os
import sys

import pytest
from hypothesis import settings

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

WAITS = ("ray", "mlflow", "tracking")
"""In the names of integration tests that mostly wait for servers: for each of these words one process does them all."""


def _waits_for(item: pytest.Item) -> str:
    """The word of WAITS that names the server; "" where there is none."""
    words = [word for word in WAITS if word in item.path.stem and item.path.parent.name == "integration"]
    return words[0] if words else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist a file's tests stay in one process, and those of all files that wait for a server in one.

    They come first, so that other processes have work to do beside them until the end.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_waits_for(item) or item.path.stem))
    items.sort(key=lambda item: not _waits_for(item))
