"""Measured points of one regime, and what merging equal coordinates does to them.

Repeats of one coordinate merge by median with count and spread.  A coordinate whose rows disagree in request metadata
or in the kernel that ran is ambiguous and never used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.performance_model.profiling_database.reasons import MissReason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]

__all__ = ["MergedPoints", "PointSet", "freeze", "merge_points"]

_OK, _DISAGREEING, _MIXED_VARIANTS = 0, 1, 2
_PROBLEMS: Final = {
    _DISAGREEING: MissReason.AMBIGUOUS_DUPLICATE_COORDINATE,
    _MIXED_VARIANTS: MissReason.KERNEL_VARIANT_AMBIGUOUS,
}


def freeze(value: object) -> object:
    """A hashable form of a regime value: lists to tuples, mappings to sorted pairs."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, freeze(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


@dataclass(frozen=True)
class PointSet:
    """Columnar points.  `axes[name][i]` is NaN where point `i` lacks the axis; `rows[i]` is its row in the table.

    `labels`: 0 the file's selected latency column, 1 a fallback column, 2 unlabelled.  `variants` numbers the kernel
    that ran, `unusable` marks rows whose coordinate is ambiguous.
    """

    axes: Mapping[str, FloatArray]
    latency_us: FloatArray
    rows: IntArray
    labels: IntArray | None = None
    variants: IntArray | None = None
    unusable: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.latency_us)

    def take(self, chosen: IntArray) -> PointSet:
        """The chosen points only."""

        def part(values: Any) -> Any:
            return None if values is None else values[chosen]

        axes = {axis: values[chosen] for axis, values in self.axes.items()}
        return PointSet(
            axes,
            self.latency_us[chosen],
            self.rows[chosen],
            part(self.labels),
            part(self.variants),
            part(self.unusable),
        )


@dataclass(frozen=True)
class MergedPoints:
    """Distinct coordinates, sorted; `coordinates` is (n, dim), `values` the median latencies in microseconds."""

    points: PointSet
    axes: tuple[str, ...]
    coordinates: FloatArray
    values: FloatArray
    problems: IntArray
    variants: IntArray | None
    order: IntArray
    starts: IntArray
    filtered: int

    def __len__(self) -> int:
        return len(self.values)

    def members(self, index: int) -> IntArray:
        """Table rows merged into one coordinate."""
        chosen = self.order[self.starts[index] : self.starts[index + 1]]
        return self.points.rows[chosen]

    def member_latencies(self, index: int) -> FloatArray:
        return self.points.latency_us[self.order[self.starts[index] : self.starts[index + 1]]]

    def problem(self, index: int) -> MissReason | None:
        """Why a coordinate must not be used, or None."""
        return _PROBLEMS.get(int(self.problems[index]))

    @cached_property
    def places(self) -> list[tuple[float, ...]]:
        """Each coordinate as a tuple."""
        return [tuple(row) for row in self.coordinates.tolist()]

    @cached_property
    def positions(self) -> Mapping[tuple[float, ...], int]:
        """Index of each coordinate, for exact questions."""
        return {place: i for i, place in enumerate(self.places)}

    @cached_property
    def usable(self) -> IntArray:
        """Indices of coordinates without a problem."""
        import numpy as np

        return np.flatnonzero(self.problems == _OK)


def merge_points(points: PointSet, chosen: IntArray, axes: Sequence[str]) -> MergedPoints:
    """Merge the chosen points on the given axes.  O(n log n)."""
    import numpy as np

    columns = [points.axes[axis][chosen] for axis in axes]
    order = np.lexsort(columns[::-1])
    sorted_columns = np.column_stack([column[order] for column in columns])
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (sorted_columns[1:] != sorted_columns[:-1]).any(axis=1)
    starts = np.append(np.flatnonzero(fresh), len(order))
    members = chosen[order]
    values = points.latency_us[members[starts[:-1]]].copy()
    for i in np.flatnonzero(np.diff(starts) > 1):
        values[i] = np.median(points.latency_us[members[starts[i] : starts[i + 1]]])
    variants = None if points.variants is None else points.variants[members[starts[:-1]]]
    return MergedPoints(
        points,
        tuple(axes),
        sorted_columns[starts[:-1]],
        values,
        _problems(points, members, starts),
        variants,
        members,
        starts,
        len(chosen),
    )


def _problems(points: PointSet, members: IntArray, starts: IntArray) -> IntArray:
    import numpy as np

    problems = np.zeros(len(starts) - 1, dtype=np.int64)
    if points.variants is not None:
        problems[_varies(points.variants[members], starts)] = _MIXED_VARIANTS
    if points.unusable is not None and len(members):
        problems[np.add.reduceat(points.unusable[members].astype(np.int64), starts[:-1]) > 0] = _DISAGREEING
    return problems


def _varies(codes: IntArray, starts: IntArray) -> BoolArray:
    import numpy as np

    if not len(codes):
        return np.zeros(0, dtype=bool)
    low = np.minimum.reduceat(codes, starts[:-1])
    high = np.maximum.reduceat(codes, starts[:-1])
    differs: BoolArray = low != high
    return differs
