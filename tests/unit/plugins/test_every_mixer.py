"""Every built-in mixer, in every way that it is built and with further settings: what the
certificate does not ask.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from built_in import abouts, all_subjects
from tensors import drawn, gradients, padded_everywhere
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from subquad.nn import as_output
from subquad_check import CheckSubject
from subquad_plugins.about import About

SUBJECTS = all_subjects()
STARTS, LENGTH = (5, 1, 0), 12


def about_of(subject: CheckSubject) -> About:
    return abouts()[subject.resolved.found.name]


def those(chosen: Callable[[CheckSubject], Any]) -> list[str]:
    return [name for name, subject in SUBJECTS.items() if chosen(subject)]


def out_of(mixer: Any, x: Tensor, keep: Tensor | None = None) -> Tensor:
    return as_output(mixer(x, keep=keep)).out


@pytest.mark.parametrize("name", those(lambda subject: subject.causal and subject.build().caches))
def test_decoding_from_any_start_gives_the_whole(name):
    """No step changes its cache; some mixers also go on from no token at all."""
    mixer, x = SUBJECTS[name].build(), drawn(3, LENGTH, 16)
    starts = torch.tensor(STARTS)
    with torch.no_grad():
        whole = out_of(mixer, x)
        keep = torch.arange(max(STARTS)) < starts[:, None]
        out, cache = mixer.prefill(x[:, : max(STARTS)], keep=keep)
        torch.testing.assert_close(out[keep], whole[:, : max(STARTS)][keep], rtol=1e-12, atol=1e-12)
        for step in range(LENGTH - max(STARTS)):
            places = starts + step
            before = [leaf.clone() for leaf in tree_leaves(cache)]
            token, after = mixer.step(x[torch.arange(3), places], cache)
            expected = whole[torch.arange(3), places]
            torch.testing.assert_close(token, expected, rtol=1e-12, atol=1e-12)
            assert all(map(torch.equal, tree_leaves(cache), before))
            cache = after
        from_nothing = (None, torch.ones(3, 0, dtype=torch.bool))
        for mask in from_nothing if not about_of(SUBJECTS[name]).multiplies else ():
            out, cache = mixer.prefill(x[:, :0], keep=mask)
            assert out.shape == (3, 0, 16)
            for place in range(3):
                token, cache = mixer.step(x[:, place], cache)
                torch.testing.assert_close(token, whole[:, place], rtol=1e-12, atol=1e-12)


FURTHER = [name for name in SUBJECTS if "{" in name]


@pytest.mark.parametrize("name", FURTHER)
def test_neither_padding_nor_other_samples_nor_their_lack_matters(name):
    """What the certificate proves of the variants."""
    mixer, x = SUBJECTS[name].build(), drawn(4, 11, 16).requires_grad_()
    keep = padded_everywhere(11)
    keep[2] = False
    out = out_of(mixer, x, keep)
    found = torch.autograd.grad(out.sum(), [x, *mixer.parameters()])
    assert all(bool(tensor.isfinite().all()) for tensor in (out, *found))
    loud = out_of(mixer, x.masked_fill(~keep[..., None], 1e3), keep)
    assert torch.equal(loud[keep], out[keep])
    for sample in (0, 1, 3):
        alone = out_of(mixer, x[sample : sample + 1, keep[sample]])
        torch.testing.assert_close(out[sample, keep[sample]], alone[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", those(lambda subject: subject.variant == "default"))
def test_dropout_acts_in_training_alone(name):
    subject, x = SUBJECTS[name], drawn(3, 9, 16)
    rates = [field for field in type(subject.config).model_fields if "dropout" in field]
    without = out_of(subject.build(), x)
    for rate in rates:
        config = subject.config.model_copy(update={rate: 0.5})
        mixer = replace(subject, config=config).build()
        assert torch.equal(out_of(mixer, x), without)
        mixer.train()
        assert not torch.equal(out_of(mixer, x), out_of(mixer, x))


def bare(mixer: nn.Module) -> nn.Module:
    """The mixer with projections that do nothing, so that autocast has nothing to make narrow."""
    for name, module in list(mixer.named_modules()):
        if isinstance(module, nn.Linear):
            mixer.set_submodule(name, nn.Identity())
    return mixer


@pytest.mark.parametrize("name", those(lambda subject: not about_of(subject).multiplies))
@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_autocast_changes_nothing_beside_the_projections(name, inside):
    """But for the tokens' format, where no projection stands before them."""
    cast = about_of(SUBJECTS[name]).casts
    mixer = bare(SUBJECTS[name].build(dtype=torch.float32))
    x, keep = drawn(4, 9, 16, dtype=torch.float32).requires_grad_(), padded_everywhere(9)
    inputs = (x, *mixer.parameters())
    for mask in (None, keep):
        expected = out_of(mixer, x.bfloat16() if cast else x, mask)
        wanted = gradients(expected.sin(), inputs)
        with torch.autocast("cpu", torch.bfloat16):
            out = out_of(mixer, x, mask)
            with torch.autocast("cpu", torch.bfloat16, enabled=inside):
                got = gradients(out.sin(), inputs)
        assert out.dtype == expected.dtype
        assert cast or out.dtype == torch.float32
        for ours, theirs in zip((out, *got), (expected, *wanted), strict=True):
            scale = max(1.0, float(theirs.detach().abs().max()))
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6 * scale)
    if mixer.caches:
        steps = []
        for enabled, tokens in ((False, x.bfloat16() if cast else x), (True, x)):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled), torch.no_grad():
                _, cache = mixer.prefill(tokens[:, :8])
                steps.append(mixer.step(tokens[:, 8], cache)[0])
        torch.testing.assert_close(steps[1], steps[0], rtol=1e-6, atol=1e-6)
