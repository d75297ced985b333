"""Long convolutions with implicit kernels, and global filters: against their definitions; refusals."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.gfnet import Config as GFNetConfig
from subquad_plugins.gfnet.mixer import GFNet
from subquad_plugins.hyena import Config as HyenaConfig
from subquad_plugins.hyena.filter import ImplicitFilter
from subquad_plugins.hyena.mixer import Hyena
from subquad_plugins.m2 import Config as M2Config
from subquad_plugins.m2.mixer import M2
from subquad_plugins.numerics.long_conv import causal_conv
from subquad_plugins.numerics.short_conv import ShortConv


def close(got, expected, tolerance=1e-12):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def convolved(x, kernel, future=None):
    """By the matrix of the convolution, token by token."""
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for s in range(x.shape[1]):
            if s <= t:
                out[:, t] += kernel[:, t - s] * x[:, s]
            elif future is not None:
                out[:, t] += future[:, s - t - 1] * x[:, s]
    return out


def short(conv, x):
    return F.conv1d(F.pad(x.mT, (conv.weight.shape[1] - 1, 0)), conv.weight[:, None], conv.bias, groups=x.shape[2]).mT


@pytest.mark.parametrize("length", [1, 3, 9])
def test_channels_first_in_memory_change_nothing(length):
    torch.manual_seed(0)
    conv, kernel = ShortConv(4, 5).double(), torch.randn(4, length, dtype=torch.float64, requires_grad=True)
    tokens = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for x in (tokens, tokens.mT.contiguous().mT):
        y = causal_conv(conv(x)[0], kernel)
        assert length == 1 or y.is_contiguous() == (x is tokens)
        inputs = [tokens, kernel, *conv.parameters()]
        found.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for one, other in zip(*found, strict=True):
        close(one, other)
    y = conv(tokens.mT.contiguous().mT)[0]
    close(y, short(conv, tokens))


def test_a_kernel_is_the_network_of_its_position():
    torch.manual_seed(0)
    made = ImplicitFilter(HyenaConfig(filter_dim=4, position_dim=5), Site(dim=3, max_len=11), 3).double()
    kernel = made.kernel(7)
    for n in range(7):
        angles = torch.tensor([1e-4, 1.0], dtype=torch.float64) * 2 * math.pi * n / 11
        hidden = torch.cat([torch.tensor([n / 10], dtype=torch.float64), angles.cos(), -angles.sin()])
        for layer in made.layers:
            hidden = torch.sin(made.frequency * layer(hidden))
        falls = [math.exp(math.log(0.01) * n / 10 * rate) for rate in (1 / 1.5, (1 / 1.5 + 1 / 0.3) / 2, 1 / 0.3)]
        close(kernel[:, n], made.last(hidden) * torch.tensor(falls, dtype=torch.float64))


def test_hyena_is_its_definition():
    torch.manual_seed(0)
    mixer = Hyena(HyenaConfig(order=3, filter_dim=8), Site(dim=4, max_len=12)).double()
    x = torch.randn(2, 9, 4, dtype=torch.float64)
    first, second, third, v = short(mixer.conv, mixer.enter(x)).chunk(4, -1)
    for gate, kernel, bias in zip((third, second), mixer.filter.kernel(9).chunk(2), mixer.bias, strict=True):
        v = convolved(v * gate, kernel) + bias * v * gate
    close(mixer(x), mixer.out(first * v))


@pytest.mark.parametrize("causal", [True, False])
def test_monarch_mixer_is_its_definition(causal):
    torch.manual_seed(0)
    mixer = M2(M2Config(filter_dim=8), Site(dim=4, max_len=12, causal=causal)).double()
    x = torch.randn(2, 9, 4, dtype=torch.float64)

    def long(part, y):
        future = None if part.future is None else part.future.kernel(9)
        return convolved(y, part.past.kernel(9), future) + part.bias * y

    inner, outer, v = short(mixer.conv, mixer.enter(x)).chunk(3, -1)
    close(mixer(x), mixer.out(outer * long(mixer.gated, inner * v) + long(mixer.residual, x)))


def test_networks_are_trained_without_decay():
    for mixer in (Hyena(HyenaConfig(), Site(dim=4, max_len=8)), M2(M2Config(), Site(dim=4, max_len=8))):
        rules, names = mixer.parameter_rules(), dict(mixer.named_parameters())
        assert set(rules) <= set(names)
        assert {name for name in names if "frequency" in name} <= set(rules)
        assert not any(rule.weight_decay for rule in rules.values())


def test_a_global_filter_is_a_circular_convolution_of_the_grid():
    """Whose kernel is the transform of the weights; tokens in front take no part."""
    torch.manual_seed(0)
    mixer = GFNet(GFNetConfig(scale=1.0), Site(dim=2, max_len=13, grid=(3, 4), num_prefix_tokens=1)).double()
    x = torch.randn(1, 13, 2, dtype=torch.float64)
    kernel = torch.fft.irfft2(torch.view_as_complex(mixer.weight), s=(3, 4), dim=(0, 1))
    image, expected = x[0, 1:].unflatten(0, (3, 4)), torch.zeros(3, 4, 2, dtype=torch.float64)
    for i in range(3):
        for j in range(4):
            expected += image[i, j] * kernel.roll((i, j), (0, 1))
    found = mixer(x)[0]
    close(found[1:], expected.flatten(0, 1))
    assert not found[0].any()


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValidationError, match="position_dim 4 is even: it counts the position, and pairs of features"):
        HyenaConfig(position_dim=4)
    with pytest.raises(PluginError, match="kernels made of positions need the length of the longest sequence"):
        Hyena(HyenaConfig(), Site(dim=4))
    with pytest.raises(PluginError, match="got 9 positions, and kernels were made for 8"):
        Hyena(HyenaConfig(), Site(dim=4, max_len=8))(torch.zeros(1, 9, 4))
    with pytest.raises(PluginError, match="gfnet: neither a grid nor the length of the longest sequence is known"):
        GFNet(GFNetConfig(), Site(dim=4))
    with pytest.raises(PluginError, match="gfnet: got 10 positions, and it was built for 9"):
        GFNet(GFNetConfig(), Site(dim=4, max_len=9, grid=(3, 3)))(torch.zeros(1, 10, 4))


def test_a_grid_that_is_not_the_sequence_is_refused():
    GFNetConfig().check(Site(dim=4, max_len=10, grid=(3, 3), num_prefix_tokens=1))
    said = "gfnet filters the grid of 3 x 3 patches, which with 1 tokens in front are 10, and sequences have up to 12"
    with pytest.raises(ValueError, match=said):
        GFNetConfig().check(Site(dim=4, max_len=12, grid=(3, 3), num_prefix_tokens=1))
