"""From a leaf and its mapping entry to `ColumnFacts`: one describer per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tensor_cast.errors import InvalidValueError, UnknownNameError, nearest
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.performance_model.profiling_database.columns.facts.attention import describe_attention
from tensor_cast.performance_model.profiling_database.columns.facts.experts import describe_experts
from tensor_cast.performance_model.profiling_database.columns.facts.facts import ColumnFacts, RefusedError
from tensor_cast.performance_model.profiling_database.columns.facts.latent_attention import (
    describe_latent_attention,
)
from tensor_cast.performance_model.profiling_database.columns.facts.matmul import describe_matmul
from tensor_cast.performance_model.profiling_database.columns.facts.quantize import describe_quantize
from tensor_cast.performance_model.profiling_database.columns.facts.sparse_attention import (
    describe_sparse_attention,
)
from tensor_cast.performance_model.profiling_database.data_source import Miss
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

__all__ = ["ATTRIBUTES", "FAMILIES", "describe"]

Describer = Callable[[LeafOp, Mapping[str, object]], ColumnFacts]

FAMILIES: Final[Mapping[str, Describer]] = MappingProxyType(
    {
        "matmul": describe_matmul,
        "quantize": describe_quantize,
        "attention": describe_attention,
        "latent_attention": describe_latent_attention,
        "experts": describe_experts,
        "sparse_attention": describe_sparse_attention,
    }
)

# family -> attributes that its describer reads, beside the operator's own arguments
ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "matmul": ("quant", "kernel_source"),
        "quantize": ("out_dtype", "dims", "kernel_source"),
        "attention": ("sliding_window", "kernel_source"),
        "latent_attention": ("stage", "model", "gemm_type", "num_heads", "attention_dtype", "kernel_source"),
        "experts": (
            *("quant", "distribution", "moe_tp_size", "moe_ep_size", "num_experts", "inter_size", "phase"),
            "kernel_source",
        ),
        "sparse_attention": (
            *("model", "num_heads", "compress_ratio", "topk_limit", "sliding_window"),
            "kernel_source",
        ),
    }
)

_RULES: Final = ("family", "operands")


def describe(leaf: LeafOp, entry: OperatorEntry) -> ColumnFacts | Miss:
    """The coordinates, regime and kernel variant `leaf` asks for, or the miss that names the unknown value.

    A fact is taken from the leaf's attribute of the same name, else from the entry's constants, else from the tensors
    and the request lengths.  Raises InvalidValueError or UnknownNameError for an entry without a known family.
    """
    family = entry.facts.get("family")
    if not isinstance(family, str):
        raise InvalidValueError(
            f"operator_mappings.{entry.name}.facts: 'family' is missing; one of {', '.join(FAMILIES)}"
        )
    if family not in FAMILIES:
        raise UnknownNameError(f"facts family {family!r}{nearest(family, FAMILIES)}; known: {', '.join(FAMILIES)}")
    constants = {name: value for name, value in entry.facts.items() if name not in _RULES}
    try:
        found = FAMILIES[family](leaf, {name: value for name, value in entry.facts.items() if name != "family"})
    except RefusedError as refusal:
        return refusal.miss
    given = {name: leaf.attributes[name] for name in constants if leaf.attributes.get(name) is not None}
    variant = leaf.attributes.get("kernel_source")
    return ColumnFacts(
        found.axes,
        MappingProxyType({**found.regime, **constants, **given, **found.settled}),
        None if variant is None else str(variant),
    )
