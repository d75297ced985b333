"""What mixers refuse: settings that contradict each other, and places where they cannot stand.

One line says what is wrong, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad.registry import build_class, resolve
from subquad_plugins.numerics.jacobi import pole


@dataclass(frozen=True)
class Refused:
    """A mixer with settings at a place, and what is said of it."""

    mixer: str
    message: str
    params: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f" at {self.site}" if self.site else ""
        return f"{self.mixer}: {self.params}{place}"

    def config(self) -> Any:
        return resolve("mixer", f"subquad:{self.mixer}").plugin.config(**self.params)

    def place(self) -> Site:
        return Site(**{"dim": 8, "num_heads": 2, **self.site})

    def build(self) -> Any:
        found = resolve("mixer", f"subquad:{self.mixer}")
        return build_class(found)(self.config(), self.place())


ONE_BAND = "level 1 with include_approx false leaves one band, and nothing to learn"
CAUSAL, SHORT = {"causal": True}, {"max_len": 8}
FAR = {"wavelet": "db38", "level": 12}
CIRCULANT = {"operator": "circulant"}
MONOMIAL = {"basis": "monomial"}
LARGEST = "num_landmarks 9 is more than the longest sequence has: use 8 or less"
RANK = "rank 9 is more than the longest sequence has: use 8 or less"
WINDOW = "a window of 9 tokens is more than the longest sequence has: use 8 or less"
ROTARY = "bias rotary needs an even attention_dim, got 7"
STEPS = r"dt_min 0\.1 is above dt_max 0\.01"

SETTINGS = [
    Refused("mdfwa", "there is no discrete wavelet 'gaus1'", {"wavelet": "gaus1"}),
    Refused("mdfwa", ONE_BAND, {"level": 1}),
    Refused(
        "mdfwa", "mode smooth with level 5 is not accurate in fp32", {"mode": "smooth", "level": 5}
    ),
    Refused(
        "mdfwa",
        "mode works only where the mixer is not causal, and period only where it is",
        {"mode": "zero", "period": 9},
    ),
    Refused(
        "mdfwa",
        "form works only where the mixer is not causal, and norm causal_rms",
        {"form": "hartley", "norm": "causal_rms"},
    ),
    Refused(
        "sfpc",
        "evaluation conv with operator circulant: its kernel is as long as the sequence; "
        "use auto, fft or reference",
        {**CIRCULANT, "evaluation": "conv"},
    ),
    Refused(
        "sfpc",
        r"order 13 with basis monomial: powers of T reach 4\^13, so that on smooth tokens fp32 "
        "loses every digit; use order 12 or less, or basis chebyshev",
        {**MONOMIAL, "order": 13},
    ),
    Refused(
        "sfpc",
        r"evaluation conv with basis monomial: the taps of T\^k add up to 0 from parts as large "
        r"as 4\^k, which fp32 loses; use auto or reference, or basis chebyshev",
        {**MONOMIAL, "evaluation": "conv"},
    ),
    Refused("sfpc", "evaluation fft with basis monomial", {**MONOMIAL, "evaluation": "fft"}),
    Refused(
        "sfpc", "order 64 with basis monomial", {**MONOMIAL, "boundary": "periodic", "order": 64}
    ),
    Refused(
        "sfpc",
        "order 65 with basis jacobi: use order 64 or less, or basis chebyshev of a laplacian, or "
        "a shift, which go to 1024",
        {"basis": "jacobi", "order": 65},
    ),
    Refused(
        "sfpc", "order 65 with basis monomial_rescaled", {"basis": "monomial_rescaled", "order": 65}
    ),
    Refused("sfpc", "order 65 with operator circulant", {**CIRCULANT, "order": 65}),
    Refused(
        "sfpc",
        "first_column has magnitudes that add up to 100001: give a sum above 0 and at most "
        r"5\.62e\+03, whose power 8 fp32 can hold",
        {**CIRCULANT, "first_column": (1e5, 1.0)},
    ),
    Refused(
        "sfpc", "first_column has magnitudes that add up to 0", {**CIRCULANT, "first_column": ()}
    ),
    Refused(
        "wavelet",
        r"there is no discrete wavelet 'db40'; did you mean 'db4'\?; there is haar",
        {"wavelet": "db40"},
    ),
    Refused("wavelet", "there is no discrete wavelet 'mexh'", {"wavelet": "mexh"}),
    Refused(
        "wavelet",
        "mode works only where the mixer is not causal, and scale_weights fixed with "
        "include_approx true only where",
        {"scale_weights": "fixed", "mode": "zero"},
    ),
    Refused("wavelet", ONE_BAND, {"level": 1, "include_approx": False}),
    Refused(
        "wavelet",
        "wavelet db38 with level 6 looks back 4725 tokens where",
        {"transform": "atrous", "wavelet": "db38", "level": 6},
    ),
    Refused(
        "wavelet",
        "mode smooth with level 5 is not accurate in fp32: use level 4 at most",
        {"mode": "smooth", "level": 5},
    ),
    Refused(
        "wavelet",
        "mode antireflect with level 12 is not accurate in fp32: use level 4",
        {"mode": "antireflect", "level": 12},
    ),
    Refused("mega", ROTARY, {"bias": "rotary", "attention_dim": 7}),
    Refused("megacur", ROTARY, {"bias": "rotary", "attention_dim": 7}),
    Refused(
        "megacur",
        "num_indices 64 is more than a chunk has: use 32 or less, or a larger chunk_size",
        {"chunk_size": 32, "num_indices": 64},
    ),
    Refused("soft", "conv_kernel 2 has no middle", {"conv_kernel": 2}),
    Refused(
        "nystrom",
        "conv_kernel 4 has no middle: use an odd number, or 0 for none",
        {"conv_kernel": 4},
    ),
    Refused(
        "hyena",
        "position_dim 4 is even: it counts the position, and pairs of features",
        {"position_dim": 4},
    ),
    *(Refused(name, STEPS, {"dt_min": 0.1, "dt_max": 0.01}) for name in ("s4d", "s5", "mamba")),
    Refused("s5", "state_dim 64 is not made of 3 blocks of pairs", {"blocks": 3}),
]

PLACES = [
    Refused(
        "mdfwa",
        "form works only where the mixer is not causal: leave it at its default",
        {"form": "hartley"},
        CAUSAL,
    ),
    Refused(
        "mdfwa",
        "mode works only where the mixer is not causal: leave it at its default",
        {"mode": "zero"},
        CAUSAL,
    ),
    Refused(
        "mdfwa",
        "period works only where the mixer is causal: leave it at its default",
        {"period": 9},
    ),
    Refused(
        "mdfwa", "norm causal_rms works only where the mixer is causal", {"norm": "causal_rms"}
    ),
    Refused(
        "mdfwa",
        "period is 9, and the longest sequence has 12 positions: set period to 0 or to 12",
        {"period": 9},
        {**CAUSAL, "max_len": 12},
    ),
    Refused(
        "mdfwa",
        "scale_weights fixed with include_approx true weighs all bands alike",
        {"scale_weights": "fixed", "include_approx": True},
    ),
    Refused(
        "mdfwa", "wavelet db38 with level 12 looks back 307125 tokens where one-sided", FAR, CAUSAL
    ),
    Refused(
        "sfpc",
        "first_column has 3 values and the longest sequence 8 tokens: give 8 values",
        {**CIRCULANT, "first_column": (0.5, 0.25, 0.25)},
        SHORT,
    ),
    Refused(
        "mega",
        "bidirectional false has no effect with a causal mixer: leave it at true",
        {"bidirectional": False},
        CAUSAL,
    ),
    Refused(
        "mega",
        "max_positions 9 is less than the longest sequence, 10",
        {"max_positions": 9},
        {"max_len": 10},
    ),
    Refused(
        "mega",
        "truncation 10 has no effect with sequences of at most 10 tokens: leave it at 0",
        {"truncation": 10},
        {"max_len": 10},
    ),
    Refused(
        "megacur",
        "column 5 is outside queries of width 4: use 0 to 3",
        {"selection": "embed", "column": 5},
    ),
    Refused(
        "primal",
        "primal attention cannot be causal: its directions follow from early and late",
        {},
        CAUSAL,
    ),
    Refused("soft", LARGEST, {"num_landmarks": 9}, SHORT),
    Refused("soft", "landmarks cannot be causal", {}, CAUSAL),
    Refused("luna", RANK, {"rank": 9}, SHORT),
    Refused(
        "dba", "packed tokens cannot be causal: each has read early and late tokens", {}, CAUSAL
    ),
    Refused(
        "dba",
        "inner_dim 24 is no multiple of the number of heads, 5",
        {},
        {"dim": 40, "num_heads": 5},
    ),
    Refused("linformer", RANK, {"rank": 9}, SHORT),
    Refused("linformer", RANK, {"rank": 9}, {"max_len": 20, "context_len": 8, "role": "cross"}),
    Refused("linformer", "Linformer attention cannot be causal", {"rank": 2}, CAUSAL),
    Refused("nystrom", LARGEST, {"num_landmarks": 9}, SHORT),
    Refused("nystrom", "landmarks cannot be causal", {}, CAUSAL),
    Refused(
        "longformer",
        "10 is more than the longest sequence has: use 8 or less",
        {"num_global": 10},
        SHORT,
    ),
    Refused(
        "longformer",
        "10 is more than the longest sequence has: use 8 or less",
        {"window": 10},
        SHORT,
    ),
    Refused("local", WINDOW, {"window": 9}, SHORT),
    Refused("local", WINDOW, {"window": 3, "block": 3}, SHORT),
    Refused("local", WINDOW, {"window": 0, "block": 9}, SHORT),
    Refused("sparse", "summary 8 is more than a block has: use 4 or less", {"block": 4}),
    Refused(
        "bigbird",
        "BigBird attention cannot be causal: its first and last blocks see everything",
        {},
        CAUSAL,
    ),
    Refused(
        "gfnet",
        "gfnet filters the grid of 3 x 3 patches, which with 1 tokens in front are 10, and "
        "sequences have up to 12",
        {},
        {"max_len": 12, "grid": (3, 3), "num_prefix_tokens": 1},
    ),
    Refused(
        "cur",
        "num_indices 64 is more than the longest sequence has: use 29 or less",
        {"num_indices": 64},
        {"max_len": 29},
    ),
    Refused(
        "cur",
        "column 8 is outside a head of width 8: use 0 to 7",
        {"selection": "embed", "column": 8},
        {"dim": 16},
    ),
    Refused(
        "cur", "CUR attention cannot be causal: the inverse mixes all selected rows", {}, CAUSAL
    ),
    Refused("cur", "rotary needs an even head width", {"rotary": True}, {"dim": 6}),
    Refused(
        "cosformer",
        "horizon 8 is less than the longest sequence has: 200",
        {"horizon": 8},
        {"max_len": 200},
    ),
    Refused(
        "retnet",
        "retnet turns pairs of channels and needs an even head width, got 6 / 2 = 3",
        {},
        {"dim": 6},
    ),
    Refused(
        "causal_fourier",
        "terms 10 has no effect with evaluation auto up to 2048 positions: leave it at",
        {"terms": 10, "frequencies": "learned"},
        {"max_len": 2048},
    ),
    Refused(
        "causal_fourier",
        "period is 8, and the longest sequence has 16 positions: set period to 0 or to 16",
        {"period": 8},
        {"max_len": 16},
    ),
]

AGF = [(1.5, -1.5, 6), (2.0, 0.5, 9), (1.5, 2.0, 5), (2.0, 1.5, 10), (1.0, 0.0, 4), (2.0, -2.0, 5)]
"""Published: a, b and the order."""

ACCEPTED = [
    *(("agf", {"jacobi_a": a, "jacobi_b": b, "order": order}, {}) for a, b, order in AGF),
    ("sfpc", {**CIRCULANT, "first_column": (0.5, 0.25, 0.25)}, {"max_len": 3}),
    ("sfpc", {**CIRCULANT, "first_column": (0.5, 0.25, 0.25)}, {}),
    ("mega", {"max_positions": 9}, {}),
    ("mega", {"truncation": 9}, {"max_len": 10}),
    ("mega", {"truncation": 10}, {}),
    ("gfnet", {}, {"max_len": 10, "grid": (3, 3), "num_prefix_tokens": 1}),
    ("cur", {"num_indices": 64}, {"max_len": 64}),
    ("cur", {"num_indices": 64}, {}),
    ("causal_fourier", {"terms": 10, "frequencies": "learned"}, {}),
    ("causal_fourier", {"terms": 10, "frequencies": "learned"}, {"max_len": 2049}),
    ("causal_fourier", {"frequencies": "learned"}, {"max_len": 2048}),
    (
        "causal_fourier",
        {"terms": 10, "frequencies": "learned", "evaluation": "chirp"},
        {"max_len": 16},
    ),
    ("causal_fourier", {"period": 16}, {"max_len": 16}),
    ("causal_fourier", {"period": 8}, {}),
]

UNKNOWN = "the length of the longest sequence is not known"
BUILDS = [
    Refused("mdfwa", f"mdfwa: set period, as {UNKNOWN}", {}, CAUSAL),
    Refused(
        "mdfwa",
        "mdfwa: the number of learned frequencies needs the length of the longest",
        {"frequencies": "learned"},
    ),
    Refused(
        "mdfwa",
        "^mdfwa: role cross needs the lengths of both longest sequences",
        {},
        {"role": "cross", "max_len": 8},
    ),
    Refused("sfpc", "a learned first_column needs the longest sequence's length", CIRCULANT),
    Refused("mega", "the longest sequence is not known: set max_positions, or bias rotary"),
    Refused("soft", f"soft: {UNKNOWN}"),
    Refused("linformer", f"linformer: {UNKNOWN}"),
    Refused("sparse", f"sparse: {UNKNOWN}; give `block`"),
    Refused("hyena", "kernels made of positions need the length of the longest sequence"),
    Refused("gfnet", "gfnet: neither a grid nor the length of the longest sequence is known"),
    Refused("cosformer", "cosformer: set horizon, as the length"),
    Refused("causal_fourier", f"set period, as {UNKNOWN}"),
    Refused(
        "fourier",
        "learned frequencies need the length of the longest sequence",
        {"frequencies": "learned"},
    ),
]


@pytest.mark.parametrize("case", SETTINGS, ids=str)
def test_settings_that_cannot_work_or_have_no_effect_are_refused(case):
    with pytest.raises(ValidationError, match=case.message):
        case.config()


@pytest.mark.parametrize("case", PLACES, ids=str)
def test_settings_that_cannot_work_where_the_mixer_stands_are_refused(case):
    config = case.config()
    with pytest.raises(ValueError, match=case.message):
        config.check(case.place())


@pytest.mark.parametrize(("mixer", "params", "site"), ACCEPTED)
def test_settings_at_their_limits_are_accepted(mixer, params, site):
    case = Refused(mixer, "", params, site)
    case.config().check(case.place())


@pytest.mark.parametrize("case", BUILDS, ids=str)
def test_what_cannot_be_built_is_refused(case):
    with pytest.raises(PluginError, match=case.message):
        case.build()


POLES = [
    ("agf", -0.5, -1.5, 2, 2),
    ("agf", 0.0, -2.0, 4, 2),
    ("agf", -1.0, -1.0, 10, 2),
    ("agf", -1.5, -1.5, 3, 3),
    ("agf", -2.0, -2.0, 3, 3),
    ("sfpc", -1.5, -1.5, 3, 3),
    ("sfpc", -2.0, -2.0, 8, 3),
]
SUMS = {"agf": "-2, -3 or -4", "sfpc": "-3 or -4"}


@pytest.mark.parametrize(("mixer", "a", "b", "order", "k"), POLES)
def test_poles_of_the_jacobi_recurrence_are_refused_by_name(mixer, a, b, order, k):
    message = (
        rf"jacobi_a {a:g} and jacobi_b {b:g}: the Jacobi recurrence divides by zero at k = {k}, "
        rf"and order is {order}; use order {k - 1} or less, or a jacobi_a \+ jacobi_b that is "
        rf"not {SUMS[mixer]}"
    )
    given = {"basis": "jacobi", "jacobi_a": a, "jacobi_b": b}
    with pytest.raises(ValidationError, match=message):
        Refused(mixer, message, {**given, "order": order}).config()
    assert Refused(mixer, "", {**given, "order": k - 1}).config().order == k - 1


def test_poles_lie_only_where_the_message_says():
    for doubled in range(-8, 17):
        total = doubled / 2
        assert (pole(32, total - 1.5, 1.5) is not None) == (total in (-2.0, -3.0, -4.0))
