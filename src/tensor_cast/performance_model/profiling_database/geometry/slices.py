"""A slice: the points that agree with a target on every axis but the selected ones, and how it is interpolated.

One axis: the line between adjacent points.  Two or three: Qhull's simplices, or blending over the bracketing cell.
Source: RFC 2.1; docs/facts/interpolation.md, "Inside one regime"; decision 002.17 for the policies.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tensor_cast.arithmetic import total
from tensor_cast.performance_model.profiling_database.evidence import Attempt
from tensor_cast.performance_model.profiling_database.geometry.points import MergedPoints, PointSet
from tensor_cast.performance_model.profiling_database.interpolation_math import (
    SimplexField,
    clamp_to_vertices,
    linear_interp,
)
from tensor_cast.performance_model.profiling_database.reasons import MissReason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensor_cast.performance_model.profiling_database.geometry.lattice import Frontier, Lattice

    IntArray = NDArray[np.int64]

__all__ = [
    "ALL_POINTS",
    "CONFIDENCE",
    "RFC_METHOD",
    "Found",
    "Method",
    "Pick",
    "Slice",
    "blend",
    "bracket_width",
    "build_slice",
    "checked",
    "grid_problem",
    "inside_frontier",
    "line",
    "partition",
]

CONFIDENCE: Final = {0: 1.0, 1: 0.70, 2: 0.65, 3: 0.60}


@dataclass(frozen=True, slots=True)
class Method:
    """How a group interpolates; the defaults are the RFC's."""

    max_dim: int | None = None
    multi_axis: str = "simplex"
    tightest_axis: bool = False
    frontier_guard: bool = False


class Pick(NamedTuple):
    """Which points of a group take part: one latency-source label, one kernel variant, or all."""

    label: int | None = None
    variant: int | None = None


ALL_POINTS: Final = Pick()
RFC_METHOD: Final = Method()


class Found(NamedTuple):
    """An answer: the latency and the merged coordinates it rests on, with their weights (sum 1)."""

    latency_us: float
    method: str
    axes: tuple[str, ...]
    merged: MergedPoints
    vertices: tuple[int, ...]
    weights: tuple[float, ...]
    attempts: tuple[Attempt, ...] = ()

    @property
    def dim(self) -> int:
        return 0 if self.method == "exact_coordinate" else len(self.axes)


@dataclass(slots=True)
class Slice:
    """Points that agree with a target on all but the selected axes."""

    merged: MergedPoints
    xs: list[float] = field(default_factory=list)
    ys: list[float] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    span: tuple[tuple[float, float], ...] = ()
    problem: str | None = None
    field_or_reason: SimplexField | MissReason | None = None
    tree: object = None
    frontier: Frontier | None = None
    lattice: Lattice | None = None

    def rim(self) -> Frontier:
        """The slice's frontier, built on first use."""
        if self.frontier is None:
            from tensor_cast.performance_model.profiling_database.geometry.lattice import Frontier

            self.frontier = Frontier(self.merged.coordinates[self.merged.usable])
        return self.frontier

    def brackets(self) -> Lattice:
        """The slice's nested brackets for many points, built on first use."""
        if self.lattice is None:
            from tensor_cast.performance_model.profiling_database.geometry.lattice import Lattice

            self.lattice = Lattice(self.merged.coordinates[self.merged.usable])
        return self.lattice


def partition(
    points: PointSet, fixed: tuple[str, ...], axes: tuple[str, ...], pick: Pick
) -> Mapping[tuple[float, ...], IntArray]:
    """Point indices by their values on the fixed axes; points that lack an axis or a latency are left out."""
    import numpy as np

    keep = np.isfinite(points.latency_us) & (points.latency_us > 0)
    if pick.label is not None and points.labels is not None:
        keep &= points.labels == pick.label
    if pick.variant is not None and points.variants is not None:
        keep &= points.variants == pick.variant
    for axis in (*fixed, *axes):
        if axis not in points.axes:
            return {}
        keep &= ~np.isnan(points.axes[axis])
    chosen = np.flatnonzero(keep)
    if not fixed:
        return {(): chosen} if len(chosen) else {}
    columns = [points.axes[axis][chosen] for axis in fixed]
    order = np.lexsort(columns[::-1])
    table = np.column_stack([column[order] for column in columns])
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (table[1:] != table[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    pieces = np.split(chosen[order], starts[1:]) if len(order) else []
    return {tuple(table[start].tolist()): np.sort(piece) for start, piece in zip(starts, pieces, strict=True)}


def build_slice(merged: MergedPoints) -> Slice:
    """The slice over merged points, its usable coordinates sorted and its span known."""
    usable = merged.usable
    prepared = Slice(merged)
    if not len(usable):
        prepared.span = tuple((math.inf, -math.inf) for _ in merged.axes)
        return prepared
    corners = merged.coordinates[usable]
    prepared.span = tuple(zip(corners.min(axis=0).tolist(), corners.max(axis=0).tolist(), strict=True))
    prepared.index = usable.tolist()
    if len(merged.axes) == 1:
        prepared.xs = corners[:, 0].tolist()
        prepared.ys = merged.values[usable].tolist()
    return prepared


def line(prepared: Slice, axes: tuple[str, ...], x: float) -> Found | Attempt:
    """Linear between the two measured points around `x`, which lies inside the span."""
    xs = prepared.xs
    at = bisect_left(xs, x)
    if xs[at] == x:
        return checked(prepared, axes, "linear_1d", prepared.ys[at], (prepared.index[at],), (1.0,))
    low = at - 1
    value = linear_interp(x, xs[low], prepared.ys[low], xs[at], prepared.ys[at])
    share = (x - xs[low]) / (xs[at] - xs[low])
    vertices = (prepared.index[low], prepared.index[at])
    return checked(prepared, axes, "linear_1d", value, vertices, (1.0 - share, share))


def checked(
    prepared: Slice,
    axes: tuple[str, ...],
    method: str,
    value: float,
    vertices: tuple[int, ...],
    weights: tuple[float, ...],
) -> Found | Attempt:
    """The answer, unless it is no positive number or joins two kernel variants."""
    merged = prepared.merged
    if not (math.isfinite(value) and value > 0):
        return Attempt(axes, MissReason.LATENCY_GUARD_REJECTED, merged.filtered, prepared.span)
    if merged.variants is not None and len(vertices) > 1:
        kinds = {int(merged.variants[v]) for v, w in zip(vertices, weights, strict=True) if w > 0}
        if len(kinds) > 1:
            return Attempt(axes, MissReason.KERNEL_VARIANT_CHANGES, merged.filtered, prepared.span)
    return Found(value, method, axes, merged, vertices, weights)


def grid_problem(merged: MergedPoints, dim: int) -> str:
    """Why the points cannot span `dim` axes, or an empty text."""
    usable = merged.usable
    if len(usable) < dim + 1:
        return "unique_point_count_lt_min"
    corners = merged.coordinates[usable]
    if any(corners[:, i].min() == corners[:, i].max() for i in range(dim)):
        return "degenerate_axes"
    return ""


def inside_frontier(prepared: Slice, at: tuple[float, ...]) -> bool:
    """Whether some measured point lies at or beyond the target on every axis, and some at or before it."""
    return prepared.rim().holds(at)


def blend(prepared: Slice, axes: tuple[str, ...], at: tuple[float, ...]) -> Found | Attempt:
    """Multilinear over the bracketing cell: bracket the first axis, blend the sub-slices, bracketed in turn."""
    merged = prepared.merged
    if prepared.tree is None:
        prepared.tree = _tree(merged, merged.usable.tolist(), 0)
    weighted = _descend(prepared.tree, at, 0)
    if weighted is None:
        return Attempt(axes, MissReason.BOUNDARY_POINT_MISSING, merged.filtered, prepared.span)
    vertices = tuple(vertex for vertex, _ in weighted)
    weights = tuple(weight for _, weight in weighted)
    corners = [float(merged.values[vertex]) for vertex in vertices]
    value = clamp_to_vertices(total(w * y for w, y in zip(weights, corners, strict=True)), corners)
    return checked(prepared, axes, "bracket_blend", value, vertices, weights)


def _tree(merged: MergedPoints, indices: list[int], axis: int) -> object:
    """Sorted values of one axis and, per value, the tree of the remaining axes (or the point itself)."""
    branches: dict[float, list[int]] = {}
    for index in indices:
        branches.setdefault(float(merged.coordinates[index, axis]), []).append(index)
    values = sorted(branches)
    if axis == len(merged.axes) - 1:
        return values, [branches[value][0] for value in values]
    return values, [_tree(merged, branches[value], axis + 1) for value in values]


def _descend(tree: Any, at: tuple[float, ...], axis: int) -> list[tuple[int, float]] | None:
    values, branches = tree
    x = at[axis]
    high = bisect_left(values, x)
    if high == len(values):
        return None
    if values[high] == x:
        sides = [(high, 1.0)]
    elif high == 0:
        return None
    else:
        share = (x - values[high - 1]) / (values[high] - values[high - 1])
        sides = [(high - 1, 1.0 - share), (high, share)]
    found: list[tuple[int, float]] = []
    for branch, weight in sides:
        if axis == len(at) - 1:
            found.append((branches[branch], weight))
            continue
        below = _descend(branches[branch], at, axis + 1)
        if below is None:
            return None
        found += [(vertex, weight * inner) for vertex, inner in below]
    return found


def bracket_width(found: Found) -> float:
    """How wide a one-axis bracket is: the ratio of its ends, each plus one."""
    corners = [float(found.merged.coordinates[vertex, 0]) for vertex in found.vertices]
    return (max(corners) + 1) / (min(corners) + 1)
