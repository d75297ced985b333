"""Patterns: masks of the Long Range Arena's code, local-attention's outputs, layers of Longformer and BigBird.

In files of masks a pattern is named as its authors do.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from golden_files import golden_files, load_golden

from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad_plugins.bigbird import Config as BigBirdConfig
from subquad_plugins.bigbird.core import BigBird
from subquad_plugins.local import Config as LocalConfig
from subquad_plugins.local.core import Local
from subquad_plugins.longformer import Config
from subquad_plugins.longformer.mixer import Longformer
from subquad_plugins.numerics.windows import Window, windowed_attention
from subquad_plugins.sparse import Config as SparseConfig
from subquad_plugins.sparse.core import Sparse

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


@pytest.mark.parametrize("name", golden_files("*_patterns"))
def test_sparse_patterns_are_those_of_the_files_masks(name):
    """That code's fixed pattern also opens the first column of each block."""
    golden = load_golden(name)
    for key in (one for one in golden if one.startswith("sparse_")):
        pattern, *numbers = key.removeprefix("sparse_").split("_")
        block, summary = int(numbers[0].removeprefix("b")), int(numbers[1].removeprefix("c")) if numbers[1:] else 1
        length = len(golden[key])
        more = {"summary": summary} if pattern == "fixed" else {}
        config = SparseConfig.model_validate({"pattern": pattern, "block": block, **more})
        core = Sparse(config, Site(dim=4, max_len=length, causal=True))
        nothing, one_hot = torch.zeros(1, 1, length, 4), torch.eye(length)[None, None]
        allowed = core(nothing, nothing, one_hot)[0, 0] > 0
        if pattern == "fixed":
            allowed[:, ::block] = torch.ones_like(allowed).tril()[:, ::block]
        assert torch.equal(allowed, golden[key].bool())


@pytest.mark.parametrize("name", golden_files("zoo_bigbird*"))
def test_outputs_are_those_of_the_bigbird_layer(name):
    """Of the sample without padding: that code's last block may be padding."""
    golden = load_golden(name)
    blocks = golden["rand"].shape[1] + 2
    size = golden["x"].shape[1] // blocks
    mixer = AttentionMixer(
        BigBird(BigBirdConfig(block=size), Site(dim=16, num_heads=2)), Site(dim=16, num_heads=2)
    ).double()
    drawn = F.pad(golden["rand"].long(), (0, 0, 1, 1))
    mixer.core.random_blocks = lambda block, last: (drawn, torch.ones_like(drawn, dtype=torch.bool))
    own = mixer.state_dict()
    mixer.load_state_dict({one: golden.get(f"w.{one}", own[one]) for one in own})
    mixer.out = torch.nn.Identity()
    whole = golden["mask"].bool().all(1)
    close(mixer(golden["x"]).out[whole], golden["y"][whole], 1e-6)
