"""Demo rows as CSV text: the column schema of a real table, latencies with seeded noise."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tensor_cast.demo.communication import COLUMNS, Collective
from tensor_cast.demo.rows import DemoRow, DemoTable
from tensor_cast.operators.tensor import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LATENCY_COLUMNS", "PROFILED_FACTOR", "collective_csv", "tensor_csv"]

_TENSOR_COLUMNS: Final = tuple(
    f"{side} {what}" for side in ("Input", "Output") for what in ("Shapes", "Data Types", "Formats")
)
LATENCY_COLUMNS: Final = (
    "Average Duration(us)",
    "Profiling Average Duration(us)",
    "Profiling Median Duration(us)",
    "Profiling Std Duration(us)",
)
# A launch inside a serving step is a little slower than a replay on an idle device.
PROFILED_FACTOR: Final = 1.06


def tensor_csv(table: DemoTable, seed: int, noise: float) -> str:
    """A compute kernel's table: base columns in file order, then the kernel's own."""
    factors = _factors(table.kernel, len(table.rows), seed, noise)
    header = ("OP State", "Accelerator Core", *_TENSOR_COLUMNS, *LATENCY_COLUMNS, *table.extra_columns)
    return _csv(header, (_cells(table, row, pair) for row, pair in zip(table.rows, factors, strict=True)))


def collective_csv(table: Collective, seed: int, noise: float) -> str:
    """A collective's micro-benchmark table."""
    factors = _factors(table.kernel, len(table.rows), seed, noise)
    lines = []
    for row, pair in zip(table.rows, factors, strict=True):
        latency = row.latency_us * float(pair[0])
        speed = row.message_bytes / latency / 1000
        cells = (row.message_bytes, row.devices, "DT_BF16", row.tier, f"{latency:.4f}", f"{speed:.4f}")
        lines.append([str(cell) for cell in cells])
    return _csv(COLUMNS, lines)


def _factors(kernel: str, count: int, seed: int, noise: float) -> NDArray[np.float64]:
    """Two factors a row, for the micro-benchmark and for the profile; a stream of its own per kernel."""
    import numpy as np

    generator = np.random.default_rng([seed, crc32(kernel.encode())])
    return np.exp(noise * np.clip(generator.standard_normal((count, 2)), -3, 3))


def _cells(table: DemoTable, row: DemoRow, factors: NDArray[np.float64]) -> list[str]:
    tensors = [*_side(row.inputs, table), *_side(row.outputs, table)]
    extra = [row.extra.get(name, "") for name in table.extra_columns]
    return ["dynamic", table.core, *tensors, *_latencies(row, row.latency_us(table.launch_us), factors), *extra]


def _latencies(row: DemoRow, formula_us: float, factors: NDArray[np.float64]) -> list[str]:
    replayed = formula_us * float(factors[0])
    profiled = formula_us * PROFILED_FACTOR * float(factors[1])
    cells = [f"{replayed:.4f}", f"{profiled:.4f}", f"{profiled * 0.995:.4f}", f"{profiled * 0.03:.4f}"]
    if row.filled in ("profile", "planned"):
        cells[0] = ""
    if row.filled in ("microbench", "planned"):
        cells[1:] = ["", "", ""]
    return cells


def _side(slots: tuple[TensorSpec | None, ...], table: DemoTable) -> list[str]:
    shapes = ";".join("" if spec is None else _shape(spec) for spec in slots)
    if table.quoted:
        shapes = f'"{shapes}"'
    named = slots if table.all_slots else tuple(spec for spec in slots if spec is not None)
    dtypes = ";".join("DT_UNDEFINED" if spec is None else spec.dtype for spec in named)
    formats = ";".join("NULL" if spec is None else spec.format for spec in named)
    return [shapes, dtypes, formats]


def _shape(spec: TensorSpec) -> str:
    return ",".join(str(dim) for dim in spec.shape) if spec.shape else "()"


def _csv(header: Iterable[str], rows: Iterable[list[str]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()
