"""Attention within windows: masks of the Long Range Arena's code, local-attention's outputs, Longformer's layer.

In files of masks a pattern is named as its authors do; those of mixers that are not here yet are left to them.
"""

from __future__ import annotations

import pytest
import torch
from golden_files import golden_files, load_golden

from subquad.plugin import Site
from subquad_plugins.local import Config as LocalConfig
from subquad_plugins.local.core import Local
from subquad_plugins.longformer import Config
from subquad_plugins.longformer.mixer import Longformer
from subquad_plugins.numerics.windows import Window, windowed_attention

NAMES = {"query_global": "everywhere.query", "key_global": "everywhere.key", "value_global": "everywhere.value"}


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert float((got.detach() - expected).abs().max()) <= tolerance * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("name", golden_files("*_patterns"))
def test_windows_are_those_of_the_files_masks(name):
    golden = load_golden(name)
    for key in (one for one in golden if one.startswith("longformer_w")):
        width, *tokens = key.removeprefix("longformer_w").replace("_global", "").split("_")
        length, reach = len(golden[key]), int(width)
        window = Window((reach - 1) // 2, reach // 2)  # of an even width, that code reaches one further to the right
        seen = torch.tensor([list(map(int, tokens))]) if tokens else None
        nothing, one_hot = torch.zeros(1, 1, length, 4), torch.eye(length)[None, None]
        allowed = windowed_attention(nothing, nothing, one_hot, window, seen=seen)[0, 0] > 0
        rows = [token for token in range(length) if str(token) not in tokens]  # global queries are the mixer's
        assert torch.equal(allowed[rows], golden[key][rows].bool())


@pytest.mark.parametrize("name", golden_files("zoo_local*"))
def test_outputs_are_those_of_local_attention(name):
    golden = load_golden(name)
    q, k, v, keep = (golden[key] for key in ("q", "k", "v", "mask"))
    ways = {"blk": (4, 1, False), "exact": (1, 4, False), "causal": (4, 1, True), "onlyblock": (4, 0, False)}
    for way, (block, window, causal) in ways.items():
        site = Site(dim=16, num_heads=2, max_len=22, causal=causal)
        core = Local(LocalConfig(window=window, block=block), site)
        close(core(q, k, v), golden[f"y_{way}"], 1e-12)
        masked, expected = core(q, k, v, query_keep=keep, key_keep=keep), golden[f"y_{way}_masked"]
        close(masked.transpose(1, 2)[keep], expected.transpose(1, 2)[keep], 1e-12)


@pytest.mark.parametrize("name", golden_files("zoo_longformer*"))
def test_outputs_are_those_of_the_longformer_layer(name):
    """Its softmax works in float32."""
    golden = load_golden(name)
    for key in ("local", "pad", "pad_global"):
        marks, heads = golden[f"attn_{key}"], golden[f"y_{key}"]
        for sample in range(len(marks)):
            tokens = (marks[sample] > 0).nonzero()[:, 0]
            config = Config(window=8, num_global=len(tokens))
            mixer = Longformer(config, Site(dim=16, num_heads=2, max_len=24)).double().eval()
            mixer.core.seen = lambda x, tokens=tokens: tokens.expand(len(x), -1) if len(tokens) else None
            weights = {one.removeprefix("w."): golden[one] for one in golden if one.startswith("w.")}
            renamed = {
                NAMES.get(one.split(".")[0], one.split(".")[0]) + one[one.rindex(".") :]: weights[one]
                for one in weights
            }
            own = mixer.state_dict()
            mixer.load_state_dict({**{one: renamed.get(one, own[one]) for one in own}})
            mixer.out = torch.nn.Identity()
            keep = marks[sample : sample + 1] >= 0
            found = mixer(golden["x"][sample : sample + 1], keep=keep).out
            close(found[keep], heads[sample : sample + 1][keep], 1e-6)
