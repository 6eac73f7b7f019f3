"""What a database can be asked: its operators, and where the measurements of one of them lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensor_cast.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
    from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
    from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

__all__ = ["KernelAxes", "OperatorLine", "Regime", "list_operators", "measured_axes"]


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """One operator of a mapping.  `attributes` are its non-tensor arguments, `path` how it is looked up.

    `kernels` are those that may have run it, `measured` those of them with a table that can be used.
    """

    name: str
    path: str
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    kernels: tuple[str, ...]
    measured: tuple[str, ...]
    notes: str

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.name,
            "path": self.path,
            "inputs": list(self.inputs),
            "attributes": list(self.attributes),
            "kernels": list(self.kernels),
            "measured": list(self.measured),
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class Regime:
    """Rows that may answer one another: the facts they share, how many there are, and the range of each axis."""

    facts: Mapping[str, Any]
    points: int
    axes: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class KernelAxes:
    """One kernel's measurements: `axes` gives every measured value, `facts` every value of each regime field.

    `variants` are the kernels that really ran, where the table tells; `problem` says why there is no table.
    """

    kernel: str
    points: int
    axes: Mapping[str, tuple[float, ...]]
    facts: Mapping[str, tuple[Any, ...]]
    variants: tuple[str, ...]
    regimes: tuple[Regime, ...]
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        from tensor_cast.performance_model.profiling_database.data_source import jsonable

        found: dict[str, Any] = jsonable(self)
        return found


def list_operators(database: ProfilingDatabase) -> tuple[OperatorLine, ...]:
    """Every operator of the database's mapping, in its order.  Loads the tables of their kernels."""
    return tuple(_line(database, entry) for entry in database.mapping.operators.values())


def _line(database: ProfilingDatabase, entry: OperatorEntry) -> OperatorLine:
    from tensor_cast.operators.signatures import signature

    arguments = signature(entry.name) or ()
    kernels = entry.sub_kernels if entry.composite else entry.kernels
    return OperatorLine(
        entry.name,
        _path(entry),
        tuple(argument.name for argument in arguments if argument.is_tensor),
        tuple(dict.fromkeys((*(argument.name for argument in arguments if not argument.is_tensor), *_asked(entry)))),
        kernels,
        tuple(kernel for kernel in kernels if database.report(kernel).rows_usable),
        entry.notes,
    )


def _asked(entry: OperatorEntry) -> tuple[str, ...]:
    """Attributes beyond the operator's own arguments that its lookup reads."""
    from tensor_cast.performance_model.profiling_database.columns.facts import ATTRIBUTES

    own = tuple(name for name in entry.facts if name not in ("family", "operands"))
    return (*ATTRIBUTES.get(str(entry.facts.get("family")), ()), *own)


def _path(entry: OperatorEntry) -> str:
    from tensor_cast.performance_model.profiling_database.data_source import Miss
    from tensor_cast.performance_model.profiling_database.dispatch import path_for

    if entry.zero_cost:
        return "zero cost"
    if entry.accepted_miss:
        return "accepted miss"
    if entry.composite:
        return "composite"
    if entry.category == "communication":
        return "communication"
    path = path_for(entry)
    return str(path.code) if isinstance(path, Miss) else path.name


def measured_axes(database: ProfilingDatabase, operator: str) -> tuple[KernelAxes, ...]:
    """Where each kernel of an operator was measured.  Raises UnknownNameError for an operator without an entry."""
    entries = database.mapping.operators
    if operator not in entries:
        known = ", ".join(list(entries)[:5])
        hint = nearest(operator, entries) or f"; known: {known}, ... (castq ops lists them)"
        raise UnknownNameError(f"no operator {operator!r} in {database.name}{hint}")
    entry = entries[operator]
    if entry.category == "communication":
        return tuple(_collective(database, kernel) for kernel in entry.kernels)
    kernels = entry.sub_kernels if entry.composite else entry.kernels
    return tuple(_kernel(database, entry, kernel) for kernel in kernels)


def _kernel(database: ProfilingDatabase, entry: OperatorEntry, kernel: str) -> KernelAxes:
    from tensor_cast.performance_model.profiling_database.candidates import build_index
    from tensor_cast.performance_model.profiling_database.dispatch import path_for
    from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable

    table = None if kernel.startswith("hcom_") else database.table(kernel)
    path = path_for(entry)
    if table is None or not isinstance(path, OperatorPath):
        problems = database.report(kernel).problems
        return _without(kernel, problems[0] if problems else "its measurements are found through its children")
    policy = database.mapping.policy(kernel, entry.kernel_type)
    roots = ("seq",) if policy.axis_transform == "sqrt_seq" else ()
    groups = build_index(path, table, entry, policy).groups
    regimes = tuple(_regime(group, roots) for group in groups)
    axes = _merged({axis: _values(group, axis, roots) for axis in group.points.axes} for group in groups)
    facts = _merged({name: (value,) for name, value in regime.facts.items()} for regime in regimes)
    variants = table.variants if isinstance(table, ColumnTable) else ()
    return KernelAxes(kernel, sum(regime.points for regime in regimes), axes, facts, variants, regimes)


def _without(kernel: str, problem: str) -> KernelAxes:
    return KernelAxes(kernel, 0, {}, {}, (), (), problem)


def _regime(group: CandidateGroup, roots: Sequence[str]) -> Regime:
    spans = {axis: values for axis in group.points.axes if (values := _values(group, axis, roots))}
    return Regime(dict(group.regime_key), len(group), {axis: (min(v), max(v)) for axis, v in spans.items()})


def _values(group: CandidateGroup, axis: str, roots: Sequence[str]) -> tuple[float, ...]:
    """The distinct values of an axis, as they were measured."""
    import numpy as np

    column = group.points.axes[axis]
    found = np.unique(column[~np.isnan(column)])
    return tuple((np.round(found**2) if axis in roots else found).tolist())


def _merged(parts: Iterator[Mapping[str, tuple[Any, ...]]]) -> dict[str, tuple[Any, ...]]:
    """Every value of each name, sorted where that is possible."""
    found: dict[str, dict[Any, None]] = {}
    for part in parts:
        for name, values in part.items():
            found.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: _sorted(values) for name, values in found.items()}


def _sorted(values: Mapping[Any, None]) -> tuple[Any, ...]:
    kinds = {type(value) for value in values}
    return tuple(sorted(values)) if kinds <= {int, float} or kinds == {str} else tuple(values)


def _collective(database: ProfilingDatabase, kernel: str) -> KernelAxes:
    table = database.communication_table(kernel)
    if table is None:
        return _without(kernel, database.report(kernel).problems[0])
    regimes = []
    for (devices, tier), rows in table.groups.items():
        spans = {"message_bytes": (float(rows[0].message_bytes), float(rows[-1].message_bytes))}
        regimes.append(Regime({"num_devices": devices, "topology_tier": tier}, len(rows), spans))
    every = [row for rows in table.groups.values() for row in rows]
    facts = _merged({name: (value,) for name, value in regime.facts.items()} for regime in regimes)
    facts["dtype"] = tuple(sorted({row.dtype for row in every}))
    axes = {"message_bytes": tuple(sorted({float(row.message_bytes) for row in every}))}
    return KernelAxes(kernel, len(every), axes, facts, (), tuple(regimes))
