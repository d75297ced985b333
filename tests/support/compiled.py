"""Kernels compiled for a GPU that need not be there."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

SHARED, REGISTERS = 227 * 1024, 255
"""What compute capability 9.0 has: bytes of shared memory for a program, registers for a thread."""


def resources(
    kernel: Any, pointers: dict[str, str], constants: dict[str, Any], num_warps: int = 4
) -> dict[str, int]:
    """Compile for compute capability 9.0; registers of a thread, bytes of shared memory and of
    spilled registers.

    Args:
        kernel: decorated with `triton.jit`.
        pointers: Triton's type of each pointer ("*fp32") and each number that is not a 32-bit
            integer.
        constants: of the kernel.
        num_warps: as it is launched.
    """
    names = [name for name in kernel.arg_names if name not in constants]
    signature = {name: pointers.get(name, "i32") for name in names} | dict.fromkeys(
        constants, "constexpr"
    )
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": num_warps, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(compiled.asm["ptx"])
        command = [
            get_ptxas(90).path,
            "-v",
            "--gpu-name=sm_90a",
            text,
            "-o",
            text.with_suffix(".cubin"),
        ]
        errors = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.findall(r"(\d+) bytes spill stores|Used (\d+) registers", errors)
    (spilled, _), (_, registers) = found
    return {
        "registers": int(registers),
        "shared": compiled.metadata.shared,
        "spilled": int(spilled),
    }


def assert_fits(registers: int, shared: int, spilled: int, most_spilled: int = 0) -> None:
    """Within the chip's limits, and at most so many bytes of a thread's registers spilled."""
    print(f"{registers} registers, {shared} bytes of shared memory, {spilled} spilled")
    assert 0 < registers <= REGISTERS
    assert shared <= SHARED
    assert spilled <= most_spilled
