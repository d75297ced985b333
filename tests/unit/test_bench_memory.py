"""Memory that a call adds, and its end."""

import sys

import pytest
import torch

from subquad_tools.bench.memory import added_memory, is_out_of_memory, memory_bounded

CPU = torch.device("cpu")


def test_the_peak_of_a_call_is_what_its_tensors_take_together():
    x = torch.ones(1 << 18)  # 1 MiB

    def call():
        y = x + 1
        z = y * 2
        del y
        return z + 1

    assert added_memory(call, CPU) == added_memory(call, CPU) == pytest.approx(2 << 20, rel=1e-3)


def test_what_was_there_before_does_not_count():
    x = torch.ones(1 << 18)
    assert added_memory(lambda: x.mul_(2), CPU) == pytest.approx(0, abs=64)
    assert added_memory(lambda: torch.ones(1 << 16), CPU) == 1 << 18


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_allocations_fail_where_memory_ends_and_the_limit_is_put_back():
    with memory_bounded(CPU, spare=64 << 20):
        small = torch.ones(1 << 20)
        with pytest.raises(RuntimeError) as refused:
            torch.ones(1 << 27)
    assert is_out_of_memory(refused.value)
    assert torch.ones(1 << 25).numel() == 32 * small.numel()


def test_other_errors_are_not_of_memory():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))
