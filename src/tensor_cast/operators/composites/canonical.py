"""From a composite operator to the canonical leaves the database is asked about, one by one.

Source: RFC 3.2; decision 002.14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tensor_cast.operators.composites.indexer_leaves import indexer_leaves
from tensor_cast.operators.composites.latent_leaves import (
    dense_latent_leaves,
    sparse_latent_leaves,
)
from tensor_cast.operators.composites.leaf_parts import LackingError
from tensor_cast.operators.composites.preprocess_leaves import preprocess_leaves
from tensor_cast.operators.composites.reduce_leaves import reduce_leaves
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.parallel import ParallelConfig

__all__ = ["COMPOSITES", "NotDecomposable", "canonical_leaves"]

Family = Callable[[LeafOp, ParallelConfig], tuple[LeafOp, ...]]

COMPOSITES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "tensor_cast.multihead_latent_attention.default": dense_latent_leaves,
        "tensor_cast.multihead_latent_attention_quant.default": dense_latent_leaves,
        "tensor_cast.mla_sparse_attention.default": sparse_latent_leaves,
        "tensor_cast.mla_sparse_attention_quant.default": sparse_latent_leaves,
        "tensor_cast.mlapo.default": preprocess_leaves,
        "tensor_cast.mlapo_quant.default": preprocess_leaves,
        "tensor_cast.dsa_indexer.default": indexer_leaves,
        "tensor_cast.matmul_all_reduce.default": reduce_leaves,
        "tensor_cast.static_quant_linear_all_reduce.default": reduce_leaves,
        "tensor_cast.static_quant_linear_int4_all_reduce.default": reduce_leaves,
        "tensor_cast.fp8_linear_all_reduce.default": reduce_leaves,
        "tensor_cast.mxfp4_linear_all_reduce.default": reduce_leaves,
    }
)


@dataclass(frozen=True, slots=True)
class NotDecomposable:
    """A composite call that does not say what its children would be; `missing` names what it lacks."""

    operator: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operator} cannot be decomposed: {', '.join(self.missing)} needed"

    def to_json(self) -> dict[str, object]:
        """The same facts as plain JSON values."""
        return {"operator": self.operator, "missing": list(self.missing)}


def canonical_leaves(leaf: LeafOp, parallel: ParallelConfig) -> tuple[LeafOp, ...] | NotDecomposable | None:
    """The children in launch order, each a leaf of its own with `source = child:<parent>#<index>`.

    None for an operator that is a leaf already; `NotDecomposable` for a composite that lacks what its children need.
    Tensors, request grouping, block table, top-k and cache go along, so that every child is answered, exactly or by
    interpolation, by the mapping entry of its own name.
    """
    family = COMPOSITES.get(leaf.name)
    if family is None:
        return None
    try:
        return family(leaf, parallel)
    except LackingError as lacking:
        return NotDecomposable(leaf.name, lacking.missing)
