"""Composite operators as what runs on the device.

`canonical_leaves` is the contract for whoever sums: children as leaf operators of their own.  `decompose` is what exact
lookup alone uses for the composites it answers whole.
"""

from __future__ import annotations

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.decomposition.canonical import NotDecomposable, canonical_leaves
from tensor_cast.performance_model.decomposition.descriptor import canonical_leaf
from tensor_cast.performance_model.decomposition.latent_attention import decompose_latent_attention
from tensor_cast.performance_model.decomposition.preprocess import decompose_preprocess
from tensor_cast.performance_model.decomposition.sub_kernel import SubKernel

__all__ = [
    "NotDecomposable",
    "SubKernel",
    "canonical_leaf",
    "canonical_leaves",
    "decompose",
    "is_decomposable",
]

_DECOMPOSERS = {
    "tensor_cast.multihead_latent_attention.default": decompose_latent_attention,
    "tensor_cast.multihead_latent_attention_quant.default": decompose_latent_attention,
    "tensor_cast.mla_sparse_attention.default": decompose_latent_attention,
    "tensor_cast.mla_sparse_attention_quant.default": decompose_latent_attention,
    "tensor_cast.mlapo.default": decompose_preprocess,
    "tensor_cast.mlapo_quant.default": decompose_preprocess,
}


def is_decomposable(operator: str) -> bool:
    """Whether a decomposition exists for the operator."""
    return operator in _DECOMPOSERS


def decompose(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """The children in launch order; empty where the call lacks what the decomposition needs."""
    decomposer = _DECOMPOSERS.get(leaf.name)
    return () if decomposer is None else decomposer(leaf)
