"""Counted FLOPs and bytes of mixers follow their declared law from 512 to 65,536 tokens."""

import pytest
import torch

from subquad.cost import count_pass
from subquad.plugin import Site
from subquad.registry import find_plugins, make_mixer
from subquad_check.checks.complexity import _Growth
from subquad_check.fits import ORDER
from subquad_tools.bench.rows import choose_mixer

LENGTHS = tuple(2**power for power in range(9, 17))
SQUARE = {"mega", "softmax", "yoso"}
"""Of L^2, which 65,536 tokens cost too much."""
ALWAYS = ["agf", "agf:order=8", "nystrom", "cur", "linear", "sfpc", "fourier", "wavelet", "mdfwa"]
BUILT_IN = {plugin.name for plugin in find_plugins("mixer") if plugin.distribution == "subquad"}
OTHERS = [*sorted(BUILT_IN - SQUARE - {*ALWAYS}), "mega:chunk_size=128"]


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
