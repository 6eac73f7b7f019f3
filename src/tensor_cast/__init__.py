"""Measured operators: a leaf operator is answered from a profiling database, or refused with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensor_cast.operators.leaf import LeafOp, Requests
    from tensor_cast.operators.tensor import TensorSpec
    from tensor_cast.parallel import ParallelConfig
    from tensor_cast.performance_model.profiling_database import (
        InterpolatingDataSource,
        Miss,
        ProfilingDataSource,
        QueryResult,
        QuerySource,
        open_database,
    )

__all__ = [
    "InterpolatingDataSource",
    "LeafOp",
    "Miss",
    "ParallelConfig",
    "ProfilingDataSource",
    "QueryResult",
    "QuerySource",
    "Requests",
    "TensorSpec",
    "open_database",
]

__version__ = "0.1.0"

_HOME = {
    "LeafOp": "tensor_cast.operators.leaf",
    "Requests": "tensor_cast.operators.leaf",
    "TensorSpec": "tensor_cast.operators.tensor",
    "ParallelConfig": "tensor_cast.parallel",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tensor_cast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME.get(name, "tensor_cast.performance_model.profiling_database")), name)
