"""Patterns: masks of the Long Range Arena's code, local-attention's outputs, layers of Longformer
and BigBird.

In files of masks a pattern is named as its authors do.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from golden_files import golden_files, load_golden, said, site_of

from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad_plugins.bigbird import Config as BigBirdConfig
from subquad_plugins.bigbird.core import BigBird
from subquad_plugins.local import Config as LocalConfig
from subquad_plugins.local.core import Local
from subquad_plugins.longformer import Config
from subquad_plugins.longformer.mixer import Longformer
from subquad_plugins.numerics.windowed_attention import Window, windowed_attention
from subquad_plugins.sparse import Config as SparseConfig
from subquad_plugins.sparse.core import Sparse

NAMES = {
    "query_global": "everywhere.query",
    "key_global": "everywhere.key",
    "value_global": "everywhere.value",
}


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert float((got.detach() - expected).abs().max()) <= tolerance * max(
        1.0, float(expected.abs().max())
    )


@pytest.mark.parametrize("name", golden_files("masks"))
def test_windows_are_those_of_the_files_masks(name):
    golden = load_golden(name)
    for key in (entry for entry in golden if entry.startswith("longformer_w")):
        width, *tokens = key.removeprefix("longformer_w").replace("_global", "").split("_")
        length, reach = len(golden[key]), int(width)
        # of an even width, that code reaches one further to the right
        window = Window((reach - 1) // 2, reach // 2)
        global_tokens = torch.tensor([list(map(int, tokens))]) if tokens else None
        nothing, one_hot = torch.zeros(1, 1, length, 4), torch.eye(length)[None, None]
        allowed = (
            windowed_attention(nothing, nothing, one_hot, window, by_all=global_tokens)[0, 0] > 0
        )
        # global queries are the mixer's
        rows = [token for token in range(length) if str(token) not in tokens]
        assert torch.equal(allowed[rows], golden[key][rows].bool())


@pytest.mark.parametrize("name", golden_files("local"))
def test_outputs_are_those_of_local_attention(name):
    golden = load_golden(name)
    q, k, v = (golden[letter] for letter in "qkv")
    keep = golden["mask"].bool()
    size = said(golden, r"window (\d+)", 4)
    ways = {
        "blk": (size, 1, False),
        "exact": (1, size, False),
        "causal": (size, 1, True),
        "onlyblock": (size, 0, False),
    }
    for way in [way for way in ways if f"y_{way}" in golden]:
        block, window, causal = ways[way]
        core = Local(LocalConfig(window=window, block=block), site_of(golden, causal=causal))
        close(core(q, k, v), golden[f"y_{way}"], 1e-12)
        masked, expected = core(q, k, v, query_keep=keep, key_keep=keep), golden[f"y_{way}_masked"]
        close(masked.transpose(1, 2)[keep], expected.transpose(1, 2)[keep], 1e-12)


@pytest.mark.parametrize("name", golden_files("longformer"))
def test_outputs_are_those_of_the_longformer_layer(name):
    """Its softmax works in float32."""
    golden = load_golden(name)
    window = said(golden, r"window (\d+)", 8)
    for key in [key.removeprefix("attn_") for key in golden if key.startswith("attn_")]:
        marks, heads = golden[f"attn_{key}"], golden[f"y_{key}"]
        for sample in range(len(marks)):
            tokens = (marks[sample] > 0).nonzero()[:, 0]
            config = Config(window=window, num_global=len(tokens))
            mixer = Longformer(config, site_of(golden)).double().eval()
            mixer.core.global_tokens = lambda x, tokens=tokens: (
                tokens.expand(len(x), -1) if len(tokens) else None
            )
            weights = {
                entry.removeprefix("w."): golden[entry]
                for entry in golden
                if entry.startswith("w.")
            }
            renamed = {
                NAMES.get(weight.split(".")[0], weight.split(".")[0])
                + weight[weight.rindex(".") :]: weights[weight]
                for weight in weights
            }
            own = mixer.state_dict()
            mixer.load_state_dict(
                {**{parameter: renamed.get(parameter, own[parameter]) for parameter in own}}
            )
            mixer.out = torch.nn.Identity()
            keep = marks[sample : sample + 1] >= 0
            found = mixer(golden["x"][sample : sample + 1], keep=keep).out
            close(found[keep], heads[sample : sample + 1][keep], 1e-6)


@pytest.mark.parametrize("name", golden_files("masks"))
def test_sparse_patterns_are_those_of_the_files_masks(name):
    """That code's fixed pattern also opens the first column of each block."""
    golden = load_golden(name)
    for key in (entry for entry in golden if entry.startswith("sparse_")):
        pattern, *numbers = key.removeprefix("sparse_").split("_")
        block, summary = (
            int(numbers[0].removeprefix("b")),
            int(numbers[1].removeprefix("c")) if numbers[1:] else 1,
        )
        length = len(golden[key])
        more = {"summary": summary} if pattern == "fixed" else {}
        config = SparseConfig.model_validate({"pattern": pattern, "block": block, **more})
        core = Sparse(config, Site(dim=4, max_len=length, causal=True))
        nothing, one_hot = torch.zeros(1, 1, length, 4), torch.eye(length)[None, None]
        allowed = core(nothing, nothing, one_hot)[0, 0] > 0
        if pattern == "fixed":
            allowed[:, ::block] = torch.ones_like(allowed).tril()[:, ::block]
        assert torch.equal(allowed, golden[key].bool())


@pytest.mark.parametrize("name", golden_files("bigbird"))
def test_outputs_are_those_of_the_bigbird_layer(name):
    """Of the sample without padding: that code's last block may be padding."""
    golden = load_golden(name)
    heads, blocks = golden["rand"].shape[0], golden["rand"].shape[1] + 2
    size = golden["x"].shape[1] // blocks
    site = site_of({**golden, "heads": heads})
    mixer = AttentionMixer(BigBird(BigBirdConfig(block=size), site), site).double()
    drawn = F.pad(golden["rand"].long(), (0, 0, 1, 1))
    mixer.core.random_blocks = lambda block, last: (drawn, torch.ones_like(drawn, dtype=torch.bool))
    own = mixer.state_dict()
    mixer.load_state_dict(
        {parameter: golden.get(f"w.{parameter}", own[parameter]) for parameter in own}
    )
    mixer.out = torch.nn.Identity()
    whole = slice(None)
    if "mask" in golden:
        whole = golden["mask"].bool().all(1)
    close(mixer(golden["x"]).out[whole], golden["y"][whole], 1e-6)
