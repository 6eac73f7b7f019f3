"""Repeated measurements of one point become one: the median, with count and spread.

Above a spread of 1.10 they are ambiguous, and a regime whose metadata contradict each other is refused (buffer
capacities of fused dispatch).  Source: docs/facts/gpu-tables.md, "Repeats", "Experts".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tensor_cast.performance_model.profiling_database.columns.column_rows import Rows

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import (
        BoolArray,
        FloatArray,
        IntArray,
    )

__all__ = ["TOLERANCE", "Points", "group_codes", "merge_repeats"]

TOLERANCE: Final = 1.10
_ROUNDING: Final = 1e-12  # 0.011 / 0.010 is a little more than 1.1 in binary


@dataclass(frozen=True, slots=True)
class Points:
    """One entry per point, in file order.  `source[i]` is the index, in the rows, of the one that holds the median.

    Of an even number of repeats the median is a mean; `source` is then the lower of the middle two.  `spread` is
    max/min; `cloud` numbers the (regime, variant) pairs; `contradictory` marks clouds refused for their metadata.
    """

    source: IntArray
    latency_us: FloatArray
    counts: IntArray
    spread: FloatArray
    cloud: IntArray
    ambiguous: BoolArray
    contradictory: BoolArray


def merge_repeats(rows: Rows) -> Points:
    """The points of `rows`: equal in regime, variant and every axis is one point."""
    if not len(rows):
        return _no_points()
    cloud = group_codes({"regime": rows.regime_codes, "variant": rows.variant_codes})
    group = group_codes({"cloud": cloud, **rows.axes})
    order = np.lexsort((np.arange(len(rows)), rows.latency_us, group))
    latency = rows.latency_us[order]
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    counts = np.diff(np.r_[starts, len(rows)])
    lower, upper = starts + (counts - 1) // 2, starts + counts // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = latency[starts + counts - 1] / latency[starts]
    first = np.minimum.reduceat(order, starts)
    refused = _contradictory(rows, group, cloud)[order[starts]]
    points = Points(
        order[lower],
        (latency[lower] + latency[upper]) / 2,
        counts,
        np.where(counts > 1, spread, 1.0),
        cloud[order[starts]],
        refused | ((counts > 1) & ~(spread <= TOLERANCE * (1 + _ROUNDING))),
        refused,
    )
    return _taken(points, np.argsort(first, kind="stable"))


def group_codes(columns: Mapping[str, FloatArray | IntArray]) -> IntArray:
    """One number per distinct combination of values."""
    codes: IntArray | None = None
    for values in columns.values():
        distinct, inverse = np.unique(values, return_inverse=True)
        if codes is None:
            codes = inverse
        else:
            _, codes = np.unique(codes * len(distinct) + inverse, return_inverse=True)
    return np.zeros(0, dtype=np.int64) if codes is None else codes


def _contradictory(rows: Rows, group: IntArray, cloud: IntArray) -> BoolArray:
    """Per row: whether its cloud holds a point measured under two metadata values with two latencies."""
    if not rows.metadata_codes.any():
        return np.zeros(len(rows), dtype=bool)
    values = _distinct_per_group(group, rows.metadata_codes)
    latencies = _distinct_per_group(group, rows.latency_us)
    bad = np.unique(cloud[((values > 1) & (latencies > 1))[group]])
    return np.isin(cloud, bad)


def _distinct_per_group(group: IntArray, values: FloatArray | IntArray) -> IntArray:
    distinct, inverse = np.unique(values, return_inverse=True)
    pairs = np.unique(group * len(distinct) + inverse)
    return np.bincount(pairs // len(distinct), minlength=int(group.max()) + 1)


def _taken(points: Points, order: IntArray) -> Points:
    return Points(*(getattr(points, name)[order] for name in Points.__dataclass_fields__))


def _no_points() -> Points:
    whole, real, truth = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool)
    return Points(whole, real, whole, real, whole, truth, truth)
