"""Long convolutions with implicit kernels, and global filters: against their definitions;
refusals.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.gfnet import Config as GFNetConfig
from subquad_plugins.gfnet.mixer import GFNet
from subquad_plugins.hyena import Config as HyenaConfig
from subquad_plugins.hyena.mixer import Hyena
from subquad_plugins.m2 import Config as M2Config
from subquad_plugins.m2.mixer import M2
from subquad_plugins.numerics.long_conv import causal_conv
from subquad_plugins.numerics.short_conv import ShortConv


def close(got, expected, tolerance=1e-12):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def short(conv, x):
    return F.conv1d(
        F.pad(x.mT, (conv.weight.shape[1] - 1, 0)),
        conv.weight[:, None],
        conv.bias,
        groups=x.shape[2],
    ).mT


@pytest.mark.parametrize("length", [1, 3, 9])
def test_channels_first_in_memory_change_nothing(length):
    torch.manual_seed(0)
    conv, kernel = (
        ShortConv(4, 5).double(),
        torch.randn(4, length, dtype=torch.float64, requires_grad=True),
    )
    tokens = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for x in (tokens, tokens.mT.contiguous().mT):
        y = causal_conv(conv(x)[0], kernel)
        assert length == 1 or y.is_contiguous() == (x is tokens)
        inputs = [tokens, kernel, *conv.parameters()]
        found.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for tensor, other in zip(*found, strict=True):
        close(tensor, other)
    y = conv(tokens.mT.contiguous().mT)[0]
    close(y, short(conv, tokens))


def test_networks_are_trained_without_decay():
    for mixer in (
        Hyena(HyenaConfig(), Site(dim=4, max_len=8)),
        M2(M2Config(), Site(dim=4, max_len=8)),
    ):
        rules, names = mixer.parameter_rules(), dict(mixer.named_parameters())
        assert set(rules) <= set(names)
        assert {name for name in names if "frequency" in name} <= set(rules)
        assert not any(rule.weight_decay for rule in rules.values())


def test_longer_sequences_are_refused():
    with pytest.raises(PluginError, match="got 9 positions, and kernels were made for 8"):
        Hyena(HyenaConfig(), Site(dim=4, max_len=8))(torch.zeros(1, 9, 4))
    with pytest.raises(PluginError, match="gfnet: got 10 positions, and it was built for 9"):
        GFNet(GFNetConfig(), Site(dim=4, max_len=9, grid=(3, 3)))(torch.zeros(1, 10, 4))
