"""Counted FLOPs and bytes of mixers follow their declared law from 512 to 65,536 tokens."""

import pytest
import torch

from subquad.bench.rows import choose_mixer
from subquad.cost import count_pass
from subquad.plugin import Site
from subquad.registry import make_mixer
from subquad.testing.checks.complexity import ORDER, _fit_growth

LENGTHS = (512, 2048, 8192, 32768, 65536)
ROWS = ["agf", "agf:order=8", "nystrom", "cur", "linear", "sfpc", "fourier", "wavelet", "mdfwa"]


@pytest.mark.ci
@pytest.mark.parametrize("text", ROWS)
def test_counts_follow_the_declared_law(text):
    row = choose_mixer(text)
    counts = []
    for length in LENGTHS:
        site = Site(dim=8, num_heads=2, max_len=length, causal=row.facts.causal == "always")
        torch.manual_seed(0)
        counts.append(count_pass(make_mixer(row.resolved, row.config, site), torch.randn(1, length, 8)))
    assert not any(one.unknown for one in counts)
    for what in ("flops", "moved"):
        found = _fit_growth(LENGTHS, [getattr(one, what) for one in counts])
        assert found.growth is not None, f"{what}: {found}"
        assert ORDER.index(found.growth) <= ORDER.index(row.facts.complexity), f"{what}: {found}"
