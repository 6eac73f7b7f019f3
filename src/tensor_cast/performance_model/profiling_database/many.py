"""Many questions at once: one operator, some of its axes as arrays, answered in vectorised passes.

A question of a sweep is the operator moved there, and its answer is what `query` says of it.  Points at which the
operator is described alike (all in general position, see `alike`) go through their groups together, in the order of
precedence of single questions; the others, and those that a pass cannot settle, are asked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.data_source import QueryResult, QuerySource
from tensor_cast.performance_model.profiling_database.geometry.slice_values import line_values, multi_values
from tensor_cast.performance_model.profiling_database.geometry.slices import Method, Pick, Slice
from tensor_cast.performance_model.profiling_database.interpolation_index import AxisMatcher, CandidateGroup

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]

__all__ = ["ManyAnswers", "Reading", "Sweep", "alike", "fill_exact", "fill_interpolated", "numbers_of", "places_of"]

_LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class ManyAnswers:
    """Latencies in microseconds (NaN where there is no answer), the dimension of each answer, and the points asked.

    `dims` is 0 for a measured point, 1 to 3 for an interpolation, -1 for a miss; `query` on a point tells why.  `axes`
    holds one column for each axis of the question, all of one length.
    """

    latency_us: FloatArray
    dims: IntArray
    axes: Mapping[str, IntArray]

    @property
    def answered(self) -> BoolArray:
        return self.dims >= 0

    @property
    def sources(self) -> tuple[QuerySource | None, ...]:
        """MEASURED or INTERPOLATED for each point, None for a miss."""
        named = {-1: None, 0: QuerySource.MEASURED}
        return tuple([named.get(dim, QuerySource.INTERPOLATED) for dim in self.dims.tolist()])

    def __len__(self) -> int:
        return len(self.dims)


class Sweep:
    """The points of a sweep, the answers found so far, and the points that have to be asked one by one."""

    def __init__(self, varied: Mapping[str, ArrayLike]) -> None:
        self.columns = _columns(varied)
        self.size = len(next(iter(self.columns.values())))
        self.latency_us = np.full(self.size, np.nan)
        self.dims = np.full(self.size, -1, dtype=np.int64)
        self.doubtful = np.zeros(self.size, dtype=bool)

    @property
    def open(self) -> IntArray:
        """Points without an answer whose answer a pass may still find."""
        return np.flatnonzero((self.dims < 0) & ~self.doubtful)

    def fill(self, at: IntArray, values: FloatArray, dim: int) -> None:
        """Record the answers that are numbers."""
        good = ~np.isnan(values)
        self.latency_us[at[good]] = values[good]
        self.dims[at[good]] = dim

    def settle(self, at: IntArray, answer: QueryResult) -> None:
        """Record one answer at several points."""
        self.latency_us[at] = answer.latency_us
        self.dims[at] = 0 if answer.source is QuerySource.MEASURED else answer.interpolation_dim

    def places(self, at: IntArray) -> Iterator[IntArray]:
        """These points, those of one place together."""
        return places_of([column[at] for column in self.columns.values()], at)

    def probes(self) -> list[int]:
        """Some open points, the outermost on each axis among them."""
        at = self.open
        found = {0, len(at) // 2, len(at) - 1}
        for column in self.columns.values():
            found |= {int(column[at].argmin()), int(column[at].argmax())}
        return [int(place) for place in at[sorted(found)]]

    def doubt(self) -> None:
        """Leave what is still open to single questions."""
        self.doubtful |= self.dims < 0

    def place(self, at: int) -> dict[str, int]:
        """The coordinates of one point."""
        return {axis: int(column[at]) for axis, column in self.columns.items()}

    def answers(self) -> ManyAnswers:
        return ManyAnswers(self.latency_us, self.dims, self.columns)


def _columns(varied: Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Whole numbers, one column for each axis, single values repeated.  Raises InvalidValueError for anything else."""
    if not varied:
        raise InvalidValueError("query_many: name at least one axis, such as M=[1, 2, 4]")
    columns = {axis: _whole(axis, values) for axis, values in varied.items()}
    sizes = {axis: column.size for axis, column in columns.items() if column.ndim}
    if len(set(sizes.values())) > 1:
        got = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        raise InvalidValueError(f"query_many: axes must be single values or arrays of one length, got {got}")
    size = next(iter(sizes.values()), 1)
    return {axis: np.array(np.broadcast_to(column, size)) for axis, column in columns.items()}


def _whole(axis: str, values: ArrayLike) -> IntArray:
    given = np.asarray(values)
    if given.ndim > 1:
        raise InvalidValueError(f"query_many: {axis} must be a number or a list of them, got {given.ndim} dimensions")
    if not given.size:
        return given.astype(np.int64)
    if given.dtype.kind not in "iuf":
        raise InvalidValueError(f"query_many: {axis} must be whole numbers, got {given.ravel()[0]!r}")
    wrong = ~((given >= 0) & (given <= _LARGEST) & (given == np.floor(given)))
    if wrong.any():
        got = given[wrong][0] if given.ndim else given[()]
        raise InvalidValueError(f"query_many: {axis} must be whole numbers from 0 to 2**53, got {got}")
    return given.astype(np.int64)


def places_of(columns: Sequence[NDArray[np.generic]], positions: IntArray) -> Iterator[IntArray]:
    """Positions of equal values in every column, one array for each distinct place."""
    if not len(positions):
        return
    if not columns:
        yield positions
        return
    order = np.lexsort(tuple(columns)[::-1])
    fresh = np.zeros(len(order), dtype=bool)
    for column in columns:
        fresh[1:] |= np.diff(column[order]) != 0
    yield from np.split(positions[order], np.flatnonzero(fresh))


def alike(columns: Mapping[str, IntArray], numbers: frozenset[int]) -> BoolArray:
    """Which points lie in general position: descriptions compare sizes with each other, with 0 and with 1.

    `numbers` are those that the operator itself carries.  A point qualifies where each value is at least 2 and neither
    equals, halves nor doubles one of them or another axis's value: no comparison there comes out differently from
    that at another such point.
    """
    special = np.array(sorted({value for n in numbers for value in (n, 2 * n, n // 2) if value < 2 * _LARGEST}))
    general = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for i, column in enumerate(columns.values()):
        general &= (column >= 2) & ~np.isin(column, special)
        for other in list(columns.values())[:i]:
            general &= (column != other) & (column != 2 * other) & (2 * column != other)
    return general


@dataclass(frozen=True)
class Reading:
    """What all open points have in common: the group, and the axes as one value or as a column over all points."""

    group: CandidateGroup
    pick: Pick
    axes: Mapping[str, FloatArray | float]
    matchers: Mapping[str, AxisMatcher]

    def varied(self, axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(axis for axis in axes if not isinstance(self.axes[axis], float))

    def at(self, axis: str, positions: IntArray) -> FloatArray:
        value = self.axes[axis]
        return np.full(len(positions), value) if isinstance(value, float) else value[positions]


def fill_exact(sweep: Sweep, reading: Reading) -> None:
    """Answer the points that were measured; those whose coordinate is ambiguous are left to single questions."""
    merged = reading.group.merged(tuple(reading.axes), reading.pick)
    at = sweep.open
    if merged is None or not len(merged) or not len(at):
        return
    for column, axis in zip(merged.coordinates.T, reading.axes, strict=True):
        at = at[_held(np.unique(column), reading.at(axis, at))]
    columns = [reading.at(axis, at).tolist() for axis in reading.axes]
    found = np.array([merged.positions.get(place, -1) for place in zip(*columns, strict=True)], dtype=np.int64)
    at, found = at[found >= 0], found[found >= 0]
    problem = merged.problems[found] != 0
    sweep.doubtful[at[problem]] = True
    sweep.fill(at[~problem], merged.values[found[~problem]], 0)


def fill_interpolated(sweep: Sweep, reading: Reading, axis_groups: Sequence[tuple[str, ...]], method: Method) -> None:
    """Answer what the axis groups can, in their order."""
    top = 3 if method.max_dim is None else method.max_dim
    groups = [axes for axes in axis_groups if len(axes) <= top and all(axis in reading.axes for axis in axes)]
    lines = [axes for axes in groups if len(axes) == 1]
    held = _Held(reading)
    if method.tightest_axis:
        _fill_tightest(sweep, reading, lines, held)
        groups = [axes for axes in groups if len(axes) > 1]
    for axes in groups:
        for at, prepared in _slices(sweep, reading, axes, held):
            if len(axes) == 1:
                values, _ = line_values(prepared, reading.at(axes[0], at))
            else:
                points = np.column_stack([reading.at(axis, at) for axis in axes])
                values = multi_values(reading.group, prepared, points, method)
            sweep.fill(at, values, len(axes))


def _fill_tightest(sweep: Sweep, reading: Reading, lines: Sequence[tuple[str, ...]], held: _Held) -> None:
    best = np.full(sweep.size, np.inf)
    latency = np.full(sweep.size, np.nan)
    for line in lines:
        for at, prepared in _slices(sweep, reading, line, held):
            values, widths = line_values(prepared, reading.at(line[0], at))
            better = ~np.isnan(values) & (widths < best[at])
            best[at[better]], latency[at[better]] = widths[better], values[better]
    at = sweep.open
    sweep.fill(at, latency[at], 1)


class _Held:
    """Which points of a reading have a measured value on an axis, found once for each axis."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: dict[str, BoolArray] = {}

    def on(self, axis: str, at: IntArray) -> BoolArray:
        if axis not in self._known:
            column: Any = self._reading.axes[axis]
            self._known[axis] = _held(self._reading.group.levels(axis), column)
        return self._known[axis][at]


def _held(levels: FloatArray, values: FloatArray) -> BoolArray:
    """Which values are among the sorted levels."""
    if not len(levels):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(levels[np.searchsorted(levels, values).clip(max=len(levels) - 1)] == values)


def _slices(sweep: Sweep, reading: Reading, axes: tuple[str, ...], held: _Held) -> Iterator[tuple[IntArray, Slice]]:
    """The open points by the slice they lie in."""
    at = sweep.open
    others = reading.varied([axis for axis in reading.axes if axis not in axes])
    for axis in others:
        if axis not in reading.matchers:
            at = at[held.on(axis, at)]
    for places in places_of([reading.at(axis, at) for axis in others], at):
        first = places[:1]
        target = {axis: float(reading.at(axis, first)[0]) for axis in reading.axes}
        prepared = reading.group.slice_for(target, axes, reading.pick, reading.matchers)
        if prepared is not None and prepared.merged.filtered >= 2:
            yield places, prepared


def numbers_of(leaf: LeafOp, facts: Mapping[str, object]) -> frozenset[int]:
    """Every whole number an operator carries: dimensions, attributes, request lengths, and the mapping's facts."""
    requests = leaf.requests
    lengths = () if requests is None else (requests.query_lens, requests.kv_lens, requests.block_table_shape)
    found: set[int] = {dim for spec in (*leaf.inputs, *leaf.outputs) for dim in spec.shape}
    for value in (*(value for _, value in leaf.attrs), *facts.values(), *lengths):
        items = value if isinstance(value, tuple | list) else (value,)
        found.update(item for item in items if isinstance(item, int))
    if requests is not None and requests.count is not None:
        found.add(requests.count)
    return frozenset(found)
