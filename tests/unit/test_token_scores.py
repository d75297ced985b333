"""Scores of tokens from hidden states: values and gradients of plain cross entropy, in pieces,
without all logits.
"""

import pytest
import torch
import torch.nn.functional as F

from subquad.data import NO_LABEL
from subquad.nn import token_scores

VOCABULARY = 11


def drawn(dtype=torch.float64):
    torch.manual_seed(0)
    hidden = torch.randn(3, 5, 4, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCABULARY, 4, dtype=dtype, requires_grad=True)
    bias = torch.randn(VOCABULARY, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (3, 5))
    labels[0, 3:] = labels[2] = NO_LABEL
    return hidden, weight, bias, labels


@pytest.mark.parametrize("at_once", [1, 3 * VOCABULARY, 10**6])
def test_values_and_gradients_are_those_of_cross_entropy(at_once):
    hidden, weight, bias, labels = drawn()
    smoothing = 0.3

    def plain():
        logits, real = F.linear(hidden, weight, bias), labels != NO_LABEL
        return F.cross_entropy(
            logits[real], labels[real], reduction="sum", label_smoothing=smoothing
        ), logits

    scores = token_scores(hidden, weight, labels, bias, at_once=at_once)
    mixed = ((1 - smoothing) * scores.loss + smoothing * scores.smooth).sum()
    expected, logits = plain()
    assert mixed.item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.equal(
        scores.predicted, logits.argmax(-1).masked_fill(labels == NO_LABEL, NO_LABEL)
    )
    assert not scores.loss[labels == NO_LABEL].any()
    inputs = (hidden, weight, bias)
    for ours, theirs in zip(
        torch.autograd.grad(mixed, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_batch_without_any_label_has_zero_gradients():
    hidden, weight, _, labels = drawn()
    token_scores(hidden, weight, torch.full_like(labels, NO_LABEL)).loss.sum().backward()
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_all_logits_never_exist():
    """Of 40,000 tokens and 600 positions, at most some of 100 positions are held at a time,
    forward and backward.
    """
    positions, vocabulary = 600, 40_000
    hidden = torch.randn(1, positions, 8, requires_grad=True)
    weight = torch.randn(vocabulary, 8, requires_grad=True)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(
                largest,
                *(
                    tensor.numel()
                    for tensor in (out if isinstance(out, tuple) else (out,))
                    if tensor is not None and isinstance(tensor, torch.Tensor)
                ),
                0,
            )
            return out

    with Watch():
        labels = torch.zeros(1, positions, dtype=torch.long)
        token_scores(hidden, weight, labels, at_once=100 * vocabulary).loss.sum().backward()
    assert largest <= 100 * vocabulary
