"""Mixers that pack tokens into a few: against plain matrices, a sample at a time; refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_alike

import subquad
from subquad.errors import ConfigError, PluginError
from subquad.plugin import Site
from subquad_plugins.dba import Config as DBAConfig
from subquad_plugins.dba.mixer import DBA
from subquad_plugins.luna import Config as LunaConfig
from subquad_plugins.luna.mixer import Luna
from subquad_plugins.numerics.landmarks import segment_means
from subquad_plugins.numerics.tensors import head_convolution
from subquad_plugins.primal import Config as PrimalConfig
from subquad_plugins.primal.mixer import Primal
from subquad_plugins.singularformer import Config as SingularConfig
from subquad_plugins.singularformer.mixer import Singularformer
from subquad_plugins.soft import Config as SOFTConfig
from subquad_plugins.soft.mixer import SOFT


@settings(max_examples=20)
@given(data=st.data())
def test_segments_are_cut_among_real_tokens(data):
    length, count = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    x = torch.randn(2, 2, length, 3, generator=generator, dtype=torch.float64)
    keep = torch.rand(2, length, generator=generator) < 0.7
    keep[:, 0] = True
    found, there = segment_means(x, count, keep)
    assert there is not None
    for sample in range(2):
        real = x[sample][:, keep[sample]]
        n = real.shape[1]
        for i in range(count):
            part = real[:, i * n // count : (i + 1) * n // count]
            assert bool(there[sample, 0, i]) == (part.shape[1] > 0)
            expected = part.mean(1) if part.shape[1] else torch.zeros(2, 3, dtype=torch.float64)
            torch.testing.assert_close(found[sample, :, i], expected, rtol=0, atol=1e-14)
    assert torch.allclose(
        segment_means(x, count)[0], segment_means(x, count, torch.ones_like(keep))[0], atol=1e-14
    )


@pytest.mark.parametrize(
    ("heads", "width", "length"), [(2, 5, 3), (3, 35, 64), (1, 1, 65), (2, 35, 200)]
)
def test_head_convolution_is_a_grouped_convolution(heads, width, length):
    torch.manual_seed(0)
    plain = torch.nn.Conv2d(
        heads, heads, (width, 1), padding=(width // 2, 0), groups=heads, bias=False
    ).double()
    x = torch.randn(2, heads, length, 4, dtype=torch.float64, requires_grad=True)
    found = head_convolution(x, plain.weight[:, 0, :, 0])
    assert_alike(found, plain(x), (x, plain.weight), 5e-13)


@pytest.mark.parametrize(
    ("config", "build"), [(LunaConfig(rank=3), Luna), (DBAConfig(rank=3, inner_dim=4), DBA)]
)
def test_packed_tokens_pass_from_layer_to_layer(config, build):
    torch.manual_seed(0)
    sites = [Site(dim=8, num_heads=2, max_len=9, layer_index=i, num_layers=3) for i in range(3)]
    first, middle, last = (build(config, site).double() for site in sites)
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    keep = torch.arange(9) < torch.tensor([9, 0])[:, None]
    handed = first(x, keep=keep).carry
    assert handed.shape == (2, 3, 8)
    above = middle(x, keep=keep, carry=handed)
    moved = middle(x, keep=keep, carry=handed.roll(1, 2))
    assert not torch.allclose(above.out, moved.out)
    out, _, nothing = last(x, keep=keep, carry=above.carry)
    assert nothing is None
    assert out.isfinite().all()
    assert first.readers.start is not None
    (grad,) = torch.autograd.grad(out.sum(), first.readers.start)
    assert grad.isfinite().all()
    assert grad.any()
    with pytest.raises(
        PluginError, match="the packed tokens of the layer below are missing: use the same mixer"
    ):
        middle(x)


@pytest.mark.parametrize(
    ("build", "config"),
    [(Singularformer, SingularConfig(rank=3)), (Primal, PrimalConfig(rank=3, tokens_per_rank=2))],
)
def test_losses_leave_padding_out(build, config):
    torch.manual_seed(0)
    mixer = build(config, Site(dim=8, num_heads=2)).double()
    x = torch.randn(2, 11, 8, dtype=torch.float64)
    keep = torch.rand(2, 11) < 0.7
    keep[:, 4] = True
    ((name, found),) = mixer(x, keep=keep).losses.items()
    for sample in range(2):
        alone = mixer(x[sample : sample + 1, keep[sample]]).losses[name]
        torch.testing.assert_close(found[sample], alone[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_soft_is_a_gaussian_of_distances_to_landmarks(spread):
    """Also where 16 landmarks are so close that their matrix is nearly of rank 1."""
    torch.manual_seed(0)
    config = SOFTConfig(num_landmarks=16, conv_kernel=0)
    mixer = SOFT(config, Site(dim=4, max_len=32)).double()
    x = torch.randn(1, 1, 4) + spread * torch.randn(2, 32, 4, dtype=torch.float64)
    keep = torch.ones(2, 32, dtype=torch.bool)
    keep[1] = torch.arange(32) % 3 == 1
    found = mixer(x, keep=keep)
    for sample in range(2):
        real = x[sample : sample + 1, keep[sample]]
        q, v = mixer.query(real)[0] * 4**-0.25, mixer.value(real)[0]
        parts = torch.nn.functional.pad(q, (0, 0, 0, len(q) % 2)).view(-1, 8)
        packed = torch.nn.functional.gelu(mixer.norm(mixer.pack(parts)))
        sides, middle = (
            torch.exp(-(torch.cdist(tokens, packed) ** 2) / 2) for tokens in (q, packed)
        )
        mixed = (
            sides
            @ torch.linalg.inv(middle + 0.01 * torch.eye(len(packed), dtype=x.dtype))
            @ sides.mT
            @ v
        )
        torch.testing.assert_close(
            found[sample][keep[sample]], mixer.out(mixed), rtol=1e-8, atol=1e-8
        )


COUNTED = {
    "cur": ("num_indices", 64),
    "dba": ("rank", 16),
    "linformer": ("rank", 64),
    "luna": ("rank", 16),
    "megacur": ("num_indices", 64),
    "nystrom": ("num_landmarks", 64),
    "singularformer": ("rank", 16),
    "soft": ("num_landmarks", 64),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_default_follows_the_length_and_a_larger_value_is_refused(name):
    key, most = COUNTED[name]
    for length in (1, 9, most, most + 1):
        built = subquad.mixer(name, dim=48, num_heads=2, max_len=length)
        assert built.followed == f"{key} {min(most, length)}"
        assert built(torch.randn(2, length, 48)).shape == (2, length, 48)
    with pytest.raises(ConfigError, match=f"{key} 10 is more than the longest sequence has: use 9"):
        subquad.mixer(name, dim=48, num_heads=2, max_len=9, **{key: 10})
    torch.manual_seed(0)
    given = subquad.mixer(name, dim=48, num_heads=2, max_len=9, **{key: 9})
    torch.manual_seed(0)
    followed = subquad.mixer(name, dim=48, num_heads=2, max_len=9)
    x = torch.randn(2, 9, 48)
    assert given.followed == ""
    assert torch.equal(given(x), followed(x))
