"""Which interpolation path owns an operator: what an entry of the mapping selects."""

from __future__ import annotations

from functools import cache

from tensor_cast.errors import nearest
from tensor_cast.performance_model.profiling_database.data_source import Miss, MissReason
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import (
    COMPUTE_SUBCATEGORIES,
    QUERY_MODES,
    OperatorEntry,
)
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

__all__ = ["kernel_missing", "path_for"]


@cache
def _paths(strict: bool) -> dict[str, OperatorPath]:
    from tensor_cast.performance_model.profiling_database.columns.path import TabulatedPath
    from tensor_cast.performance_model.profiling_database.paths.cache_update import CacheUpdatePath
    from tensor_cast.performance_model.profiling_database.paths.dense_attention import DenseAttentionPath
    from tensor_cast.performance_model.profiling_database.paths.dispatch_ffn_combine import (
        DispatchFFNCombinePath,
    )
    from tensor_cast.performance_model.profiling_database.paths.dynamic_quant import DynamicQuantPath
    from tensor_cast.performance_model.profiling_database.paths.elementwise import ElementwisePath
    from tensor_cast.performance_model.profiling_database.paths.generic_compute import GenericComputePath
    from tensor_cast.performance_model.profiling_database.paths.lightning_indexer import (
        LightningIndexerPath,
    )
    from tensor_cast.performance_model.profiling_database.paths.matmul import MatmulPath
    from tensor_cast.performance_model.profiling_database.paths.quantized_matmul import QuantizedMatmulPath
    from tensor_cast.performance_model.profiling_database.paths.sparse_flash_attention import (
        SparseFlashAttentionPath,
    )

    return {
        "moe_fused": DispatchFFNCombinePath(strict),
        "elementwise": ElementwisePath(strict),
        "attention_lightning_indexer": LightningIndexerPath(strict),
        "attention_sparse_sharedkv": SparseFlashAttentionPath(strict),
        "attention_special": DenseAttentionPath(strict),
        "scatter_nd_update_mla": CacheUpdatePath(strict),
        "compute_scale": DynamicQuantPath(strict),
        "quantized_matmul": QuantizedMatmulPath(strict),
        "matmul": MatmulPath(strict),
        "generic": GenericComputePath(strict),
        "tabulated": TabulatedPath(strict),
    }


def path_for(entry: OperatorEntry, *, strict: bool = False) -> OperatorPath | Miss:
    """The path an entry's selectors lead to, or the miss that says why there is none."""
    paths = _paths(strict)
    if "family" in entry.facts:
        return paths["tabulated"]
    if entry.composite:
        return Miss(MissReason.WRAPPER_COMPOSITE_OWNED_UPSTREAM, entry.name)
    if entry.category == "communication":
        return Miss(MissReason.WRAPPER_COMMUNICATION_OWNED_BY_BASE)
    if entry.query_mode is not None:
        if entry.query_mode not in QUERY_MODES:
            return _unknown(MissReason.QUERY_MODE_UNKNOWN, "query_mode", entry.query_mode, QUERY_MODES)
        return paths[entry.query_mode]
    if entry.compute_subcategory is not None:
        if entry.compute_subcategory not in COMPUTE_SUBCATEGORIES:
            reason = MissReason.COMPUTE_SUBCATEGORY_UNKNOWN
            return _unknown(reason, "compute_subcategory", entry.compute_subcategory, COMPUTE_SUBCATEGORIES)
        return paths[entry.compute_subcategory]
    if not entry.kernels:
        return kernel_missing(entry.name)
    traits = kernel_traits(entry.kernels[0])
    return paths["matmul" if traits.product or traits.path_product else "generic"]


def kernel_missing(operator: str) -> Miss:
    """The miss of an operator whose entry names no kernel."""
    hint = f"operator_mappings.{operator} in op_mapping.yaml names no kernel_type"
    return Miss(MissReason.KERNEL_TYPE_MISSING, operator, {"hint": hint})


def _unknown(reason: MissReason, field: str, value: str, known: tuple[str, ...]) -> Miss:
    return Miss(reason, value, {"hint": f"{field} {value!r} is none of {', '.join(known)}{nearest(value, known)}"})
