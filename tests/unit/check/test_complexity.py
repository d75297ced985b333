"""Mixers that grow faster or slower than they say, and mixers that say the truth.

Letters: B batch, L length, D width.
"""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad.plugin import Complexity, Config, Facts, MixerPlugin
from subquad.registry import Found, Resolved, resolve
from subquad_check.checks import CHECKS, complexity
from subquad_check.checks.complexity import LADDER, _growth_of
from subquad_check.meter import CheckFailed, NotProven
from subquad_check.subject import CheckSubject, check_subjects

(CHECKED,) = (check.run for check in CHECKS if check.name == "complexity")


class Plain(TokenMixer):
    """A projection; what a subclass mixes comes before it."""

    def __init__(self, config, site):
        super().__init__()
        self.site = site
        self.out = nn.Linear(site.dim, site.dim)

    def forward(self, x: Tensor, *, keep=None, carry=None) -> Tensor:
        return self.out(self.mix(x, keep))

    def mix(self, x: Tensor, keep) -> Tensor:
        return x


class FFT(Plain):
    def mix(self, x, keep):
        return torch.fft.fft(x, dim=1).real


class Roots(Plain):
    def mix(self, x, keep):
        """Attention within blocks of sqrt(L) tokens, the last one filled up."""
        length = x.shape[1]
        side = math.isqrt(length - 1) + 1
        missing = -length % side
        blocks = torch.cat([x, x[:, : max(missing, 1)]], 1)[:, : length + missing].unflatten(
            1, (-1, side)
        )
        return (torch.softmax(blocks @ blocks.mT, -1) @ blocks).flatten(1, 2)[:, :length]


class Product(Plain):
    def mix(self, x, keep):
        return torch.softmax(x @ x.mT, -1) @ x


class Broadcast(Plain):
    def mix(self, x, keep):
        return x * (x[:, :, None, 0] - x[:, None, :, 0]).tanh().mean(2, keepdim=True)


class Expanded(Plain):
    """No L x L tensor is ever made, but each of its numbers is added."""

    def mix(self, x, keep):
        return x + x[:, None, :, :1].expand(-1, x.shape[1], -1, -1).sum(2)


class Loop(Plain):
    def mix(self, x, keep):
        return torch.stack([x[:, : step + 1].mean(1) for step in range(x.shape[1])], 1)


class Sort(Plain):
    def mix(self, x, keep):
        return x.sort(1).values


class OnlyWithPadding(Plain):
    def mix(self, x, keep):
        return x if keep is None else torch.softmax(x @ x.mT, -1) @ x


class OnlyBackward(Plain):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
            (x,) = ctx.saved_tensors
            return grad + (x @ x.mT) @ grad * 0

    def mix(self, x, keep):
        return self.Copy.apply(x)


class PaddedToSite(Plain):
    """The same work at every length it is given: it always fills up to the longest."""

    def mix(self, x, keep):
        filled = nn.functional.pad(x, (0, 0, 0, self.site.max_len - x.shape[1]))
        return (torch.softmax(filled @ filled.mT, -1) @ filled)[:, : x.shape[1]]


class Moving(Plain):
    """Bytes in proportion to L^2, and next to no FLOPs with them."""

    def mix(self, x, keep):
        return x * x.detach()[:, :, None, 0].expand(-1, -1, x.shape[1]).clone()[:, :, :1]


class Cubic(Plain):
    def mix(self, x, keep):
        scores = x @ x.mT
        return (scores @ scores) @ x


class Mystery(Plain):
    def mix(self, x, keep):
        return mystery(x)


class MysteriousProduct(Plain):
    def mix(self, x, keep):
        return mystery(x) + (x @ x.mT) @ x


class Numpy(Plain):
    def mix(self, x, keep):
        return x * torch.from_numpy(x.detach().numpy().cumsum(1))


class PairsInNumPy(Plain):
    """Weighs neighbours over all pairs, of which torch sees nothing."""

    def mix(self, x, keep):
        places = np.arange(x.shape[1]) / 8
        near = [np.exp(-((places - place) ** 2)).sum() for place in places]
        return x / torch.tensor(near, dtype=x.dtype)[:, None]


class PlacesInNumPy(Plain):
    def mix(self, x, keep):
        return x + torch.as_tensor(np.sin(np.arange(x.shape[1])), dtype=x.dtype)[:, None]


class PaddedPairs(Plain):
    """All pairs, in training with a mask alone."""

    def mix(self, x, keep):
        if keep is None or not self.training:
            return x
        return (keep[:, :, None] & keep[:, None]).to(x) @ x


class Bounded(Plain):
    def mix(self, x, keep):
        knots = torch.linspace(-4, 4, 33)
        return x + torch.searchsorted(knots, x.detach().contiguous()) + torch.bucketize(x, knots)


class Ranked(Plain):
    """One number of each token is sorted."""

    def mix(self, x, keep):
        return torch.tanh(self.out(x)).cumsum(1) + x[..., 0].sort(1).values[..., None]


class SparseSums(Plain):
    """A sparse L x L matrix with two numbers in a row."""

    def mix(self, x, keep):
        place = torch.arange(x.shape[1])
        rows, columns = torch.cat([place, place]), torch.cat([place, place.roll(1)])
        numbers = torch.ones(len(rows))
        graph = torch.sparse_coo_tensor(
            torch.stack([rows, columns]), numbers, 2 * x.shape[1:2], check_invariants=False
        )
        return torch.sparse.mm(graph, x[0])[None]


class Bilinear(Plain):
    def __init__(self, config, site):
        super().__init__(config, site)
        self.both = nn.Bilinear(site.dim, site.dim, site.dim)

    def mix(self, x, keep):
        return self.both(x, x)


class Packed(Plain):
    def __init__(self, config, site):
        super().__init__(config, site)
        self.lstm = nn.LSTM(site.dim, site.dim, batch_first=True)

    def mix(self, x, keep):
        lengths = torch.full((len(x),), x.shape[1])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class Broken(Plain):
    def mix(self, x, keep):
        raise RuntimeError("no rule for\nthis")


class Short(Plain):
    """Another way for short sequences."""

    def mix(self, x, keep):
        return torch.softmax(x @ x.mT, -1) @ x if x.shape[1] <= 128 else x.cumsum(1)


@torch.library.custom_op("subquad_tests::mystery_mixer", mutates_args=())
def mystery(x: Tensor) -> Tensor:
    return x * 2


mystery.register_autograd(lambda ctx, grad: grad * 2)


def subject(mixer: type[TokenMixer], declared: Complexity = "L", **facts) -> CheckSubject:
    plugin = MixerPlugin(
        config=Config, build=mixer, summary="", facts=Facts(complexity=declared, **facts)
    )
    found = Found("mixer", mixer.__name__, "tests", "1.0", "tests:PLUGIN")
    return CheckSubject(
        resolved=Resolved(plugin, found), config=Config(), facts=plugin.facts, causal=False
    )


@pytest.fixture(autouse=True)
def _short_ladder(monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER[:5])


@pytest.mark.parametrize(
    ("mixer", "declared"),
    [(Plain, "L"), (FFT, "L log L"), (Roots, "L^1.5"), (Product, "L^2"), (Sort, "L log L")],
)
def test_a_true_claim_passes(mixer, declared, monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER[2:8])
    case = subject(mixer, declared)
    found = CHECKED(case)
    assert f" {declared} (exponent " in found.words
    assert found.figures["bytes"]["lengths"] == list(_growth_of(case).lengths)


@pytest.mark.parametrize(
    "mixer", [Product, Broadcast, Expanded, Loop, OnlyWithPadding, OnlyBackward, PaddedToSite]
)
def test_hidden_squares_are_found(mixer):
    with pytest.raises(CheckFailed, match=r"grows? like L\^2"):
        CHECKED(subject(mixer))


def test_a_length_without_divisors_is_counted():
    """Blocks of eight tokens, or one block where they do not come out even."""

    class Blocks(Plain):
        def mix(self, x, keep):
            length = x.shape[1]
            blocks = x.unflatten(1, (-1, length if length % 8 else 8))
            return (blocks @ blocks.mT @ blocks).flatten(1, 2)

    with pytest.raises(CheckFailed, match=r"tokens, a prime number, are .* times those at"):
        CHECKED(subject(Blocks))


@pytest.mark.parametrize(
    ("mixer", "operation"),
    [
        (Product, "bmm"),
        (Broadcast, "sub"),
        (OnlyWithPadding, "bmm"),
        (OnlyBackward, "bmm"),
        (Moving, "clone"),
    ],
)
@pytest.mark.parametrize("declared", ["L", "L^1.5"])
def test_a_square_tensor_is_named(mixer, operation, declared):
    case = subject(mixer, declared)
    with pytest.raises(
        CheckFailed,
        match=r"declared .*, but the largest tensor that aten::\w+ makes grows like L\^2",
    ):
        CHECKED(case)
    assert f"aten::{operation}" in _growth_of(case).squares


@pytest.mark.parametrize(
    ("mixer", "found"), [(FFT, "L log L"), (Sort, "L log L"), (Roots, r"L\^1\.5")]
)
def test_less_than_squares_but_more_than_declared(mixer, found):
    with pytest.raises(
        CheckFailed, match=rf"FLOPs grow like {found} \(exponent 1\.\d\d\), declared L$"
    ):
        CHECKED(subject(mixer))


def test_more_than_squares():
    with pytest.raises(
        CheckFailed, match=r"FLOPs grow like more than L\^2 \(exponent 2\.\d\d\), declared L\^2"
    ):
        CHECKED(subject(Cubic, "L^2"))


def test_a_claim_that_is_too_large_is_no_claim():
    with pytest.raises(
        CheckFailed,
        match=r"declared L\^2, but FLOPs grow like L \(.*\) and bytes like L \(.*\): declare",
    ):
        CHECKED(subject(Plain, "L^2"))


def test_bytes_alone_may_reach_the_claim():
    case = subject(Moving, "L^2")
    assert re.match(r"FLOPs L \(.*\), bytes L\^2 \(.*\), declared L\^2$", CHECKED(case).words)


def test_an_operation_nobody_can_count_proves_nothing():
    with pytest.raises(
        NotProven, match=r"nobody can count subquad_tests::mystery_mixer: give it a formula with"
    ):
        CHECKED(subject(Mystery))


def test_what_can_be_counted_may_be_too_much_already():
    with pytest.raises(CheckFailed, match=r"grows like L\^2"):
        CHECKED(subject(MysteriousProduct))


def test_work_outside_torch_proves_nothing():
    with pytest.raises(NotProven, match=r"nobody can count Tensor.numpy"):
        CHECKED(subject(Numpy))


@pytest.mark.ci
def test_what_numpy_works_out_is_timed(monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER[4:9])
    with pytest.raises(CheckFailed, match=r"CPU time grows \d+ times .* in Python or NumPy"):
        CHECKED(subject(PairsInNumPy))
    assert CHECKED(subject(PlacesInNumPy)).figures["flops"]["class"] == "L"


def test_training_with_padding_counts():
    with pytest.raises(CheckFailed, match=r"declared L, .* grows like L\^2"):
        CHECKED(subject(PaddedPairs))


@pytest.mark.parametrize("mixer", [Bounded, SparseSums, Bilinear, Packed, Ranked])
def test_seldom_operations_are_counted(mixer):
    figures = CHECKED(subject(mixer)).figures
    assert {figures[what]["class"] for what in figures} == {"L"}


def test_a_slight_sort_may_be_declared_or_not():
    assert CHECKED(subject(Ranked, "L log L")).words.endswith(
        "declared L log L, of which a slight L log L"
    )


def test_what_breaks_under_the_counter_proves_nothing():
    with pytest.raises(
        NotProven, match=r"cannot be run and counted at length 64: RuntimeError: no rule for this"
    ):
        CHECKED(subject(Broken))


def test_fewer_than_five_lengths_prove_nothing():
    with pytest.raises(
        NotProven,
        match=r"takes 200 positions at most: 4 lengths to count at \(16, .*\), and 5 are needed",
    ):
        CHECKED(subject(Plain, max_length=200))


def test_short_lengths_count_where_there_are_few():
    assert _growth_of(subject(Plain, max_length=512)).lengths == (16, 32, 64, 128, 256, 512)


def test_a_limit_at_the_fifth_length_is_enough(monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER)
    assert _growth_of(subject(Plain, max_length=1500)).lengths == LADDER[:5]


def test_another_way_for_short_sequences_is_no_growth(monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER[:7])
    assert CHECKED(subject(Short)).words.startswith("FLOPs L ")


def test_a_length_more_is_counted_where_no_class_fits_yet(monkeypatch):
    """The limit would leave four lengths that it does the long way."""
    monkeypatch.setattr(complexity, "LADDER", LADDER)
    monkeypatch.setattr(complexity, "LIMITS", {**complexity.LIMITS, "flops": 2e7})
    assert _growth_of(subject(Short)).lengths == LADDER[1:7]
    assert CHECKED(subject(Short)).words.startswith("FLOPs L ")


def test_costly_lengths_are_left_out(monkeypatch):
    monkeypatch.setattr(complexity, "LADDER", LADDER)
    monkeypatch.setattr(complexity, "LIMITS", {**complexity.LIMITS, "flops": 1.0})
    assert _growth_of(subject(Product, "L^2")).lengths == LADDER[:5]


def test_figures_hold_counts_and_times():
    figures = CHECKED(subject(Plain)).figures["flops"]
    assert all(after == 2 * before for before, after in pairwise(figures["counts"]))
    assert set(figures) == {"class", "exponent", "distances", "lengths", "counts", "cpu_seconds"}
    assert len(figures["cpu_seconds"]) == len(figures["counts"]) == 5


@pytest.mark.parametrize("name", ["agf", "identity", "softmax"])
def test_built_in_mixers_say_the_truth(name):
    case = next(check_subjects(resolve("mixer", name)))
    assert f"declared {case.facts.complexity}" in CHECKED(case).words
