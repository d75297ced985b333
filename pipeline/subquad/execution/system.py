"""Use of CPU, memory and GPU by the training process. Imports torch never: it looks whether
training did.
"""

from __future__ import annotations

import contextlib
import sys

import psutil

_MB = 1e6


def system_metrics() -> dict[str, float]:
    """Under MLflow's names; memory in megabytes (1e6 bytes), use in percent, that of the CPU
    since the last call.
    """
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(interval=None),
        "system_memory_usage_megabytes": memory.used / _MB,
        "system_memory_usage_percentage": memory.percent,
        "process_memory_megabytes": psutil.Process().memory_info().rss / _MB,
        **_gpu_metrics(),
    }


def _gpu_metrics() -> dict[str, float]:
    """Use and memory of the GPU this process trains on; nothing where it has not touched one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
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
