"""The certificate of every built-in mixer, and a second record of its claims.

Whoever weakens a fact, or lets a check be excluded, has to change it here too: what each way of
building claims, and which checks do not apply to it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pytest
from built_in import built, names

from subquad.plugin import Facts
from subquad.registry import resolve
from subquad_check import CheckCase, CheckFailed, CheckSubject, NotProven, check_mixer
from subquad_check.checks import CHECKS
from subquad_check.checks.compiled import COMPILED
from subquad_check.subject import check_subjects

CAUSALITY = {"causal-outputs", "causal-gradients", "causal-lengths"}
CACHE = {"cache-prefill", "cache-step", "cache-functional", "cache-beams"}
PADDING = {"padding-content", "padding-amount"}
LOSSES = {"losses"}
NEITHER = {"state-declared", "carry"}
"""No built-in keeps state, and few hand anything on."""

TOKEN_MIXER = NEITHER | {"cross", "cross-cache"}
SEES_ALL = CAUSALITY | CACHE

L_LOG_L = {"complexity": "L log L", "leak": 1e-12}


@dataclass(frozen=True)
class Expected:
    """What one way of building claims, and the checks that do not apply to it."""

    facts: Facts
    excluded: frozenset[str]


Rows = dict[str, Expected]


def ways(*names: str, without: set[str], **facts) -> Rows:
    """Ways of building that claim the same. What is excluded follows from no fact here: it is
    written down.
    """
    return {name: Expected(Facts(**facts), frozenset(without)) for name in names}


def unordered(*variants: str, without: set[str] = LOSSES, **facts) -> Rows:
    """Token mixers that see all positions."""
    across = {"cross", "cross-cache"} if facts.get("cross") else set()
    return ways(*variants, without=(TOKEN_MIXER - across) | SEES_ALL | without, **facts)


def causal(*variants: str, without: set[str] = LOSSES, **facts) -> Rows:
    """Token mixers that are causal, with a decode cache."""
    return ways(
        *(f"{variant}, causal" for variant in variants), without=TOKEN_MIXER | without, **facts
    )


def handing_on(*variants: str, **facts) -> Rows:
    """Token mixers that see all positions and give the next layer something."""
    return ways(*variants, without=(TOKEN_MIXER - {"carry"}) | SEES_ALL | LOSSES, **facts)


def both(*variants: str, **facts) -> Rows:
    """Token mixers that are causal where the site asks, with a decode cache then."""
    facts = {"causal": "optional", **facts}
    return unordered(*variants, **facts) | causal(*variants, **facts)


def core(*variants: str, without: set[str] | None = None, **facts) -> Rows:
    """Attention cores that see all positions."""
    return ways(*variants, without=NEITHER | LOSSES | SEES_ALL | (without or set()), **facts)


def features(*variants: str, across: bool = True, **facts) -> Rows:
    """Attention cores that are causal where the site asks, and else let one sequence see another.

    Args:
        across: whether they offer decoding across two sequences.
    """
    facts = {"causal": "optional", "cross": True, **facts}
    apart = None if across else {"cross-cache"}
    running = ways(
        *(f"{variant}, causal" for variant in variants),
        without=NEITHER | LOSSES | {"cross", "cross-cache"},
        **facts,
    )
    return core(*variants, without=apart, **facts) | running


def sliding(*variants: str, **facts) -> Rows:
    """Attention cores that are causal where the site asks, with a decode cache then, and take
    one sequence alone.
    """
    facts, alone = {"causal": "optional", **facts}, {"cross", "cross-cache"}
    running = ways(
        *(f"{variant}, causal" for variant in variants), without=NEITHER | LOSSES | alone, **facts
    )
    return core(*variants, without=alone, **facts) | running


PADDED = {"padding_invariant": True}
SET = {"padding_invariant": True, "permutation_equivariant": True}
BOUND = {**PADDED, "max_length": "site"}

EXPECTED: dict[str, Rows] = {
    "agf": {
        **unordered(
            "default",
            "order 8",
            "legendre, symmetric",
            "frobenius, no filter",
            without=set(),
            **SET,
        ),
        **unordered("svd_scalar, no loss", **SET),
    },
    "bigbird": core("default", "small", without={"cross", "cross-cache"}, **PADDED),
    "causal_fourier": {
        **causal(
            "default",
            "paper",
            "chirp",
            "learned",
            "learned-chirp",
            causal="always",
            **BOUND,
            **L_LOG_L,
        ),
        **causal("dense", causal="always", **BOUND, complexity="L^2"),
    },
    "cosformer": features("default", "far", across=False, max_length="site", **PADDED),
    "cur": {
        **core(
            "default", "few", "laplace", "exact", "ridge", without={"cross", "cross-cache"}, **SET
        ),
        **core("step", "linspace", "embed", without={"cross", "cross-cache"}, **PADDED),
        **core("random", without={"cross-cache"}, **PADDED, cross=True),
    },
    "dba": handing_on("default", "few", **SET),
    "efficient": features("default", **SET),
    "flowformer": features("default", across=False, **SET),
    "fourier": {
        **unordered("default", "re_2d", "hartley", **PADDED, **L_LOG_L),
        **unordered("fnet", without=LOSSES | PADDING, complexity="L log L"),
        **unordered("learned", without=LOSSES | PADDING, max_length="site", complexity="L log L"),
        **unordered("learned-sample", **BOUND, **L_LOG_L),
    },
    "gated-deltanet": causal("default", "deltanet", causal="always", **PADDED),
    "gfnet": unordered("default", **BOUND, **L_LOG_L),
    "hyena": causal("default", "order 3", causal="always", **BOUND, **L_LOG_L),
    "identity": causal("default", causal="always", **SET),
    "linformer": core("default", "few", "apart", "shared", cross=True, **BOUND),
    "linear": {
        **features("default", **SET),
        **core(
            "as-published",
            without=PADDING | {"cross-cache"},
            permutation_equivariant=True,
            cross=True,
        ),
    },
    "local": sliding("default", "blocks", "one-block", **PADDED),
    "longformer": unordered("default", "narrow", "window-alone", **PADDED),
    "luna": handing_on("default", "few", "apart", **SET),
    "mdfwa": {
        **both("default", "learned", "gated", "paper", "fourier", cross=True, **BOUND, **L_LOG_L),
        **unordered("hartley", **PADDED, **L_LOG_L),
        **both("wavelet", **PADDED),
    },
    "mega": {
        **both("default", "laplace", **BOUND, complexity="L^2", leak=1e-12),
        **both("chunk", "laplace-chunk", **PADDED, **L_LOG_L),
        **both("rotary", **PADDED, complexity="L^2", leak=1e-12),
        **causal("laplace-chunk", without=LOSSES | CACHE, causal="optional", **PADDED, **L_LOG_L),
    },
    "m2": both("default", "gated alone", **BOUND, **L_LOG_L),
    "mamba": causal("default", "hold", causal="always", **PADDED),
    "megacur": {
        **unordered("default", "laplace", "different", "random", **BOUND, **L_LOG_L),
        **unordered("chunk", "rotary", **PADDED, **L_LOG_L),
    },
    "nystrom": {
        **core("default", "few", without={"cross", "cross-cache"}, **PADDED),
        **core("landmarks-alone", without={"cross-cache"}, **PADDED, cross=True),
        **core(
            "as-published",
            without={"cross", "cross-cache", "batch-outputs", "batch-gradients"} | PADDING,
            couples_samples=True,
        ),
    },
    "performer": {
        **features("default", "relu", **SET),
        **{
            name: replace(row, excluded=row.excluded - {"state-declared"} | {"state-hidden"})
            for name, row in features("redraw", stateful=True, **SET).items()
        },
        **core("as-published", without=PADDING, permutation_equivariant=True, cross=True),
    },
    "reformer": {
        **unordered("default", "short chunks", "four rounds", **PADDED, causal="optional"),
        **causal(
            "default",
            "short chunks",
            "four rounds",
            without=LOSSES | CACHE,
            causal="optional",
            **PADDED,
        ),
        **unordered("as published", without=LOSSES | PADDING),
    },
    "primal": {
        **unordered("default", "few", without=set(), **PADDED),
        **unordered("no loss", **PADDED),
    },
    "retnet": causal("default", "narrow", causal="always", **PADDED),
    "s4": {
        **both("default", "few", **PADDED, **L_LOG_L),
        **causal("past", causal="always", **PADDED, **L_LOG_L),
    },
    "s4d": {
        **both("default", "bilinear", **PADDED, **L_LOG_L),
        **causal("past", causal="always", **PADDED, **L_LOG_L),
    },
    "s5": {**both("default", **PADDED), **causal("past", causal="always", **PADDED)},
    "sfpc": {
        **unordered(
            "default", "dirichlet", "periodic", "jacobi, gated", "cyclic", "recurrence", **PADDED
        ),
        **unordered("transform", **PADDED, **L_LOG_L),
        **unordered("circulant", without=LOSSES | PADDING, max_length="site", **L_LOG_L),
        **unordered("decay", without=LOSSES | PADDING, **L_LOG_L),
        **causal("shift", causal="always", **PADDED),
        **causal("shift by FFT", causal="always", **PADDED, **L_LOG_L),
    },
    "singularformer": {
        **unordered("default", "few", without=set(), **SET),
        **unordered("no loss", **SET),
    },
    "soft": unordered("default", "few", "landmarks-alone", **BOUND),
    "softmax": {
        **core("default", "standard", causal="optional", **SET, cross=True, complexity="L^2"),
        **ways(
            "default, causal",
            "standard, causal",
            without=NEITHER | LOSSES | {"cross", "cross-cache"},
            causal="optional",
            **SET,
            cross=True,
            complexity="L^2",
        ),
    },
    "sparse": {
        **sliding("default", "strided", **PADDED, complexity="L^1.5"),
        **sliding("fixed, blocks of 5", "strided by 4", **PADDED, complexity="L^2"),
    },
    "yoso": {
        **core(
            "default", "long hash", without={"cross-cache"}, **SET, cross=True, complexity="L^2"
        ),
        **core("convolution", without={"cross", "cross-cache"}, **PADDED, complexity="L^2"),
    },
    "wavelet": {
        **both("default", "biorthogonal", "atrous", "details", **PADDED),
        **unordered("haar-symmetric", **PADDED),
    },
}

OPERATIONS = {
    "agf": {"default", "order 8", "legendre, symmetric"},
    "bigbird": set(EXPECTED["bigbird"]),
    "fourier": {"default", "fnet", "re_2d", "hartley"},
    "gated-deltanet": set(EXPECTED["gated-deltanet"]),
    "hyena": set(EXPECTED["hyena"]),
    "local": set(EXPECTED["local"]),
    "longformer": set(EXPECTED["longformer"]),
    "m2": set(EXPECTED["m2"]),
    "mamba": set(EXPECTED["mamba"]),
    "mdfwa": {"default", "learned", "gated", "paper", "fourier", "hartley", "wavelet"},
    "mega": set(EXPECTED["mega"]),
    "megacur": set(EXPECTED["megacur"]),
    "performer": {"default", "default, causal", "redraw", "redraw, causal", "as-published"},
    "s4": set(EXPECTED["s4"]),
    "s4d": set(EXPECTED["s4d"]),
    "s5": set(EXPECTED["s5"]),
    "sfpc": {
        "default",
        "dirichlet",
        "periodic",
        "jacobi, gated",
        "cyclic",
        "transform",
        "shift, causal",
    },
    "softmax": {"default"},
    "wavelet": {"default", "haar-symmetric", "biorthogonal", "details"},
}
"""Ways of building with an operation of several implementations; the check `kernels` does not
apply to others.
"""

QUICK = {
    "shapes",
    "leak",
    "causal-outputs",
    "padding-content",
    "padding-amount",
    "batch-outputs",
    "permutation",
}
QUICK |= {"all-padded", "cache-step", "state-round-trip", "parameters-used", "max-length"}
"""For the fast tier, of each mixer's defaults."""

LONG = {"compiled", "complexity", "process-kept", "precision-fp32", "precision-bf16"}
LONG |= {"devices", "determinism", "lengths", "strides"}
"""Two thirds of the time of a certificate: in CI of one way for each mixer, else extended. Other
ways show in CI what they claim, and their gradients, kernels and caches.
"""

MANY_CHUNKS = {"reformer": "default, causal"}
"""Ways that take a minute, as their sequences have many chunks. CI takes the mixer's other causal
ways.
"""


def rows() -> list[tuple[str, str]]:
    return [(name, way) for name in names() for way in built(name)]


def cases(name: str, way: str, tier: str) -> list[CheckCase]:
    """The cases of one way of building that must pass, of one tier: fast, ci or extended."""
    of_way = [case for case in check_mixer(f"subquad:{name}") if str(case.subject) == way]
    due = [case for case in of_way if case.check.name not in expected(case.subject).excluded]
    return [case for case in due if tier_of(name, way, case.check.name) == tier]


def tier_of(name: str, way: str, check: str) -> str:
    if way == "default" and check in QUICK:
        return "fast"
    first = next(iter(EXPECTED.get(name, {way: None})))
    if MANY_CHUNKS.get(name) == way or (check in LONG and way != first):
        return "extended"
    return "ci"


def expected(subject: CheckSubject) -> Expected:
    """What is written down of one way of building; nothing excluded where that is nothing."""
    name, way = subject.resolved.found.name, str(subject)
    row = EXPECTED.get(name, {}).get(way, Expected(Facts(), frozenset()))
    further = set[str]()
    if way not in OPERATIONS.get(name, ()):
        further.add("kernels")
    if subject.variant != "default":
        further |= {"parameter-values", "other-sizes"}
    return replace(row, excluded=row.excluded | further)


def test_every_built_in_is_written_down():
    assert {name: set(built(name)) for name in names()} == {
        name: set(known) for name, known in EXPECTED.items()
    }


@pytest.mark.parametrize(("name", "way"), rows())
def test_a_built_in_claims_what_is_written_down(name, way):
    subject = built(name)[way]
    assert asdict(subject.facts) == asdict(expected(subject).facts)


@pytest.mark.parametrize(("name", "way"), rows())
def test_no_other_check_is_excluded(name, way):
    subject = built(name)[way]
    by_facts = {check.name for check in CHECKS if check.excluded(subject)}
    sites = [check for check in CHECKS if check.name == "class-token"]
    refused = {
        check.name for check in sites if CheckCase(check, subject).outcome().status == "excluded"
    }
    assert by_facts | refused == expected(subject).excluded


def mostly_compiled(figures: dict[str, int]) -> bool:
    """Whether torch still compiles most of a mixer, which is no claim of it but ours."""
    called = figures["operations"]
    return called < 2 or figures["compiled"] >= COMPILED * called


def test_a_built_in_that_stops_compiling_is_found():
    assert mostly_compiled({"operations": 10, "compiled": 5})
    assert not mostly_compiled({"operations": 10, "compiled": 4})


def failures(cases: list[CheckCase]) -> list[str]:
    """What did not pass, a line each; a check that is excluded has not passed."""
    found = []
    for case in cases:
        try:
            finding = case()
            if not finding.words:
                found.append(f"{case}: saw nothing")
            if case.check.name == "compiled" and not mostly_compiled(finding.figures):
                found.append(f"{case}: {finding.words}")
        except pytest.skip.Exception as reason:
            found.append(f"{case}: excluded, which is not written down: {reason}")
        except (CheckFailed, NotProven) as reason:
            found.append(f"{case}: {reason}")
    return found


@pytest.mark.parametrize("name", names())
def test_a_built_in_keeps_its_word(name):
    assert failures(cases(name, "default", "fast")) == []


@pytest.mark.parametrize("claimed", [True, False])
def test_samples_are_not_apart_where_a_method_was_published_so(claimed: bool):
    """Nystrom's authors start all inverses of a batch from its largest sum; the fact says so."""
    params = {"num_landmarks": 5, "as_published": True}
    (subject,) = check_subjects(resolve("mixer", "subquad:nystrom"), params)
    assert subject.facts.couples_samples
    subject = replace(subject, facts=replace(subject.facts, couples_samples=claimed))
    due = [check for check in CHECKS if check.name.startswith("batch-")]
    outcomes = {check.name: CheckCase(check, subject).outcome().status for check in due}
    status = "excluded" if claimed else "failed"
    assert outcomes == dict.fromkeys(("batch-outputs", "batch-gradients"), status)


@pytest.mark.ci
@pytest.mark.parametrize(("name", "way"), rows())
def test_a_built_in_keeps_its_word_in_all_variants(name, way):
    assert failures(cases(name, way, "ci")) == []


@pytest.mark.extended
@pytest.mark.parametrize(("name", "way"), rows())
def test_what_takes_long_holds_in_all_variants(name, way):
    assert failures(cases(name, way, "extended")) == []
