"""The rows of a demo table, before noise: tensors, work, and which latency columns are filled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tensor_cast.dtypes import profile_dtype_bytes
from tensor_cast.operators.tensor import Shape, TensorSpec

__all__ = ["DemoRow", "DemoTable", "Filled", "Peak", "bf16", "fp32", "int8", "int32", "int64", "roofline_us", "tensor"]

Filled = Literal["microbench", "profile", "both", "planned"]
Peak = Literal["fp16", "int8"]
Slots = tuple[TensorSpec | None, ...]

# docs/facts/database-layout.md, "The device of the databases".
PEAK_FLOPS: Final[Mapping[Peak, float]] = {"fp16": 376e12, "int8": 752e12}
BANDWIDTH: Final = 1.6 * 2**40


def roofline_us(flops: float, size_bytes: float, launch_us: float, peak: Peak = "fp16") -> float:
    """`launch + max(flops / peak, bytes / bandwidth)` in microseconds."""
    return launch_us + 1e6 * max(flops / PEAK_FLOPS[peak], size_bytes / BANDWIDTH)


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One launch.  `moved_bytes` is None where the kernel moves every input and output once.

    `filled` says which latency columns carry a value: a replayed grid point has the micro-benchmark column, a launch
    seen only in a serving profile has the profiler's, a planned point has none.
    """

    inputs: Slots
    outputs: Slots
    flops: float = 0.0
    moved_bytes: float | None = None
    filled: Filled = "microbench"
    peak: Peak = "fp16"
    extra: Mapping[str, str] = field(default_factory=dict)

    def latency_us(self, launch_us: float) -> float:
        """The formula's value, without noise."""
        size = self.moved_bytes
        if size is None:
            size = sum(_bytes(spec) for spec in (*self.inputs, *self.outputs) if spec is not None)
        return roofline_us(self.flops, size, launch_us, self.peak)


@dataclass(frozen=True, slots=True)
class DemoTable:
    """One kernel's table.  `quoted` writes shape cells with a second pair of literal quotes, as some exports do."""

    kernel: str
    launch_us: float
    work: str
    rows: tuple[DemoRow, ...]
    core: str = "AI_VECTOR_CORE"
    extra_columns: tuple[str, ...] = ()
    quoted: bool = False
    all_slots: bool = False


def _bytes(spec: TensorSpec) -> float:
    return spec.numel * profile_dtype_bytes(spec.dtype)


def tensor(shape: Iterable[int], dtype: str, storage: str = "ND") -> TensorSpec:
    """A tensor with a database dtype."""
    return TensorSpec(tuple(shape), dtype, storage)


def bf16(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "DT_BF16")


def fp32(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "FLOAT")


def int8(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "INT8")


def int32(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "INT32")


def int64(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "INT64")


def nz_tile(n: int, k: int, dtype: str) -> Shape:
    """The FRACTAL_NZ tile of an `(N, K)` weight: 16 x 16 blocks for BF16, 16 x 32 for INT8."""
    width = 32 if dtype == "INT8" else 16
    return (n // width, k // 16, 16, width)
