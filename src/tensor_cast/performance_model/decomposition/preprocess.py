"""MLA preprocessing (`mlapo`): two projections and the cache write.

Source: exact-lookup facts, section 9.3.
"""

from __future__ import annotations

from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.decomposition.sub_kernel import SubKernel, child

__all__ = ["decompose_preprocess"]


def decompose_preprocess(leaf: LeafOp) -> tuple[SubKernel, ...]:
    """Children of `mlapo` and `mlapo_quant`; empty where a width is unknown."""
    hidden = leaf.role("hidden")
    widths = [leaf.attributes.get(name) for name in ("q_lora_rank", "kv_lora_rank", "qk_rope_dim")]
    if hidden is None or hidden.rank < 2 or any(not isinstance(width, int) for width in widths):
        return ()
    q_lora, kv_lora, rope = (int(width) for width in widths if isinstance(width, int))
    tokens = hidden.numel // hidden.shape[-1]
    up = _q_b_shape(leaf, q_lora)
    if up is None:
        return ()
    quantised = leaf.name.split(".")[1].endswith("_quant")
    kernels = ("QuantBatchMatmulV3",) if quantised else ("MatMulV2",)
    dtype = "int8" if quantised else hidden.dtype
    down = (q_lora + kv_lora + rope, hidden.shape[-1])
    return (
        child(leaf, 0, "aten.mm.default", kernels, ((tokens, hidden.shape[-1]), down), dtype),
        child(leaf, 1, "aten.mm.default", kernels, ((tokens, q_lora), up), dtype),
        child(
            leaf,
            2,
            "tensor_cast.kv_rmsnorm_rope_cache.default",
            ("KvRmsNormRopeCache",),
            ((tokens, 1, 1, kv_lora + rope),),
            hidden.dtype,
        ),
    )


def _q_b_shape(leaf: LeafOp, q_lora: int) -> tuple[int, ...] | None:
    heads, width = leaf.attributes.get("num_heads"), leaf.attributes.get("qk_head_dim")
    if leaf.name.startswith("tensor_cast.mlapo_quant"):
        return (heads * width, q_lora) if isinstance(heads, int) and isinstance(width, int) else None
    weight = leaf.role("q_b_weight")
    return None if weight is None else weight.shape
