"""Error rates and power of the report's comparison of mixers, in simulation.

    python benchmarks/comparison.py [--tables 1000]

Each table has M mixers with S seeds each and 370 test samples that all mixers share. An answer is
right with probability sigmoid(level + gap + sample + mixer's own part of the sample + spread *
seed), all of them normal and drawn anew for each table, so both seeds and test samples are random.
Printed for each kind of table, in percent:

    size    pairs of equal mixers with p < 0.05: should be 5
    any     tables with at least one such pair after Holm's correction: at most 5
    power   as size, for a mixer that is about four points better, against each of the others
    Welch   size and power of Welch's test on the seeds' accuracies, which knows no new test samples
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import ttest_ind_from_stats

from subquad.reports import stats

SAMPLES = 370


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        own: standard deviation of a mixer's own part of a sample's difficulty.
        unlike: how much the mixers' spreads differ: standard deviation of their logarithm.
    """

    name: str
    spread: float = 0.2
    own: float = 0.3
    unlike: float = 0.0
    level: float = 1.6


KINDS = (
    Kind("plain"),
    Kind("samples shared wholly", own=0.0),
    Kind("mixers like other samples", own=1.5),
    Kind("seeds alike", spread=0.0),
    Kind("seeds spread", spread=0.6),
    Kind("spreads differ", unlike=0.5),
    Kind("near 98 %", level=5.5),
)


def answers(
    kind: Kind, generator: np.random.Generator, mixers: int, seeds: int, gap: float
) -> np.ndarray:
    """(M, S, N) bool; the first mixer is better by `gap`."""
    spreads = kind.spread * np.exp(kind.unlike * generator.normal(size=(mixers, 1, 1)))
    level = kind.level + gap * (np.arange(mixers) == 0)[:, None, None]
    level = (
        level
        + 2.0 * generator.normal(size=SAMPLES)
        + kind.own * generator.normal(size=(mixers, 1, SAMPLES))
    )
    level = level + spreads * generator.normal(size=(mixers, seeds, 1))
    return generator.random((mixers, seeds, SAMPLES)) < 1 / (1 + np.exp(-level))


def p_values(correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all pairs, ours and Welch's."""
    scores = [stats.Scores.of(answers) for answers in correct]
    variance = stats.seed_variance(scores)
    pairs = list(combinations(scores, 2))
    ours = [
        stats.difference(*pair, variance, resolution=1 / (SAMPLES * len(pair[0].by_seed))).p_value
        for pair in pairs
    ]
    moments = [
        (score.by_seed.mean(), score.by_seed.std(ddof=1), len(score.by_seed)) for score in scores
    ]
    sides = np.array([(*combination, *other) for combination, other in combinations(moments, 2)]).T
    with np.errstate(all="ignore"):
        welch = ttest_ind_from_stats(*sides, equal_var=False).pvalue
    return np.array(ours), np.nan_to_num(welch, nan=1.0)


def rates(kind: Kind, mixers: int, seeds: int, tables: int) -> Iterator[float]:
    """Size, any, power, Welch's size and power, as shares."""
    generator = np.random.default_rng(12)
    equal = [p_values(answers(kind, generator, mixers, seeds, 0.0)) for _ in range(tables)]
    better = [p_values(answers(kind, generator, mixers, seeds, 0.35)) for _ in range(tables)]
    yield float(np.mean([(ours < 0.05).mean() for ours, _ in equal]))
    yield float(np.mean([min(stats.holm(list(ours))) < 0.05 for ours, _ in equal]))
    yield float(np.mean([(ours[: mixers - 1] < 0.05).mean() for ours, _ in better]))
    yield float(np.mean([(welch < 0.05).mean() for _, welch in equal]))
    yield float(np.mean([(welch[: mixers - 1] < 0.05).mean() for _, welch in better]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", type=int, default=1000, help="tables of each kind (default: 1000)"
    )
    tables = parser.parse_args().tables
    print(
        "| tables | mixers | seeds | size | any | power | Welch size | power "
        "|\n|---|---|---|---|---|---|---|---|"
    )
    for kind in KINDS:
        for mixers, seeds in ((2, 2), (2, 3), (2, 5), (2, 10), (5, 2), (5, 3), (10, 3), (10, 10)):
            cells = " | ".join(f"{100 * rate:.1f}" for rate in rates(kind, mixers, seeds, tables))
            print(f"| {kind.name} | {mixers} | {seeds} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
