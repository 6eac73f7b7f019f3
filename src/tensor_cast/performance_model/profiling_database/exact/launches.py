"""What a row launched beyond the inputs that a mapping compares: the operands it leaves out, and the outputs.

A mapping's `tc_input_count` leaves operands out, and outputs are never compared by shape.  Strict matching does not mix
rows that differ there, and takes no row that puts out what the operator does not (decision 002.30).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tensor_cast.dtypes import operand_dtype, profile_dtype
from tensor_cast.operators.leaf import LeafOp
from tensor_cast.operators.tensor import TensorSpec
from tensor_cast.performance_model.profiling_database.exact.low_precision import QUANTISERS
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = ["OUTPUTS_TELL", "Launch", "launch_of", "launches_apart", "puts_out", "single_output"]

Launch = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...] | None]
"""Dtype and elements of the operands that are not compared, and of the outputs, None where a row does not say."""

OUTPUTS_TELL = frozenset(name for name in QUANTISERS if "norm" not in name)
"""Operators that only quantise: the number of their outputs tells scales from offsets."""


def launch_of(table: TensorTable, row: int, input_count: int | None) -> Launch:
    """What one row launched beyond its first `input_count` tensors."""
    rest = () if input_count is None else table.logical_inputs[row][input_count:]
    outputs = table.row_outputs(row)
    return _elements(rest), None if outputs is None else _elements(outputs)


def _elements(specs: Iterable[TensorSpec]) -> tuple[tuple[str, int], ...]:
    """Formats aside: a matrix and its tiles are one operand, whose padding does not count."""
    return tuple((spec.dtype, spec.numel if spec.format == "ND" else -1) for spec in specs)


def launches_apart(table: TensorTable, rows: Sequence[int], input_count: int | None) -> bool:
    """Whether rows that agree in all that is compared are several operators."""
    return len(rows) > 1 and len({launch_of(table, row, input_count) for row in rows}) > 1


def single_output(leaf: LeafOp) -> tuple[str, int] | None:
    """Database dtype and elements of the one tensor a call puts out; None where it has none, several, or no name."""
    if len(leaf.outputs) != 1 or not leaf.outputs[0].shape:
        return None
    name = profile_dtype(operand_dtype(leaf.name, "", leaf.outputs[0].dtype), strict=True)
    return None if name is None else (name, leaf.outputs[0].numel)


def puts_out(table: TensorTable, leaf: LeafOp) -> Callable[[int], bool] | None:
    """Whether a row has the operator's outputs, where both say: the single one's dtype and elements, and for operators
    that only quantise their number, which tells symmetric from asymmetric.  None where the operator is silent.
    """
    wanted, told = single_output(leaf), leaf.name in OUTPUTS_TELL and bool(leaf.outputs)
    if wanted is None and not told:
        return None

    def agrees(row: int) -> bool:
        outputs = table.row_outputs(row)
        if not outputs:
            return True
        if told and len(outputs) != len(leaf.outputs):
            return False
        alone = outputs[0] if wanted is not None and len(outputs) == 1 and outputs[0].format == "ND" else None
        return alone is None or (alone.dtype, alone.numel) == wanted

    return agrees
