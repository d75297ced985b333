"""Student's t distribution, so that the core needs no scipy.

Reference: the incomplete beta function by Lentz's continued fraction (DLMF 8.17.22).
"""

from __future__ import annotations

import math

_TINY = 1e-300


def cdf(value: float, freedom: float) -> float:
    """P(T <= value) for `freedom` > 0 degrees of freedom."""
    tail = 0.5 * two_sided(value, freedom)
    return 1.0 - tail if value > 0 else tail


def two_sided(value: float, freedom: float) -> float:
    """P(|T| >= |value|), exact also where it is far below the rounding of `1 - cdf`."""
    if math.isinf(value):
        return 0.0
    total = freedom + value * value
    return _incomplete_beta(freedom / total, value * value / total, 0.5 * freedom, 0.5)


def quantile(probability: float, freedom: float) -> float:
    """The value below which T falls with `probability` in (0, 1), by bisection."""
    if probability < 0.5:
        return -quantile(1.0 - probability, freedom)
    low, high = 0.0, 1.0
    while cdf(high, freedom) < probability:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cdf(middle, freedom) < probability else (low, middle)
    return 0.5 * (low + high)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b); `rest` is 1 - x without its rounding error."""
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast only on the other side
        return 1.0 - _incomplete_beta(rest, x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(scale) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)) with the coefficients d of DLMF 8.17.23."""
    value, upper, lower = 1.0, 1.0, 0.0
    for index in range(1, 2000):
        m = index // 2
        if index % 2:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1.0 / (_away_from_zero(1.0 + step * lower))
        upper = _away_from_zero(1.0 + step / upper)
        value *= upper * lower
        if abs(upper * lower - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
