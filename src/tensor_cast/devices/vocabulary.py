"""The names a profile may use: what is measured in what, the sections and their figures, and the tiers of links."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tensor_cast.dtypes import canonical_dtype
from tensor_cast.errors import UnknownNameError

__all__ = ["FIGURES", "PEAKS", "SECTIONS", "TIERS", "UNITS", "Dimension", "in_base_unit", "peak_name", "units_of"]


class Dimension(StrEnum):
    """What a figure is; the value is the one unit that it is handed out in."""

    SIZE = "bytes"
    RATE = "bytes/s"
    FLOAT_WORK = "FLOP/s"
    INTEGER_WORK = "OP/s"
    TIME = "us"
    FREQUENCY = "Hz"
    POWER = "W"
    COUNT = "count"
    FRACTION = "fraction"
    TEXT = "text"


UNITS: Final[Mapping[str, tuple[Dimension, Decimal]]] = {
    "GB": (Dimension.SIZE, Decimal(10**9)),
    "MB": (Dimension.SIZE, Decimal(10**6)),
    "GiB": (Dimension.SIZE, Decimal(2**30)),
    "MiB": (Dimension.SIZE, Decimal(2**20)),
    "GB/s": (Dimension.RATE, Decimal(10**9)),
    "TB/s": (Dimension.RATE, Decimal(10**12)),
    "TiB/s": (Dimension.RATE, Decimal(2**40)),
    "TFLOPS": (Dimension.FLOAT_WORK, Decimal(10**12)),
    "TOPS": (Dimension.INTEGER_WORK, Decimal(10**12)),
    "us": (Dimension.TIME, Decimal(1)),
    "ms": (Dimension.TIME, Decimal(1000)),
    "MHz": (Dimension.FREQUENCY, Decimal(10**6)),
    "W": (Dimension.POWER, Decimal(1)),
    "count": (Dimension.COUNT, Decimal(1)),
    "fraction": (Dimension.FRACTION, Decimal(1)),
}

# TF32 and HF32 are ways to multiply float32, not dtypes of their own, so they go by their own names.
_MODES: Final = ("tf32", "hf32")
_PEAK_OF: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "int8": "int8",
    "int4": "int4",
    "float4": "fp4",
    "float4_e2m1fn_x2": "fp4",
}
PEAKS: Final = ("fp32", *_MODES, "bf16", "fp16", "fp8", "int8", "fp4", "int4")

TIERS: Final = ("package", "mesh", "switch", "node", "domain", "network", "host")

_LINK: Final[Mapping[str, Dimension]] = {
    "name": Dimension.TEXT,
    "bandwidth": Dimension.RATE,
    "per_link": Dimension.RATE,
    "measured_bandwidth": Dimension.RATE,
    "latency": Dimension.TIME,
    "devices": Dimension.COUNT,
    "assumed_efficiency": Dimension.FRACTION,
}


def _collectives() -> dict[str, Dimension]:
    found = {"first_step": Dimension.TIME, "further_step": Dimension.TIME}
    for operation in ("all_reduce", "all_gather"):
        for ranks in (2, 4, 8, 32):
            found[f"{operation}_{ranks}_latency"] = Dimension.TIME
            found[f"{operation}_{ranks}_bus_bandwidth"] = Dimension.RATE
            found[f"{operation}_{ranks}_algorithm_bandwidth"] = Dimension.RATE
    found["all_to_all_bus_bandwidth"] = Dimension.RATE
    found["custom_all_reduce_graph"] = Dimension.TIME
    found["custom_all_reduce_eager"] = Dimension.TIME
    return found


def _fractions(*names: str) -> dict[str, Dimension]:
    return dict.fromkeys(names, Dimension.FRACTION)


SECTIONS: Final[Mapping[str, Mapping[str, Dimension]]] = {
    "chip": {
        "product": Dimension.TEXT,
        "profile": Dimension.TEXT,
        "low_bin": Dimension.TEXT,
        "devices": Dimension.COUNT,
        "matrix_cores": Dimension.COUNT,
        "vector_cores": Dimension.COUNT,
        "compute_units": Dimension.COUNT,
        "clock": Dimension.FREQUENCY,
        "l2": Dimension.SIZE,
        "llc": Dimension.SIZE,
        "shared_sram": Dimension.SIZE,
        "scratchpad_per_engine": Dimension.SIZE,
        "power": Dimension.POWER,
    },
    "memory": {"capacity": Dimension.SIZE, "bandwidth": Dimension.RATE, "effective_bandwidth": Dimension.RATE},
    "peaks": {name: Dimension.INTEGER_WORK if name.startswith("int") else Dimension.FLOAT_WORK for name in PEAKS},
    "vector": dict.fromkeys(("fp32", "bf16", "fp16"), Dimension.FLOAT_WORK),
    "links": {f"{tier}.{name}": dimension for tier in TIERS for name, dimension in _LINK.items()},
    "launch": dict.fromkeys(
        (
            "matmul_bf16",
            "matmul_int8",
            "eager_op",
            "graph_op",
            "eager_call",
            "graph_call",
            "matrix_op",
            "vector_op",
            "collective",
            "memory_op",
            "point_to_point",
        ),
        Dimension.TIME,
    ),
    "host": {
        "per_step": Dimension.TIME,
        "per_request": Dimension.TIME,
        "sampler": Dimension.TIME,
        "decode_fixed_batch_1": Dimension.TIME,
        "decode_fixed_batch_2": Dimension.TIME,
        "decode_fixed_batch_4": Dimension.TIME,
        "decode_fixed_batch_8": Dimension.TIME,
        "decode_constant": Dimension.TIME,
        "decode_per_request": Dimension.TIME,
        "prefill_chunk_tokens": Dimension.COUNT,
        "prefill_per_chunk": Dimension.TIME,
        "prefill_per_chunk_and_token": Dimension.TIME,
    },
    "achieved": {
        **_fractions("bf16_large", "bf16_best", "bf16_search", "fp8_large", "fp8_best", "fp8_search"),
        **_fractions("int8_large", "int8_best", "fp4_large", "fp4_best", "weight_read", "weight_read_best"),
        **_fractions("decode_memory", "prefill_compute", "assumed_compute", "assumed_memory"),
        "weight_read_bandwidth": Dimension.RATE,
        "weight_read_best_bandwidth": Dimension.RATE,
        "elementwise_bandwidth": Dimension.RATE,
    },
    "collectives": _collectives(),
}

FIGURES: Final[Mapping[str, Dimension]] = {
    f"{section}.{name}": dimension for section, names in SECTIONS.items() for name, dimension in names.items()
}


def units_of(dimension: Dimension) -> tuple[str, ...]:
    """The units that a figure of this dimension may be stated in."""
    return tuple(unit for unit, (kind, _) in UNITS.items() if kind is dimension)


def in_base_unit(value: float, unit: str) -> float:
    """`value`, stated in `unit`, in the one unit of its dimension, rounded once: 4.8 TB/s is 4.8e12 to the bit."""
    return float(Decimal(repr(value)) * UNITS[unit][1])


def peak_name(dtype: str) -> str | None:
    """The peak that a dtype runs at (`bf16` for `torch.bfloat16`), or None for a dtype that has none.

    Raises UnknownNameError for a spelling that names no dtype.
    """
    bare = dtype.strip().lower()
    if bare in _MODES:
        return bare
    try:
        return _PEAK_OF.get(canonical_dtype(dtype))
    except UnknownNameError as error:
        raise UnknownNameError(f"{error}; of peaks also {', '.join(_MODES)}") from None
