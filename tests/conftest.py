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
"""In the names of integration tests that mostly wait for servers: one process does them all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist a file's tests stay in one process, and those of all files that wait for servers in one."""
    for item in items:
        file = item.path.stem
        waits = item.path.parent.name == "integration" and any(name in file for name in WAITS)
        item.add_marker(pytest.mark.xdist_group("waits" if waits else file))
