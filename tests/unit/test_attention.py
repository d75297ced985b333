"""Attention cores with the calls and weights of `torch.nn.MultiheadAttention`."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import subquad
from subquad.errors import PluginError

D, H = 16, 4


@pytest.fixture
def pair() -> tuple[nn.MultiheadAttention, nn.MultiheadAttention]:
    """torch's own module, and ours on softmax with its weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, batch_first=True).double().eval()
    ours = subquad.attention("softmax", D, H, batch_first=True).double().eval()
    nn.init.normal_(theirs.in_proj_bias)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_on_softmax_it_is_torchs_own(pair):
    theirs, ours = pair
    q, kv = torch.randn(3, 5, D).double(), torch.randn(3, 7, D).double()
    padding = torch.arange(7) >= torch.tensor([[7], [4], [1]])
    infinite = torch.zeros(3, 7).double().masked_fill(padding, -torch.inf)
    for given in ((q, kv, kv), (kv, kv, kv)):
        for mask in (None, padding, infinite):
            expected, _ = theirs(*given, key_padding_mask=mask, need_weights=False)
            torch.testing.assert_close(
                ours(*given, key_padding_mask=mask)[0], expected, rtol=0, atol=1e-12
            )
    torch.testing.assert_close(
        ours(q[0], kv[0], kv[0], padding[1])[0], theirs(q[0], kv[0], kv[0], padding[1])[0]
    )
    theirs.batch_first = ours.batch_first = False
    torch.testing.assert_close(ours(q, q, q)[0], theirs(q, q, q)[0])


def test_torchs_encoder_runs_the_core_also_in_evaluation(pair):
    layer = nn.TransformerEncoderLayer(D, H, 32, dropout=0.0, batch_first=True).double()
    x, padding = torch.randn(2, 9, D).double(), torch.arange(9) >= torch.tensor([[9], [6]])
    softmax = layer.eval()(x, src_key_padding_mask=padding)
    layer.self_attn = subquad.attention("cur", D, H, batch_first=True, num_indices=4).double()
    trained = layer.train()(x, src_key_padding_mask=padding)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, src_key_padding_mask=padding), trained)
    assert (trained - softmax)[:, :6].abs().max() > 1e-3


def test_what_it_cannot_do_is_said(pair):
    _, ours = pair
    x = torch.randn(2, 5, D).double()
    with pytest.raises(PluginError, match="need_weights: an attention core has no weights to show"):
        ours(x, x, x, need_weights=True)
    with pytest.raises(PluginError, match="attn_mask: an attention core takes no mask"):
        ours(x, x, x, attn_mask=torch.zeros(5, 5))
    with pytest.raises(PluginError, match="rotary: it belongs to projections"):
        subquad.attention("softmax", D, H, rotary=True)
    with pytest.raises(PluginError, match="mixer 'agf' is no attention core"):
        subquad.attention("agf", D, H)


@pytest.mark.parametrize("name", ["agf", "softmax", "identity", "mega", "sfpc", "luna"])
def test_a_mixer_from_python_is_a_layer_of_torch(name):
    params = {"rank": 4} if name == "luna" else {}
    mixer = subquad.mixer(name, dim=D, num_heads=H, max_len=8, num_layers=2, **params)
    x = torch.randn(2, 8, D)
    network = nn.Sequential(nn.Linear(D, D), mixer, nn.LayerNorm(D))
    out = network(x)
    assert out.shape == (2, 8, D)
    full = mixer(x, return_output=True)
    assert isinstance(full, subquad.nn.MixerOutput)
    assert mixer.losses == full.losses
    assert (full.carry is not None) == (name == "luna")
    mixer.eval()
    assert torch.equal(mixer(x), mixer(x, return_output=True).out)


def test_a_layer_that_was_called_can_be_copied_and_pickled():
    mixer = subquad.mixer("agf", dim=D, num_heads=H)
    keep = torch.ones(2, 5, dtype=torch.bool)
    out = mixer(torch.randn(2, 5, D), keep=keep)
    assert mixer.losses
    assert mixer.loss_weights.keys() >= mixer.losses.keys()
    sum(loss.sum() for loss in mixer.losses.values()).backward()
    for again in (copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):  # noqa: S301
        assert not again.losses
        assert again(torch.randn(2, 5, D)).shape == out.shape
        assert again.losses


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of torch's compiler
def test_a_layer_can_be_compiled():
    mixer = subquad.mixer("softmax", dim=D, num_heads=H).eval()
    x = torch.randn(2, 5, D)
    compiled = torch.compile(mixer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), mixer(x))
    assert torch.equal(compiled(x, return_output=True).out, mixer(x))
