"""Kernels compiled for an H100 or H200 without one: what they ask of the chip.

Calls run nowhere: a kernel that is started inside `compiled_kernels` is compiled for sm_90a, for
the formats, strides and constants that it is given, and writes nothing.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

TARGET = GPUTarget("cuda", 90, 32)
SHARED = 227 * 1024
"""Bytes of shared memory that a program may have there."""
_TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


@dataclass(frozen=True)
class Asked:
    """What one kernel asks of the chip.

    Attributes:
        name: of the kernel.
        warps: of a program.
        registers: of a thread.
        spilled: bytes of a thread's stack, where registers do not suffice.
        shared: bytes of shared memory of a program.
        products: instructions that multiply matrices, by kind: "wgmma" and "mma".
    """

    name: str
    warps: int
    registers: int
    spilled: int
    shared: int
    products: dict[str, int]

    def __str__(self) -> str:
        words = ", ".join(f"{count} {kind}" for kind, count in self.products.items())
        return (
            f"{self.name}: {self.warps} warps, {self.registers} registers, {self.spilled} bytes "
            f"spilled, {self.shared / 1024:.0f} KiB shared, {words}"
        )


@contextmanager
def compiled_kernels() -> Iterator[list[Asked]]:
    """Compile instead of running, and collect what each kernel asks for; the same one once."""
    backend = make_backend(TARGET)
    binders = {}
    asked: dict[str, Asked] = {}

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if kernel not in binders:
            binders[kernel] = create_function_from_signature(
                kernel.signature, kernel.params, backend
            )
        bound, specialization, _ = binders[kernel](*args, **kwargs, debug=False)
        options, signature, constants, attributes = kernel._pack_args(
            backend, kwargs, bound, specialization, None
        )
        source = ASTSource(kernel, signature, constants, attributes)
        compiled = triton.compile(source, target=TARGET, options=vars(options))
        asked.setdefault(compiled.hash, _asked(compiled, options.num_warps))
        found[:] = asked.values()

    found: list[Asked] = []
    with mock.patch.object(JITFunction, "run", run):
        yield found


def _asked(compiled: Any, warps: int) -> Asked:
    name = compiled.metadata.name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        told = subprocess.run(
            [_TOOLS / "cuobjdump", "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    found = re.search(rf"Function {name}:\s*REG:(\d+) STACK:(\d+)", told)
    assert found, told
    text = compiled.asm["ptx"]
    products = {"wgmma": text.count("wgmma.mma_async"), "mma": text.count("mma.sync")}
    return Asked(name, warps, int(found[1]), int(found[2]), compiled.metadata.shared, products)
