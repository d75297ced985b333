"""Counted FLOPs and bytes of mixers follow their declared law from 512 to 65,536 tokens."""

import pytest
import torch
from built_in import abouts

from subquad.cost import count_pass
from subquad.plugin import Site
from subquad.registry import make_mixer
from subquad_check.checks.complexity import _Growth
from subquad_check.fits import ORDER
from subquad_tools.bench.rows import choose_mixer

LENGTHS = tuple(2**power for power in range(9, 17))
LINEAR = [name for name in abouts() if choose_mixer(name).facts.complexity != "L^2"]
"""Others cost too much with 65,536 tokens."""
ALWAYS = [*(name for name in LINEAR if abouts()[name].first), "agf:order=8", "linear"]
"""Those with kernels, and two more."""
OTHERS = [*(name for name in LINEAR if name not in ALWAYS), "mega:chunk_size=128"]


def marked(text: str):
    return pytest.param(text, marks=pytest.mark.ci if text in ALWAYS else pytest.mark.extended)


@pytest.mark.parametrize("text", [marked(alway) for alway in ALWAYS + OTHERS])
def test_counts_follow_the_declared_law(text):
    row = choose_mixer(text)
    counts = []
    for length in LENGTHS:
        site = Site(dim=8, num_heads=2, max_len=length, causal=row.facts.causal == "always")
        torch.manual_seed(0)
        counts.append(
            count_pass(make_mixer(row.resolved, row.config, site), torch.randn(1, length, 8))
        )
    assert not any(count.unknown for count in counts)
    for what in ("flops", "moved"):
        found = _Growth(LENGTHS, tuple(counts), ()).fit(what)
        assert found.growth is not None, f"{what}: {found}"
        assert ORDER.index(found.growth) <= ORDER.index(row.facts.complexity), f"{what}: {found}"
