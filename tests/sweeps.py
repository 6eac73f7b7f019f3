"""What sweeps are drawn from: operators of every path, the axes they lie on, and the values worth asking there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ParallelConfig, ProfilingDataSource, QueryResult
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.many import ManyAnswers
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath


@dataclass(frozen=True)
class Subject:
    """An operator in a database, with the values worth asking on each of its axes."""

    name: str
    source: InterpolatingDataSource
    disabled: InterpolatingDataSource
    leaf: LeafOp
    entry: OperatorEntry
    path: OperatorPath
    values: Mapping[str, Sequence[int]]

    def at(self, place: Mapping[str, int]) -> LeafOp:
        return self.path.moved(self.leaf, place, self.entry)


def subject(name: str, database: ProfilingDatabase, leaf: LeafOp, ep_size: int | None = None) -> Subject | None:
    """None where the operator lies on no axes of this database."""
    base = ProfilingDataSource(database, None, ParallelConfig(expert_parallel_size=ep_size))
    entry = base.entry(leaf)
    path = None if entry is None else path_for(entry)
    if entry is None or not isinstance(path, OperatorPath) or entry.zero_cost or entry.accepted_miss:
        return None
    source = InterpolatingDataSource(base)
    values = _values(source, leaf, entry, path)
    if not values:
        return None
    disabled = InterpolatingDataSource(base, disable_interpolation=True)
    return Subject(f"{name} {leaf.name}", source, disabled, leaf, entry, path, values)


def _values(
    source: InterpolatingDataSource, leaf: LeafOp, entry: OperatorEntry, path: OperatorPath
) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for kernel in path.kernels(entry):
        table = source.database.table(kernel)
        if table is None:
            continue
        policy = source.database.mapping.policy(kernel, entry.kernel_type)
        targets = path.targets(source.base.context, leaf, entry, table, policy)
        for target in () if isinstance(targets, Miss) else targets:
            index = source.engine.index(path, table, entry, target.view)
            for axis, value in target.axes.items():
                held = found.setdefault(axis, {int(value)})
                for group in index.groups[:200]:
                    held |= _measured(
                        group.points.axes.get(axis), squared=bool(policy.axis_transform and axis == "seq")
                    )
    dims = {dim for spec in (*leaf.inputs, *leaf.outputs) for dim in spec.shape}
    return {axis: _around(values | dims) for axis, values in found.items()}


def _measured(column: object, *, squared: bool) -> set[int]:
    if column is None:
        return set()
    values = np.unique(np.asarray(column, dtype=np.float64))
    values = values[np.isfinite(values)]
    return {round(float(value) ** (2 if squared else 1)) for value in values}


def _around(values: set[int]) -> list[int]:
    """Each value, its neighbours, what pads it, the middle to the next one, and the smallest sizes there are."""
    ordered = sorted(value for value in values if 0 <= value < 2**20)
    found = {0, 1, 2, 3, *ordered}
    for low, high in zip(ordered, [*ordered[1:], 2 * (ordered or [1])[-1]], strict=True):
        found |= {low + 1, max(low - 1, 0), (low + high) // 2, -(-low // 16) * 16, -(-low // 64) * 64, low // 2}
    return sorted(found)


def differences(subject: Subject, columns: Mapping[str, Sequence[int]], *, disabled: bool = False) -> list[str]:
    """Points of a sweep at which `query_many` is not `query`, bit for bit and source for source."""
    source = subject.disabled if disabled else subject.source
    many = source.query_many(subject.leaf, **columns)
    found = []
    for at in range(len(many)):
        place = {axis: int(values[at]) for axis, values in columns.items()}
        single = source.query(subject.at(place))
        if _seen(many, at) != _wanted(single):
            found.append(f"{subject.name} at {place}: query_many {_seen(many, at)}, query {_wanted(single)}")
    return found


def _seen(many: ManyAnswers, at: int) -> tuple[object, ...]:
    source = many.sources[at]
    return ("miss",) if source is None else (str(source), float(many.latency_us[at]).hex(), int(many.dims[at]))


def _wanted(single: QueryResult | Miss) -> tuple[object, ...]:
    if not isinstance(single, QueryResult):
        return ("miss",)
    return str(single.source), single.latency_us.hex(), int(single.details.get("interpolation_dim", 0))
