"""Small statistics: how a time grows, and whether two samples differ."""

from __future__ import annotations

import math
from collections.abc import Sequence


def growth(points: Sequence[tuple[float, float]]) -> float:
    """The exponent k of time = c * length^k that fits best: 0 is constant, 1 is linear.

    Least squares on logarithms.
    """
    xs = [math.log(length) for length, _ in points]
    ys = [math.log(time) for _, time in points]
    x_mean, y_mean = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    spread = math.fsum((x - x_mean) ** 2 for x in xs)
    if spread == 0:
        return math.nan
    return math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


def told_apart(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The Mann-Whitney test: `(chance, p)`.

    `chance` is how often a value of the first sample lies above one of the second, ties counting half: 0.5 when
    nobody can tell them apart by their times, 0 or 1 when anybody can. `p` is how likely a chance at least that far
    from 0.5 is between samples of one kind (normal approximation, right for twenty values and more).
    """
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum = 0.0
    ties = 0.0
    place = 0
    while place < len(ranked):
        end = place
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            end += 1
        rank = (place + end + 1) / 2
        rank_sum += rank * sum(1 for _, sample in ranked[place:end] if sample == 0)
        ties += (end - place) ** 3 - (end - place)
        place = end
    n, m = len(first), len(second)
    u = rank_sum - n * (n + 1) / 2
    total = n + m
    deviation = math.sqrt(n * m / 12 * (total + 1 - ties / (total * (total - 1))))
    z = (u - n * m / 2) / deviation if deviation else 0.0
    return u / (n * m), math.erfc(abs(z) / math.sqrt(2))
