"""Names that users of the existing `profiling_data_source` import, over what stands behind them here.

Source: docs/migrating.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tensor_cast.devices import DeviceProfile
from tensor_cast.dtypes import ASCEND_NAMES
from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import QUERY_MODES
from tensor_cast.performance_model.profiling_database.tables.shapes import restore_nd

__all__ = ["DTYPE_MAP", "SUPPORTED_QUERY_MODES", "SubKernelSpec", "fractal_nz_to_nd", "get_topology_tier"]

DTYPE_MAP: Final[Mapping[str, str]] = {f"torch.{name}": kernel for name, kernel in ASCEND_NAMES.items()}
SUPPORTED_QUERY_MODES: Final = frozenset(QUERY_MODES)


def fractal_nz_to_nd(shape: Sequence[int]) -> list[int]:
    """The logical shape of a FRACTAL_NZ tile: `(66, 448, 16, 32)` is `[2112, 7168]`; below rank 4 as it is."""
    return list(restore_nd(tuple(shape)))


def get_topology_tier(rank_group: Sequence[int], comm_grid: Shape, tiers: Sequence[int]) -> int | None:
    """The tier of the outermost level of `comm_grid` in which the ranks differ; None without a grid or tiers."""
    return DeviceProfile("", comm_grid=tuple(comm_grid), tiers=tuple(tiers)).topology_tier(tuple(rank_group))


@dataclass(frozen=True)
class SubKernelSpec:
    """One child of a decomposed operator, as decomposers of one's own describe it."""

    kernel_type: str
    input_shapes: Sequence[Sequence[int]]
    dtype: object
    query_mode: str = "compute"
    attention_params: Mapping[str, object] | None = None
    tc_input_count: int | None = None
    alternate_kernel_types: Sequence[str] | None = None
    is_attention: bool = False
