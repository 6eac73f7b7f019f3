"""Calls of operators written down in one line each, to hold a leaf against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from tensor_cast import LeafOp, TensorSpec
from tensor_cast.operators.leaf import AttrValue

PAIR = (0, 1)
GROUP: dict[str, AttrValue] = {"rank": 0, "rank_group": PAIR}
"""What a collective over two ranks says of them."""
SHORT = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "int64": "i64",
    "int32": "i32",
    "int8": "i8",
    "int4": "i4",
    "float4": "f4",
    "float8_e4m3fn": "fp8",
    "float8_e8m0fnu": "e8m0",
    "bool": "bool",
}


@dataclass(frozen=True)
class Call:
    """A leaf, and by hand: its name, inputs `role shape dtype` (`role*4` in a row of four), outputs, attributes."""

    leaf: LeafOp
    name: str
    inputs: str
    outputs: str
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


def inputs_of(leaf: LeafOp) -> str:
    """Equal tensors of one role in a row as one."""
    rows = ((spec, len(list(alike))) for spec, alike in groupby(leaf.inputs))
    return "; ".join(_text(spec, f"{spec.role}*{count}" if count > 1 else spec.role) for spec, count in rows)


def outputs_of(leaf: LeafOp) -> str:
    return "; ".join(_text(spec, "") for spec in leaf.outputs)


def _text(spec: TensorSpec, role: str) -> str:
    shape = ",".join(map(str, spec.shape)) or "()"
    return f"{role} {shape} {SHORT[spec.dtype]}".strip()
