"""System metrics."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest

from subquad.execution.system import _gpu_metrics, system_metrics


def test_values_are_those_of_this_process_and_its_machine():
    values = system_metrics()
    assert set(values) >= {
        "cpu_utilization_percentage",
        "system_memory_usage_megabytes",
        "process_memory_megabytes",
    }
    assert all(math.isfinite(value) and value >= 0 for value in values.values())
    assert 1 < values["process_memory_megabytes"] < values["system_memory_usage_megabytes"] * 10


def test_a_gpu_that_training_has_not_touched_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))
    )
    assert _gpu_metrics() == {}
    monkeypatch.delitem(sys.modules, "torch")
    assert _gpu_metrics() == {}


def test_gpu_values_with_and_without_the_library_that_reads_use(monkeypatch: pytest.MonkeyPatch):
    def missing(_index: int) -> int:
        raise ModuleNotFoundError("pynvml")

    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 1,
        mem_get_info=lambda _index: (3_000_000_000, 4_000_000_000),
        memory_allocated=lambda _index: 500_000_000,
        utilization=missing,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    memory = {
        "gpu_1_memory_usage_megabytes": 1000.0,
        "gpu_1_memory_usage_percentage": 25.0,
        "gpu_1_memory_allocated_megabytes": 500.0,
    }
    assert _gpu_metrics() == memory
    cuda.utilization = lambda _index: 80
    assert _gpu_metrics() == {**memory, "gpu_1_utilization_percentage": 80.0}
