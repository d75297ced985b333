"""Counts against numbers worked out by hand. B batch, L length, D width, H heads, E head width,
K kernel.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subquad.cost import Count, count_pass, counting
from subquad.cost.counter import _touched
from subquad.nn import MixerOutput

B, L, D = 2, 8, 6
FLOAT = 4


class Wrapped(nn.Module):
    """A function as a mixer."""

    def __init__(self, function, *parts: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor, *, keep: Tensor | None = None) -> Tensor:
        return self.function(x)


def counted(function, *inputs: Tensor) -> Count:
    """The forward pass alone, of plain tensors."""
    with torch.no_grad(), counting() as count:
        function(*inputs)
    return count


def passes(function, *parts: nn.Module, x: Tensor | None = None) -> tuple[Count, Count]:
    """Forward alone, and forward with backward."""
    mixer, x = Wrapped(function, *parts), torch.randn(B, L, D) if x is None else x
    return count_pass(mixer, x, backward=False), count_pass(mixer, x)


def test_linear():
    linear = nn.Linear(D, 5)
    forward, both = passes(linear, linear)
    product = 2 * B * L * D * 5
    assert forward.flops == product
    assert forward.moved == FLOAT * (B * L * D + D * 5 + 5 + B * L * 5)
    # The gradients of x and of the weight are one product each, that of the bias a sum.
    assert both.flops == 3 * product + B * L * 5
    # Backward: each product reads the gradient and one factor and writes the other's; the sum reads
    # it and writes 5.
    grad = B * L * 5
    assert both.moved - forward.moved == FLOAT * (
        (grad + D * 5 + B * L * D) + (grad + B * L * D + D * 5) + (grad + 5)
    )
    assert both.unknown == ()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_squares_but_moves_only_what_goes_in_and_out(causal):
    heads, width = 2, 4
    x = torch.randn(B, heads, L, width)
    forward, both = passes(
        lambda q: F.scaled_dot_product_attention(q, q + 1, q + 2, is_causal=causal), x=x
    )
    scores = 2 * B * heads * L * L * width
    plus = 2 * x.numel()  # q + 1 and q + 2
    accumulated = 2 * x.numel()  # their gradients added to that of q
    assert forward.flops == 2 * scores + plus
    assert both.flops == 2 * scores + 5 * scores + plus + accumulated
    statistics = B * heads * L
    assert forward.moved == FLOAT * (4 * x.numel() + statistics + 4 * x.numel())
    assert max(both.largest.values()) == x.numel()


@pytest.mark.parametrize("length", [8, 7, 12])
@pytest.mark.parametrize(
    ("function", "factor", "pairs"),
    [
        (torch.fft.fft, 5, False),
        (torch.fft.rfft, 2.5, False),
        (lambda x: torch.fft.irfft(x, n=x.shape[-1]), 2.5, True),
    ],
)
def test_fft(function, factor, pairs, length):
    x = torch.randn(
        3, length, dtype=torch.complex64 if pairs or function is torch.fft.fft else torch.float32
    )
    found = counted(lambda x: function(x), x)
    assert found.flops == round(factor * 3 * length * math.log2(length))
    assert found.unknown == ()


def test_fft_of_two_dimensions_is_one_long_one():
    x = torch.randn(3, 4, 8, dtype=torch.complex64)
    assert counted(torch.fft.fft2, x).flops == 5 * 3 * 32 * 5


def test_backward_of_an_fft_is_an_fft():
    x = torch.randn(B, L, D)
    forward, both = passes(
        lambda x: torch.view_as_real(torch.fft.fft(x.to(torch.complex64), dim=1)), x=x
    )
    transform = 5 * B * D * L * 3
    assert forward.flops == transform
    assert both.flops == 2 * transform


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(groups, bias):
    conv = nn.Conv1d(D, D, 3, padding=1, groups=groups, bias=bias)
    forward, both = passes(lambda x: conv(x.transpose(1, 2)), conv)
    products = 2 * B * L * D * (D // groups) * 3
    assert forward.flops == products
    assert both.flops == 3 * products + bias * B * L * D
    assert both.unknown == ()


def test_transposed_convolution():
    conv = nn.ConvTranspose1d(D, 4, 3, stride=2, bias=False)
    _, both = passes(lambda x: conv(x.transpose(1, 2)), conv)
    assert both.flops == 3 * 2 * B * L * D * 4 * 3


def test_recurrent_layer():
    lstm = nn.LSTM(D, 5, batch_first=True)
    forward, both = passes(lambda x: lstm(x)[0], lstm)
    products = 2 * B * L * 4 * 5 * (D + 5)
    assert forward.flops == products
    # and sums of the gradients of shared tensors
    assert 3 * products <= both.flops < 3.1 * products
    assert both.unknown == ()


def test_elementwise_and_broadcast():
    x, row = torch.randn(B, L, D), torch.randn(D)
    found = counted(torch.add, x, row)
    assert found.flops == B * L * D
    assert found.moved == FLOAT * (2 * B * L * D + D)


def test_in_place_reads_what_it_changes_but_a_fill_does_not():
    x = torch.randn(10)
    assert counted(lambda x: x.add_(1), x).moved == FLOAT * 20
    assert counted(lambda x: x.zero_(), x).moved == FLOAT * 10
    assert counted(lambda x: x.copy_(torch.empty(10)), x).moved == FLOAT * 20
    assert counted(lambda x: x.zero_().copy_(torch.empty(10)), x).flops == 0


def test_complex_products_are_six():
    x = torch.randn(10, dtype=torch.complex64)
    assert counted(torch.mul, x, x).flops == 60
    assert counted(torch.add, x, x).flops == 20


def test_views_and_numbers_are_free():
    x = torch.randn(4, 6, requires_grad=True)
    found = counted(
        lambda x: (x.view(24).unflatten(0, (6, 4)).mT.expand(5, 4, 6).detach(), x[0, 0].item()), x
    )
    assert (found.flops, found.moved, found.operations, found.unknown) == (0, 0, 0, ())


def test_a_gather_reads_only_what_it_writes():
    table, index = torch.randn(1000, 4), torch.tensor([1, 2, 3])
    assert counted(lambda: table[index]).moved == FLOAT * 24 + 8 * 3
    assert counted(lambda: F.embedding(index, table)).moved == FLOAT * 24 + 8 * 3
    assert (
        counted(lambda: table.index_add_(0, index, torch.ones(3, 4))).moved
        == FLOAT * (12 + 3 * 12) + 8 * 3
    )


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda x: x.sum(), 64),
        (lambda x: x.sort(-1), 64 * 3),
        (lambda x: x.topk(4, -1), 64 * 2),
        (lambda x: x.cumsum(0), 64),
        (lambda x: torch.softmax(x, -1), 5 * 64),
        (lambda x: torch.linalg.inv(x), 2 * 8**3),
        (lambda x: torch.linalg.solve(x, x), round(2 / 3 * 8**3) + 2 * 8**3),
        (
            lambda x: torch.linalg.cholesky(x @ x.mT + 9 * torch.eye(8)),
            2 * 8**3 + 2 * 64 + round(8**3 / 3),
        ),
        (lambda x: F.layer_norm(x, (8,)), 8 * 64),
        (lambda x: x @ x[0], 2 * 64),
        (lambda x: torch.cat([x, x]).roll(1).flip(0).clone(), 0),
        (lambda x: torch.rand(8), 8),
    ],
)
def test_other_operations(function, flops):
    generator = torch.Generator().manual_seed(0)
    found = counted(function, torch.randn(8, 8, generator=generator))
    assert found.flops == flops
    assert found.unknown == ()


def test_custom_functions_are_seen_through():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x.mT

        @staticmethod
        def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
            (x,) = ctx.saved_tensors
            return (grad + grad.mT) @ x

    forward, both = passes(Square.apply)
    product = 2 * B * L * L * D
    assert forward.flops == product
    assert both.flops == 2 * product + B * L * L
    assert both.largest["aten::bmm"] == B * L * L


def test_only_losses_with_a_weight_are_differentiated():
    class WithLosses(nn.Module):
        def __init__(self, weight: float):
            super().__init__()
            self.loss_weights = {"extra": weight}

        def forward(self, x: Tensor, *, keep: Tensor | None = None) -> MixerOutput:
            return MixerOutput(x * 2, {"extra": x.exp().sum((1, 2))})

    x = torch.randn(B, L, D)
    without, with_it = (count_pass(WithLosses(weight), x).flops for weight in (0.0, 0.5))
    # the product with exp(x), and the sum of two gradients
    assert with_it == without + 2 * x.numel()


def test_counting_leaves_gradients_alone():
    linear = nn.Linear(D, D)
    x = torch.randn(B, L, D)
    linear.weight.grad = grad = torch.ones(D, D)
    count_pass(Wrapped(linear, linear), x)
    assert x.grad is linear.bias.grad is None
    assert linear.weight.grad is grad
    assert torch.equal(grad, torch.ones(D, D))


def test_numbers_from_python_are_noticed():
    numbers = [0.0] * 100
    for make in (lambda x: torch.tensor(data=numbers), lambda x: torch.as_tensor(numbers)):
        assert counted(make, torch.ones(1)).has_entered
    assert not counted(lambda x: torch.as_tensor(x), torch.ones(100)).has_entered


def test_a_reentrant_checkpoint_is_counted():
    linear = nn.Linear(D, D)
    plain, both = passes(linear, linear)
    saving = Wrapped(lambda x: checkpoint(linear, x, use_reentrant=True), linear)
    again = count_pass(saving, torch.randn(B, L, D))
    assert again.flops == both.flops + plain.flops


def test_an_operation_without_a_rule_is_named():
    @torch.library.custom_op("subquad_tests::mystery", mutates_args=())
    def mystery(x: Tensor) -> Tensor:
        return x * 2

    found = counted(mystery, torch.randn(4))
    assert found.unknown == ("subquad_tests::mystery",)


def test_a_higher_order_operator_is_named():
    found = counted(
        lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), torch.ones(4)
    )
    assert found.unknown == ("cond",)


def test_a_formula_of_a_library_for_its_own_operation_counts():
    from torch.utils.flop_counter import register_flop_formula

    @torch.library.custom_op("subquad_tests::known", mutates_args=())
    def known(x: Tensor) -> Tensor:
        return x * 2

    register_flop_formula(torch.ops.subquad_tests.known)(
        lambda x_shape, out_shape=None, **_: 7 * math.prod(x_shape)
    )
    found = counted(known, torch.randn(4))
    assert (found.flops, found.moved, found.unknown) == (28, 2 * 4 * FLOAT, ())


@pytest.mark.parametrize("exit_", ["numpy", "tolist", "data_ptr", "__array__"])
def test_leaving_torch_is_named(exit_):
    assert counted(lambda x: getattr(x, exit_)(), torch.zeros(100)).unknown == (f"Tensor.{exit_}",)
    assert counted(lambda x: getattr(x, exit_)(), torch.zeros(3)).unknown == ()


def test_bytes_of_broadcast_and_overlapping_tensors_are_those_they_hold():
    x = torch.randn(4)
    assert _touched(x.expand(100, 4)) == 16
    assert _touched(x.unfold(0, 3, 1)) == 16
    assert _touched(torch.empty(0, 3)) == 0


def test_counts_add_up():
    count = Count(flops=1, moved=2, operations=3, largest={"a": 5}, unknown=("x",))
    other = Count(flops=10, moved=20, operations=30, largest={"a": 2, "b": 9}, unknown=("w", "x"))
    total = count + other
    assert (total.flops, total.moved, total.operations) == (11, 22, 33)
    assert (total.largest, total.unknown, total.peak) == ({"a": 5, "b": 9}, ("w", "x"), 9)


@pytest.mark.ci
def test_compiled_functions_are_counted_as_written():
    """Also one that is compiled while it is counted, and neither is traced through the counter."""
    graphs = []

    def swallow(graph, inputs):
        graphs.append(graph)
        return lambda *args: (torch.zeros(L, L),)

    def gram(x):
        return x @ x.mT

    def compiled_late(x):
        return torch.compile(gram, backend=swallow)(x)

    for function in (torch.compile(gram, backend=swallow), compiled_late):
        assert counted(function, torch.ones(L, D)).flops == 2 * L * L * D
    assert graphs == []
