"""Flash-CUR: kernels against the reference in float64, as CUR and Nystrom use it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interpreted import assert_near, fill_with_nan, multiply_bf16, on_cpu

from subquad.nn.kernels import using
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.numerics import landmark_kernel
from subquad_plugins.numerics.landmarks import _ATTENTION, Given
from subquad_plugins.numerics.pinv import pseudo_inverse


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _ATTENTION)
    multiply_bf16(monkeypatch)


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def inputs(queries, keys, width, v_width, dtype=torch.float32, samples=1):
    """Queries, keys and values of samples with two heads; each of these is a program of its own."""
    draw = drawn(queries + keys)
    shapes = ((queries, width), (keys, width), (keys, v_width))
    return [torch.randn(samples, 2, *shape, generator=draw).to(dtype) for shape in shapes]


def picks(tensors, counts, repeated=False):
    """Other rows of Q and of K for each sample and head; the first one twice."""
    found = []
    for x, count in zip(tensors, counts, strict=False):
        order = torch.rand(x.shape[:3], generator=drawn(3)).argsort(-1)[..., :count]
        if repeated:
            order[..., -1] = order[..., 0]
        found.append(order)
    return found


def means(tensors, counts):
    return [
        torch.randn(*x.shape[:2], count, x.shape[3], generator=drawn(4)).to(x.dtype)
        for x, count in zip(tensors, counts, strict=False)
    ]


def outputs_of(tensors, hats, implementation, start="norms", iterations=2, through=True, **given):
    """Both outputs."""
    invert = partial(pseudo_inverse, iterations=iterations, start=start, through_start=through)
    with using({"landmarks.attention": implementation}):
        return _ATTENTION(*tensors, Given(*hats, invert, **given))


def results(tensors, hats, implementation, **given):
    """Both outputs, and the gradients by q, k, v and by landmarks that are no rows."""
    hats = [hat if hat.dim() == 3 else hat.to(tensors[0].dtype) for hat in hats]
    leaves = [*tensors, *(hat for hat in hats if hat.dim() == 4)]
    for leaf in leaves:
        leaf.requires_grad_()
    outputs = outputs_of(tensors, hats, implementation, **given)
    total = sum(
        (out.double() * torch.randn(out.shape, generator=drawn(9))).sum() for out in outputs
    )
    return [*outputs, *torch.autograd.grad(total, leaves)]


def assert_same(tensors, hats, tolerance=1e-5, **options):
    """Returns what the kernels give."""
    copies = [tensor.double() for tensor in tensors]
    expected = results(copies, [hat.clone() for hat in hats], "reference", **options)
    got = results(tensors, hats, "triton", **options)
    assert_near(got, expected, tolerance)
    return got


def masks(keys, counts, samples=1):
    """Keys, and landmarks of Q and K, that count: the first of each, at least."""
    draw = drawn(8)
    found = {}
    for name, shape in (
        ("key_keep", (samples, keys)),
        ("q_hat_keep", (samples, 2, counts[0])),
        ("k_hat_keep", (samples, 1, counts[1])),
    ):
        found[name] = torch.rand(shape, generator=draw) < 0.6
        found[name][..., 0] = True
    return found


SIZES = [
    (1, 1, 3, 5, 1, 1),
    (40, 101, 8, 4, 7, 5),
    (101, 70, 4, 20, 5, 7),
    (70, 90, 16, 16, 17, 33),
    (130, 150, 8, 4, 100, 66),
]


@pytest.mark.parametrize(
    ("masked", "programs", "iterations"),
    [
        (False, 20, 2),
        (True, 1, 2),
        pytest.param(False, 1, 6, marks=pytest.mark.extended),
        pytest.param(True, 20, 6, marks=pytest.mark.extended),
    ],
)
@pytest.mark.parametrize(("queries", "keys", "width", "v_width", "p", "r"), SIZES)
def test_values_and_gradients_in_one_part_or_several(
    monkeypatch, queries, keys, width, v_width, p, r, masked, programs, iterations
):
    monkeypatch.setattr(landmark_kernel, "PROGRAMS", programs)
    samples = 1 if p > 64 else 2
    tensors = inputs(queries, keys, width, v_width, samples=samples)
    given = masks(keys, (p, r), samples) if masked else {}
    hats = picks(tensors, (p, r), repeated=p > 1)
    assert_same(tensors, hats, iterations=iterations, **given)


@pytest.mark.parametrize("masked", [False, True])
def test_matrices_that_registers_do_not_hold_are_made_in_tiles(monkeypatch, masked):
    """As for more than 128 landmarks; one row is picked in two tiles."""
    monkeypatch.setattr(landmark_kernel, "TILE", 16)
    tensors = inputs(40, 50, 8, 4)
    hats = means(tensors, (17, 20)) if masked else picks(tensors, (17, 20), repeated=True)
    given = masks(50, (17, 20)) if masked else {}
    assert_same(tensors, hats, **given)


@pytest.mark.parametrize("start", ["norms", "rows"])
@pytest.mark.parametrize(
    ("iterations", "through"),
    [
        (0, True),
        (0, False),
        (1, True),
        (1, False),
        (3, True),
        pytest.param(4, False, marks=pytest.mark.extended),
    ],
)
def test_each_start_of_the_inverse(start, iterations, through):
    tensors = inputs(30, 40, 8, 8)
    for hats in (picks(tensors, (6, 6)), means(tensors, (6, 5))):
        assert_same(tensors, hats, start=start, iterations=iterations, through=through)


def test_masked_keys_are_not_seen():
    tensors = inputs(20, 70, 4, 4)
    hats = means(tensors, (5, 6))
    given = masks(70, (5, 6))
    hidden = ~given["key_keep"][:, None, :, None]
    louder = [tensors[0], *(tensor.detach().masked_fill(hidden, 1e4) for tensor in tensors[1:])]
    first, second = (outputs_of(x, hats, "triton", **given) for x in (louder, tensors))
    assert_near(first, second, 0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    """The interpreter cuts numbers off where a GPU rounds them: twice the error."""
    tensors = inputs(40, 50, 8, 8, dtype)
    got = assert_same(tensors, picks(tensors, (6, 6)), tolerance=6 * torch.finfo(dtype).eps)
    assert {result.dtype for result in got} == {dtype}


def test_any_strides_and_outputs_full_of_nan(monkeypatch):
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(20, 40, 8, 8)]
    turned[0] = turned[0].mT.contiguous().mT
    fill_with_nan(monkeypatch)
    assert_same(turned, picks(turned, (4, 5)))


def test_no_product_of_matrices_reads_what_it_writes():
    """Its tiles are written one after the other."""
    for product in landmark_kernel.FORWARD + landmark_kernel.BACK:
        assert product.target not in (product.x.rstrip("'"), product.y.rstrip("'"))


def test_an_output_that_nobody_uses_has_no_gradient():
    tensors = [tensor.requires_grad_() for tensor in inputs(20, 30, 8, 8)]
    hats = picks(tensors, (4, 5))
    found = []
    for forced in ("triton", "reference"):
        with using({"landmarks.attention": forced}):
            outputs = _ATTENTION(*tensors, Given(*hats, partial(pseudo_inverse, iterations=2)))
        for out in outputs:
            found.append(torch.autograd.grad(out.square().sum(), tensors, retain_graph=True))
    assert_near(found[0] + found[1], found[2] + found[3], 2e-5)


def test_cur_attention_takes_the_kernels():
    draw = drawn(1)
    q, k, v = (torch.randn(2, 1, 45, 8, generator=draw) for _ in range(3))
    index = torch.arange(0, 40, 5).expand(2, 1, -1)
    keep = torch.arange(45) < torch.tensor([[45], [37]])
    found = []
    for forced, dtype in (("", torch.float32), ("reference", torch.float64)):
        tensors = [tensor.to(dtype).requires_grad_() for tensor in (q, k, v)]
        with using(forced) as used:
            out = cur_attention(*tensors, index, index, key_keep=keep, copy_rows=True)
        assert used == {"landmarks.attention": forced or "triton"}
        found.append([out, *torch.autograd.grad((out**2).sum(), tensors)])
    assert_near(*found, tolerance=5e-5)
