"""The best list of sizes for the batches that occur: an exact optimum by dynamic programming.

Sizes are chosen among the batches themselves: a size between two batches pads the lower one for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from tensor_cast.errors import InvalidValueError

__all__ = ["SizeList", "best_sizes", "cost_of", "share_beyond"]


@dataclass(frozen=True, slots=True)
class SizeList:
    """A list of sizes, and the share of rows that it pads on the histogram that it was made for."""

    sizes: tuple[int, ...]
    wasted: float


def cost_of(sizes: tuple[int, ...], histogram: Mapping[int, float]) -> float:
    """The share of rows that is padding; batches above the last size run as they are, which `share_beyond` counts."""
    real = sum(batch * count for batch, count in histogram.items())
    padded = sum(next((s for s in sizes if s >= batch), batch) * count for batch, count in histogram.items())
    return (padded - real) / padded if padded else 0.0


def share_beyond(sizes: tuple[int, ...], histogram: Mapping[int, float]) -> float:
    """The share of steps whose batch is above every size: they pad nothing because nothing captured runs them."""
    total = sum(histogram.values())
    largest = max(sizes, default=0)
    return sum(count for batch, count in histogram.items() if batch > largest) / total if total else 0.0


def best_sizes(histogram: Mapping[int, float], count: int, ceiling: int) -> SizeList:
    """At most `count` sizes, the last of them the ceiling, with the fewest padded rows.

    O(count x batches^2).  Raises InvalidValueError for a batch above the ceiling, and for no size at all.
    """
    if count < 1:
        raise InvalidValueError(f"{count} sizes: at least 1")
    batches = sorted(batch for batch, weight in histogram.items() if weight > 0)
    if not batches:
        raise InvalidValueError("no batches to choose sizes for")
    if batches[-1] > ceiling:
        raise InvalidValueError(f"a batch of {batches[-1]} is above the ceiling {ceiling}")
    places = batches if batches[-1] == ceiling else [*batches, ceiling]
    weights = [histogram.get(batch, 0.0) for batch in places]
    sizes = _optimum(places, weights, min(count, len(places)))
    return SizeList(sizes, cost_of(sizes, histogram))


def _optimum(places: list[int], weights: list[float], count: int) -> tuple[int, ...]:
    """The chosen places: `best[k][j]` is the least cost of the first j places with k sizes, the last at place j."""
    heavy = [0.0, *accumulate(weights)]
    rows = [0.0, *accumulate(weight * place for weight, place in zip(weights, places, strict=True))]

    def padding(low: int, high: int) -> float:
        """Rows padded where places low..high-1 all run at the last of them."""
        return places[high - 1] * (heavy[high] - heavy[low]) - (rows[high] - rows[low])

    ends = range(len(places) + 1)
    best = [padding(0, end) if end else 0.0 for end in ends]
    chosen: list[list[int]] = [[0] * len(ends)]
    for _ in range(1, count):
        cuts = [min(range(end), key=lambda cut, end=end: best[cut] + padding(cut, end), default=0) for end in ends]  # type: ignore[misc]
        best = [best[cut] + padding(cut, end) if end else 0.0 for end, cut in zip(ends, cuts, strict=True)]
        chosen.append(cuts)
    found, end = [], len(places)
    for cuts in reversed(chosen):
        if not end:
            break
        found.append(places[end - 1])
        end = cuts[end]
    return tuple(sorted(found))
