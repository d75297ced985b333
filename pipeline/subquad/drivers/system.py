"""Use of CPU, memory and GPU by the training process. Imports torch never: it looks whether training did."""

from __future__ import annotations

import contextlib
import sys
import time

import psutil

_MB = 1e6


class SystemSampler:
    """System metrics under MLflow's names, measured when asked for, at most once every `interval_s` seconds."""

    def __init__(self, interval_s: float = 10.0):
        self._interval = interval_s
        self._process = psutil.Process()
        self._measured = float("-inf")
        self._values: dict[str, float] = {}
        psutil.cpu_percent(interval=None)  # the first call only sets the mark that the next one measures from

    def latest(self) -> dict[str, float]:
        """Values at most `interval_s` old. Memory is in megabytes (1e6 bytes), use in percent."""
        now = time.monotonic()
        if now - self._measured >= self._interval:
            self._measured = now
            self._values = {**self._host(), **_gpu_metrics()}
        return dict(self._values)

    def _host(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(interval=None),
            "system_memory_usage_megabytes": memory.used / _MB,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_megabytes": self._process.memory_info().rss / _MB,
        }


def _gpu_metrics() -> dict[str, float]:
    """Use and memory of the GPU this process trains on; nothing where it has not touched one."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    index = cuda.current_device()
    free, total = cuda.mem_get_info(index)
    values = {
        f"gpu_{index}_memory_usage_megabytes": (total - free) / _MB,
        f"gpu_{index}_memory_usage_percentage": 100 * (total - free) / total,
        f"gpu_{index}_memory_allocated_megabytes": cuda.memory_allocated(index) / _MB,
    }
    # The library that reads it (nvidia-ml-py) may not be installed, or the driver may not say.
    with contextlib.suppress(ImportError, RuntimeError):
        values[f"gpu_{index}_utilization_percentage"] = float(cuda.utilization(index))
    return values
