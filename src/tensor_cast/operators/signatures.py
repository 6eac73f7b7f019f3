"""The one table that says which argument of an operator plays which role.

Each line lists the arguments in order.  Suffixes: `?` may be None, `[]` a list of tensors, `[]?` a list that may be
absent, `=` a non-tensor attribute.
Operators outside the table take their tensors in order, without roles.
Source: docs/facts/leaf-operators.md, "Arguments".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from tensor_cast.operators.tensor import TensorSpec

__all__ = ["Argument", "assign_roles", "known_operators", "signature"]

_ATTENTION: Final = "query key value attention_mask? block_table? query_start_loc? seq_lens? query_lens?"
_MLA: Final = (
    "query kv_cache block_table query_start_loc seq_lens query_lens? w_uk_t? w_uv? kv_b_proj? v_head_dim= "
    "topk_limit= topk_indices?"
)
# Every scale counts as optional: a call written down without them still fills the arguments in front.
_MLA_SCALES: Final = (
    " query_scale? query_offset? kv_scale? kv_offset? kv_projected_scale? kv_projected_offset? qk_scale? qk_offset? "
    "v_scale? v_offset? attention_prob_scale? attention_prob_offset? kv_b_proj_scale? kv_b_proj_offset? out_scale? "
    "out_offset? out_dtype="
)
_MLAPO: Final = (
    "hidden cos sin q_a_weight? q_a_norm? q_b_weight? kv_a_weight? kv_a_norm num_heads= qk_head_dim= qk_nope_dim= "
    "qk_rope_dim= kv_lora_rank= q_lora_rank="
)
_STATIC_LINEAR: Final = "x weight w_scale w_offset? x_scale? x_offset? bias? out_dtype="
_SCALED_LINEAR: Final = "x weight x_scale w_scale bias? out_dtype="
_COMM_TAIL: Final = " rank= rank_group="
_DFC_QUANT: Final = (
    "x expert_indices gmm1_weight[] gmm1_scale[]? gmm1_offset[]? gmm1_bias[]? gmm1_out_dtype= "
    "gmm2_weight[] gmm2_scale[]? gmm2_offset[]? gmm2_bias[]? gmm2_out_dtype= rank= rank_group="
)
_DFC_SCALED: Final = (
    "x expert_indices gmm1_weight[] gmm1_scale[]? gmm1_x_scale[]? gmm1_bias[]? gmm1_out_dtype= "
    "gmm2_weight[] gmm2_scale[]? gmm2_x_scale[]? gmm2_bias[]? gmm2_out_dtype= rank= rank_group="
)
_GROUPED: Final = "x[] weight[] bias[]?"
_GROUPED_STATIC: Final = "x[] weight[] w_scale[] w_offset[]? x_scale[] x_offset[]? bias[]? out_dtype="
_GROUPED_SCALED: Final = "x[] weight[] w_scale[] x_scale[] bias[]? out_dtype="
_SCALES: Final = ("float32", "float16", "bfloat16", "float8_e8m0fnu")
_FOUR_BITS: Final = ("int4", "float4", "float4_e2m1fn_x2")

_QUANTISED: Final = {
    "quant{}": " weight quant_scale quant_offset eps= out_dtype=",
    "dynamic_quant{}_symmetric": " weight eps= dims= scale_dtype= out_dtype=",
    "dynamic_quant{}_asymmetric": " weight eps= dims= scale_dtype= out_dtype=",
    "dynamic_quant{}_mxfp4": " weight eps= group_size=",
}
_QUANTISING_NORMS: Final = {
    f"tensor_cast.{norm}_{quant.format(more)}": operands + tail
    for norm, operands, more in (
        ("rms_norm", "x", ""),
        ("add_rms_norm", "x residual", ""),
        ("add_rms_norm", "x residual", "2"),
    )
    for quant, tail in _QUANTISED.items()
}

_TABLE: Final[dict[str, str]] = {
    # attention and cache
    "tensor_cast.attention": _ATTENTION,
    "tensor_cast.attention_quant": _ATTENTION
    + " query_scale query_offset? kv_scale kv_offset? attention_prob_scale attention_prob_offset? out_dtype=",
    "tensor_cast.reshape_and_cache": "key value kv_cache slot_mapping",
    "tensor_cast.concat_and_cache_mla": "kv_c k_rot kv_cache slot_mapping",
    "tensor_cast.kv_rmsnorm_rope_cache": "kv gamma cos sin kv_cache slot_mapping kv_lora_rank= qk_rope_dim= epsilon=",
    "tensor_cast.apply_rope": "query key cos sin is_neox=",
    "tensor_cast.apply_rope_single": "x cos sin is_neox= transpose_output=",
    "tensor_cast.apply_rope_inplace": "x cos sin is_neox= inverse= rope_head_dim=",
    "tensor_cast.fused_rope": "query key cos_sin rotary_dim= is_neox_style=",
    "tensor_cast.multihead_latent_attention": _MLA,
    "tensor_cast.multihead_latent_attention_quant": _MLA + _MLA_SCALES,
    "tensor_cast.latent_attention_block": "hidden kv_cache seq_lens? query_lens? num_heads= model= gemm_type=",
    "tensor_cast.mla_sparse_attention": _MLA + " is_decode_values=",
    "tensor_cast.mla_sparse_attention_quant": _MLA + _MLA_SCALES + " is_decode_values=",
    "tensor_cast.mlapo": _MLAPO,
    "tensor_cast.mlapo_quant": _MLAPO + " q_a_scale q_a_offset? q_b_scale q_b_offset? kv_a_scale kv_a_offset?",
    "tensor_cast.dsa_indexer": (
        "hidden qa_normed cos sin indexer_cache slot_mapping? block_table? seq_lens? wq_b wk weights_proj k_norm "
        "num_heads= head_dim= qk_rope_dim= topk_limit= query_lens? is_decode_values="
    ),
    "tensor_cast.quant_lightning_indexer": (
        "query weights indexer_cache topk_limit= tp_world_size= seq_lens? query_lens?"
    ),
    "tensor_cast.sparse_attn_sharedkv": "query kv attn_sink topk_indices softmax_scale= head_dim= kv_dependency?",
    "tensor_cast.scatter_nd_update_mla": "update cache index window_size= seq_lens?",
    "tensor_cast.compressor": (
        "hidden kv_cache compress_ratio= head_dim= rope_head_dim= rotate= seq_lens? query_lens?"
    ),
    # hyper-connections
    "tensor_cast.hc_pre_inv_rms": "x hc_mult=",
    "tensor_cast.hc_pre_sinkhorn": "x hidden hc_scale hc_base hc_mult= sinkhorn_iters= hc_eps=",
    "tensor_cast.hc_post": "x residual hc_weight? hc_combine? hc_mult=",
    "tensor_cast.hc_head": "x fn scale base hc_mult= hc_eps=",
    # matrix products
    "aten.mm": "x weight",
    "aten.bmm": "x weight",
    "aten.addmm": "bias x weight",
    "tensor_cast.static_quant_linear": _STATIC_LINEAR,
    "tensor_cast.static_quant_linear_int4": _STATIC_LINEAR,
    "tensor_cast.fp8_linear": _SCALED_LINEAR,
    "tensor_cast.mxfp4_linear": _SCALED_LINEAR,
    "tensor_cast.nvfp4_linear": _SCALED_LINEAR,
    "tensor_cast.matmul_all_reduce": "x weight bias?" + _COMM_TAIL,
    "tensor_cast.static_quant_linear_all_reduce": _STATIC_LINEAR + _COMM_TAIL,
    "tensor_cast.static_quant_linear_int4_all_reduce": _STATIC_LINEAR + _COMM_TAIL,
    "tensor_cast.fp8_linear_all_reduce": _SCALED_LINEAR + _COMM_TAIL,
    "tensor_cast.mxfp4_linear_all_reduce": _SCALED_LINEAR + _COMM_TAIL,
    "tensor_cast.latent_bmm": "x weight",
    # quantisation, norms, activations
    "tensor_cast.quantize": "x scale offset? out_dtype=",
    "tensor_cast.dynamic_quantize_symmetric": "x dims= scale_dtype= out_dtype=",
    "tensor_cast.dynamic_quantize_asymmetric": "x dims= scale_dtype= out_dtype=",
    "tensor_cast.dynamic_quantize_mxfp4": "x group_size=",
    "tensor_cast.rms_norm": "x weight eps=",
    "tensor_cast.add_rms_norm": "x residual weight eps=",
    "tensor_cast.add_rms_norm2": "x residual weight eps=",
    **_QUANTISING_NORMS,
    "tensor_cast.swiglu": "gate up",
    "tensor_cast.v4_clamped_swiglu": "gate up swiglu_limit=",
    "tensor_cast.silu": "x",
    "tensor_cast.gelu": "x",
    "aten.add": "x other?",
    "aten.mul": "x other?",
    "aten.div": "x other?",
    "tensor_cast.cat": "tensors[] dim=",
    "aten.cat": "tensors[] dim=",
    "aten.native_layer_norm": "x normalized_shape= weight? bias? eps=",
    "aten.embedding": "weight indices",
    # mixture of experts
    "tensor_cast.init_routing_v2": "x topk_indices",
    "tensor_cast.unpermute_tokens": "x topk_indices",
    "tensor_cast.fused_experts": "x topk_indices gmm1_weight[] gmm2_weight[]",
    "tensor_cast.grouped_matmul": _GROUPED,
    "tensor_cast.grouped_matmul_swiglu": _GROUPED,
    "tensor_cast.grouped_matmul_quant": _GROUPED_STATIC,
    "tensor_cast.grouped_matmul_quant_swiglu": _GROUPED_STATIC,
    "tensor_cast.grouped_matmul_quant_int4": _GROUPED_STATIC,
    "tensor_cast.grouped_matmul_quant_int4_swiglu": _GROUPED_STATIC,
    "tensor_cast.grouped_matmul_fp8": _GROUPED_SCALED,
    "tensor_cast.grouped_matmul_fp8_swiglu": _GROUPED_SCALED,
    "tensor_cast.grouped_matmul_mxfp4": _GROUPED_SCALED,
    "tensor_cast.grouped_matmul_mxfp4_swiglu": _GROUPED_SCALED,
    "tensor_cast.moe_gating_top_k_softmax": "x top_k=",
    "tensor_cast.moe_gating_top_k_sigmoid": "x top_k= routed_scaling_factor= correction_bias?",
    "tensor_cast.moe_gating_top_k": "scores top_k= normalize_weights= route_scale= bias?",
    "tensor_cast.moe_gating_top_k_hash": "scores top_k= normalize_weights= route_scale= input_ids tid2eid",
    "tensor_cast.dispatch_ffn_combine": (
        "x expert_indices gmm1_weight[] gmm1_bias[]? gmm2_weight[] gmm2_bias[]? rank= rank_group="
    ),
    "tensor_cast.dispatch_ffn_combine_quant": _DFC_QUANT,
    "tensor_cast.dispatch_ffn_combine_quant_int4": _DFC_QUANT,
    "tensor_cast.dispatch_ffn_combine_fp8": _DFC_SCALED,
    "tensor_cast.dispatch_ffn_combine_mxfp4": _DFC_SCALED,
    # communication
    "tensor_cast.all_reduce": "x rank= rank_group=",
    "tensor_cast.all_gather": "x dim= rank= rank_group=",
    "tensor_cast.reduce_scatter": "x dim= rank= rank_group=",
    "tensor_cast.all_to_all": "x output_split_sizes= input_split_sizes= rank= rank_group=",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator."""

    name: str
    is_tensor: bool
    is_list: bool
    optional: bool


def _parse(text: str) -> tuple[Argument, ...]:
    parsed = []
    for word in text.split():
        name = word.rstrip("?=[]")
        parsed.append(Argument(name, not word.endswith("="), "[]" in word, word.endswith("?") or word.endswith("=")))
    return tuple(parsed)


@cache
def signature(operator: str) -> tuple[Argument, ...] | None:
    """The arguments of `<namespace>.<op>.<overload>`, or None for an operator outside the table."""
    namespace, _, rest = operator.partition(".")
    base = f"{namespace}.{rest.partition('.')[0]}"
    text = _TABLE.get(base)
    return None if text is None else _parse(text)


def known_operators() -> tuple[str, ...]:
    """Operators of the table, without overload."""
    return tuple(_TABLE)


def assign_roles(operator: str, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Fill in the role of each tensor that has none, in argument order.

    Explicit roles are kept.  With as many tensors as required arguments the optional ones are taken as absent; with
    more, optional arguments are filled from the left.  A list argument takes an equal share of the tensors; where lists
    of vectors (scales, offsets, biases) may follow each list of weights, the matrices are the weights.  Of a grouped
    product, whose arguments are lists throughout, dtypes and ranks tell how many activations stand before the weights.
    """
    arguments = signature(operator)
    if arguments is None or all(spec.role for spec in specs):
        return specs
    taken = {spec.role for spec in specs if spec.role}
    free = [argument for argument in arguments if argument.is_tensor and argument.name not in taken]
    bare = tuple(spec for spec in specs if not spec.role)
    roles = iter(_named(free, bare))
    return tuple(spec if spec.role else replace(spec, role=next(roles, "")) for spec in specs)


def _named(arguments: list[Argument], specs: tuple[TensorSpec, ...]) -> list[str]:
    if [argument.name for argument in arguments[:2] if argument.is_list] == ["x", "weight"]:
        return _fill_grouped(arguments, specs)
    if any(argument.is_list for argument in arguments):
        return _fill_lists(arguments, [spec.rank for spec in specs])
    return _fill(arguments, len(specs))


def _fill_grouped(arguments: list[Argument], specs: tuple[TensorSpec, ...]) -> list[str]:
    """Roles of a grouped product: activations, as many weights or one stack of them, then lists of their number."""
    activations, weights = _grouped_counts(specs)
    if not weights:
        return []
    roles = [arguments[0].name] * activations + [arguments[1].name] * weights
    lists, odd = divmod(len(specs) - len(roles), weights)
    rest = [] if odd else _fill(arguments[2:], lists)[:lists]
    return roles + [name for name in rest for _ in range(weights)]


def _grouped_counts(specs: tuple[TensorSpec, ...]) -> tuple[int, int]:
    """How many activations stand in front, and how many weights follow."""
    matrices = next((i for i, spec in enumerate(specs) if spec.rank < 2), len(specs))
    stacked = next((i for i in range(1, matrices) if specs[i].rank > 2), None)
    if stacked is not None:
        return stacked, 1
    if matrices < 2:
        return 0, 0
    alike = next((i for i in range(matrices) if specs[i].dtype != specs[0].dtype), matrices)
    other = specs[alike].dtype if alike < matrices else ""
    follow = next((i for i in range(alike, matrices) if specs[i].dtype != other), matrices) - alike
    scales = (*_SCALES, "uint8") if specs[0].dtype in _FOUR_BITS else _SCALES
    if follow >= alike and other not in scales:
        return alike, alike
    return (alike // 2, alike // 2) if alike % 2 == 0 else (1, 1)


def _fill(arguments: list[Argument], count: int) -> list[str]:
    spare = count - sum(1 for argument in arguments if not argument.optional)
    chosen = []
    for argument in arguments:
        if argument.optional and spare <= 0:
            continue
        chosen.append(argument.name)
        spare -= argument.optional
    return chosen


def _fill_lists(arguments: list[Argument], ranks: list[int]) -> list[str]:
    """Roles where lists take part: plain arguments come first, then lists of one length, the number of experts."""
    plain = [argument.name for argument in arguments if not argument.is_list]
    lists = [argument for argument in arguments if argument.is_list]
    required = sum(1 for argument in lists if not argument.optional)
    rest = ranks[len(plain) :]
    matrices = len(rest) if required == len(lists) else sum(1 for rank in rest if rank > 1)
    if not required or matrices < required or matrices % required:
        return plain
    length = matrices // required
    vectors, odd = divmod(len(rest) - matrices, length * required)  # optional lists present after each required one
    if odd or vectors > (len(lists) - required) // required:
        return plain
    chosen, left = plain, 0
    for argument in lists:
        left = left - 1 if argument.optional else vectors
        if not argument.optional or left >= 0:
            chosen += [argument.name] * length
    return chosen
