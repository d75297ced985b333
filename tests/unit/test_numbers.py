"""Float32 is float32 where it is promised; weights are made dense, and files keep their kinds."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from subquad.engine.stored import packed, unpacked
from subquad.errors import DataError, PluginError
from subquad.nn import TokenMixer
from subquad.nn.kernels import using
from subquad.nn.numbers import dense, single_precision
from subquad.plugin import Facts, MixerConfig
from subquad_check import certify
from subquad_plugins.wavelet.dwt import wavelet_mix
from subquad_tools.bench.clock import one_thread

SEEN: list[bool] = []


@pytest.fixture(params=[True, False])
def allowed(request, monkeypatch):
    """What torch was told of TF32 in convolutions; True is its default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", request.param)
    SEEN.clear()
    yield request.param
    assert torch.backends.cudnn.allow_tf32 == request.param


class Watching(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.linear = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        SEEN.append(torch.backends.cudnn.allow_tf32)
        return self.linear(x)


@pytest.mark.parametrize("tf32", [False, True])
def test_the_switches_are_put_back(allowed, tf32):
    with single_precision(tf32=tf32):
        assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == tf32


def test_the_certificate_and_bench_compute_in_float32(allowed):
    certify(Watching, only=["shapes", "precision-fp32"])
    assert len(SEEN) > 3
    assert not any(SEEN)
    with one_thread():
        assert not torch.backends.cudnn.allow_tf32


def test_the_wavelets_convolutions_are_in_float32_in_both_passes(allowed, monkeypatch):
    def watched(convolve, *given, **words):
        SEEN.append(torch.backends.cudnn.allow_tf32)
        return convolve(*given, **words)

    for name in ("conv1d", "conv_transpose1d"):
        monkeypatch.setattr(functional, name, partial(watched, getattr(functional, name)))
    x = torch.randn(2, 19, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, dtype=torch.float64)
    gradients = []
    for forced in ("reference", "conv1d"):
        with using({"wavelet.mix": forced}):
            found = wavelet_mix(x, weights, "db2")
        gradients += torch.autograd.grad(found.square().sum(), x)
    assert len(SEEN) == 8  # two levels, down and up, forward and backward
    assert not any(SEEN)
    torch.testing.assert_close(*gradients)


def module(**tensors):
    built = nn.Module()
    for name, tensor in tensors.items():
        setattr(built, name, nn.Parameter(tensor))
    return built


def test_weights_are_made_dense_with_equal_values():
    large = torch.randn(6, 8, dtype=torch.complex64)
    built = module(
        columns=large[:, ::2],
        others=large[:, 1::2],
        real=torch.randn(2, 3, dtype=torch.complex64).conj().imag,
    )
    built.register_buffer("row", torch.arange(3).expand(4, 3))
    built.tied = built.columns
    expected = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    dense(built, torch.float64)
    assert built.tied is built.columns
    for name, tensor in built.state_dict().items():
        assert tensor.is_contiguous()
        assert not tensor.is_conj()
        assert not tensor.is_neg()
        assert torch.equal(tensor, expected[name].to(tensor.dtype))
    kinds = [str(tensor.dtype)[6:] for tensor in built.state_dict().values()]
    assert kinds == ["complex128", "complex128", "float64", "complex128", "int64"]


@pytest.mark.parametrize(
    "second", [lambda w: w[1:2], lambda w: w.t(), lambda w: w.view(torch.int32)]
)
def test_weights_that_share_numbers_are_refused(second):
    weight = torch.randn(4, 4)
    built = module(first=weight)
    built.register_buffer("second", second(weight))
    words = (
        "^second shares memory with first, and each would be trained alone; give both names the "
        r"same Parameter, or one of them a copy: \.clone\(\)$"
    )
    with pytest.raises(PluginError, match=words):
        dense(built, torch.float32)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.int16, torch.bool])
def test_files_give_back_each_kind_of_number(dtype):
    given = {"a": torch.randn(3, 2).to(dtype), "b/exp_avg": torch.zeros((), dtype=dtype)}
    found = unpacked("file", packed(given))
    for name, tensor in given.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_pairs_that_are_none_are_refused():
    content = packed({"a:complex128": torch.ones(3)})
    with pytest.raises(DataError, match="file: not a safetensors file: "):
        unpacked("file", content)
