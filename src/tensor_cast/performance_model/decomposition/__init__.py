"""Composite operators as what runs on the device.

`canonical_leaves` is the contract for whoever sums: children as leaf operators of their own.  `decompose` is what exact
lookup alone uses for the composites it answers whole.
"""

from __future__ import annotations

from tensor_cast.leaf import LeafOp
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
    "needs",
]

_DECOMPOSERS = {
    "tensor_cast.multihead_latent_attention.default": decompose_latent_attention,
    "tensor_cast.multihead_latent_attention_quant.default": decompose_latent_attention,
    "tensor_cast.mla_sparse_attention.default": decompose_latent_attention,
    "tensor_cast.mla_sparse_attention_quant.default": decompose_latent_attention,
    "tensor_cast.mlapo.default": decompose_preprocess,
    "tensor_cast.mlapo_quant.default": decompose_preprocess,
}
_NEEDS = {
    decompose_latent_attention: (
        "query (T, h, D), and w_uk_t and w_uv (h, ...) for a decode or kv_b_proj (lora, ...) and kv_cache for a prefill"
    ),
    decompose_preprocess: (
        "hidden (T, H), q_lora_rank, kv_lora_rank, qk_rope_dim, and q_b_weight (mlapo_quant: num_heads and qk_head_dim)"
    ),
}


def is_decomposable(operator: str) -> bool:
    """Whether a decomposition exists for the operator."""
    return operator in _DECOMPOSERS


def needs(operator: str) -> str:
    """What a call of a decomposable operator must hold."""
    return _NEEDS[_DECOMPOSERS[operator]]


def decompose(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """The children in launch order; empty where the call lacks what the decomposition needs."""
    decomposer = _DECOMPOSERS.get(leaf.name)
    return () if decomposer is None else decomposer(leaf)
