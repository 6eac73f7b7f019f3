"""Ask a profiling database about operators, and get answers that carry their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.errors import nearest

if TYPE_CHECKING:
    from tensor_cast.devices import DeviceProfile
    from tensor_cast.operators.leaf import LeafOp
    from tensor_cast.performance_model.profiling_database.data_source import (
        DataSourcePerformanceModel,
        Miss,
        QueryResult,
    )
    from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase

__all__ = ["Answer", "Setting", "answers_to_json", "ask", "ask_database", "opened"]

SYNTHETIC: Final = "SYNTHETIC data"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a lookup depends on besides the operator.

    `device` names a device profile; None takes the one the database declares, where there is one.  `strict` lets only
    the very operator match, False also padding, tolerances and related dtypes; None does as the mapping says.
    `mapping` is a mapping file used instead of the database's own; `cache` keeps what was read of column tables in the
    user's folder.
    """

    interpolate: bool = True
    device: str | None = None
    tp_size: int = 1
    ep_size: int | None = None
    strict: bool | None = None
    mapping: str | None = None
    cache: bool = True


@dataclass(frozen=True)
class Answer:
    """One operator and what the database says about it."""

    leaf: LeafOp
    outcome: QueryResult | Miss
    database: str
    synthetic: bool
    hint: str = field(default="")

    @property
    def result(self) -> QueryResult | None:
        """The complete answer, or None."""
        from tensor_cast.performance_model.profiling_database.data_source import QueryResult, QuerySource

        complete = isinstance(self.outcome, QueryResult) and self.outcome.source is not QuerySource.PARTIAL
        return self.outcome if complete else None  # type: ignore[return-value]

    @property
    def answered(self) -> bool:
        return self.result is not None

    @property
    def line(self) -> str:
        """The answer in one line."""
        text = str(self.outcome) + self.hint
        return f"{text}; {SYNTHETIC}" if self.synthetic and SYNTHETIC not in text else text

    def to_json(self) -> dict[str, Any]:
        """The whole answer as plain JSON values."""
        from tensor_cast.operators.records import leaf_to_json

        return {
            "answered": self.answered,
            "operator": leaf_to_json(self.leaf),
            "database": {"path": self.database, "synthetic": self.synthetic},
            **self.outcome.to_json(),
        }


def answers_to_json(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Several answers as plain JSON values."""
    return [answer.to_json() for answer in answers]


def ask(where: str | Path, leaves: Iterable[LeafOp], setting: Setting | None = None) -> Iterator[Answer]:
    """Answer each operator from the database at `where`, opened once.

    Raises InvalidValueError, UnknownNameError or DataFileError for a database or a device that cannot be used; what the
    data cannot answer is a miss, not an error.
    """
    chosen = setting or Setting()
    yield from ask_database(opened(where, chosen.mapping, chosen.cache), leaves, chosen)


def opened(where: str | Path, mapping: str | None = None, cache: bool = True) -> ProfilingDatabase:
    """The database at `where`, as the commands open it.  Raises as `ask` does."""
    from tensor_cast.performance_model.profiling_database.catalogue import open_database
    from tensor_cast.performance_model.profiling_database.columns.column_tables import ReadOptions

    return open_database(where, mapping=mapping, options=ReadOptions.from_environment(cache=cache))


def ask_database(
    database: ProfilingDatabase, leaves: Iterable[LeafOp], setting: Setting | None = None
) -> Iterator[Answer]:
    """As `ask`, of a database that is open already."""
    source = _source(database, setting or Setting())
    known = tuple(database.mapping.operators)
    for leaf in leaves:
        hint = "" if leaf.name in known else nearest(leaf.name, known) if known else _without_mapping(database)
        yield Answer(leaf, source.query(leaf), database.name, database.synthetic, hint)


def _without_mapping(database: ProfilingDatabase) -> str:
    """Why no operator is mapped at all."""
    note = database.mapping.header.get("notes", "") if database.mapping.path is None else ""
    return f"; {note}" if note else ""


def _source(database: ProfilingDatabase, setting: Setting) -> DataSourcePerformanceModel:
    from tensor_cast.parallel import ParallelConfig
    from tensor_cast.performance_model.profiling_database import ProfilingDataSource

    parallel = ParallelConfig(tensor_parallel_size=setting.tp_size, expert_parallel_size=setting.ep_size)
    matching = None if setting.strict is None else "strict" if setting.strict else "compatible"
    base = ProfilingDataSource(database, _device(database, setting.device), parallel, exact_match=matching)
    if not setting.interpolate:
        return base
    from tensor_cast.performance_model.profiling_database import InterpolatingDataSource

    return InterpolatingDataSource(base)


def _device(database: ProfilingDatabase, name: str | None) -> DeviceProfile | None:
    from tensor_cast.devices import device_names, device_profile

    if name is not None:
        return device_profile(name)
    declared = database.mapping.header.get("device", "")
    return device_profile(declared) if declared in device_names() else None
