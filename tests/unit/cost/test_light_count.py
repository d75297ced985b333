"""Counting imports no compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
from subquad.cost import counting

layer = torch.nn.Linear(8, 8)
with counting() as count:
    torch.einsum("ij,jk->ik", layer(torch.ones(4, 8)), torch.ones(8, 2)).sum().backward()
assert count.flops > 2 * 4 * 8 * 8, count.flops
print(sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""


@pytest.mark.ci
def test_a_count_does_not_import_dynamo():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
