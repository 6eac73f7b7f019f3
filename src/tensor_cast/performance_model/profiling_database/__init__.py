"""The measured-operator database: exact lookup, and guarded interpolation between measured rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.catalogue import find_databases, open_database
    from tensor_cast.performance_model.profiling_database.data_source import (
        DataSourcePerformanceModel,
        Miss,
        MissReason,
        QueryResult,
        QuerySource,
        ShapeMatchInfo,
    )
    from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
    from tensor_cast.performance_model.profiling_database.interpolating_data_source import (
        InterpolatingDataSource,
    )
    from tensor_cast.performance_model.profiling_database.profiling_data_source import ProfilingDataSource

__all__ = [
    "DataSourcePerformanceModel",
    "InterpolatingDataSource",
    "Miss",
    "MissReason",
    "ProfilingDataSource",
    "ProfilingDatabase",
    "QueryResult",
    "QuerySource",
    "ShapeMatchInfo",
    "find_databases",
    "open_database",
]

_MODULES = {
    "ProfilingDatabase": "database",
    "find_databases": "catalogue",
    "open_database": "catalogue",
    "InterpolatingDataSource": "interpolating_data_source",
    "ProfilingDataSource": "profiling_data_source",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'data_source')}"), name)
