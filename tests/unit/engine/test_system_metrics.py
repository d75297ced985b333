"""System metrics."""

from __future__ import annotations

import itertools
import math
import sys
from types import SimpleNamespace

import pytest

from subquad.drivers import system
from subquad.drivers.system import SystemSampler, _gpu_metrics


def test_values_are_those_of_this_process_and_its_machine():
    values = SystemSampler(interval_s=3600).latest()
    assert set(values) >= {"cpu_utilization_percentage", "system_memory_usage_megabytes", "process_memory_megabytes"}
    assert all(math.isfinite(value) and value >= 0 for value in values.values())
    assert 1 < values["process_memory_megabytes"] < values["system_memory_usage_megabytes"] * 10


def test_values_are_measured_at_most_once_an_interval(monkeypatch: pytest.MonkeyPatch):
    clock, counts = [100.0], itertools.count(1)
    monkeypatch.setattr(system, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(SystemSampler, "_host", lambda _self: {"measurements": float(next(counts))})
    sampler = SystemSampler(interval_s=10)

    def at(moment: float) -> float:
        clock[0] = moment
        return sampler.latest()["measurements"]

    assert [at(100), at(105), at(109.9), at(110), at(119), at(500), at(501)] == [1, 1, 1, 2, 2, 3, 3]


def test_what_is_handed_out_is_a_copy():
    sampler = SystemSampler(interval_s=3600)
    sampler.latest().clear()
    assert sampler.latest()


def test_a_gpu_that_training_has_not_touched_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
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
