"""4-bit weights: which operators hold them, and the whole matrix behind a stored one.

Two 4-bit values share one stored element, along K in the simulator's linear operators; a row, and a framework with a
4-bit dtype, count values instead.  What the activation and the output say decides; a shape that fits no reading, or
two, is refused.
Source: decisions 002.11 and 002.29;
docs/facts/leaf-operators.md, "Products and quantisation", "Weights of fused experts".
"""

from __future__ import annotations

from tensor_cast.operators.tensor import Shape
from tensor_cast.performance_model.profiling_database.exact.low_precision import INT4

__all__ = ["packing", "packing_of_row", "whole_experts", "whole_weight"]


def packing(operator: str) -> str:
    """`int4` for operators whose weights are packed INT4 by definition, else `none`."""
    return "int4" if "_int4" in operator else "none"


def packing_of_row(weight_dtype: str) -> str:
    """The same for a row: its own dtype name decides."""
    return "int4" if weight_dtype == INT4 else "none"


def whole_weight(stored: Shape, k: int, n: int) -> Shape | None:
    """`(..., K, N)` behind a weight stored whole or with K halved, in either orientation; None where it is neither."""
    if len(stored) < 2:
        return None
    *batch, first, second = stored
    readings = {(k, n), (n, k)} | ({(k // 2, n), (n, k // 2)} if k % 2 == 0 else set())
    return (*batch, k, n) if (first, second) in readings else None


def whole_experts(gmm1: Shape, gmm2: Shape, hidden: int) -> tuple[Shape, Shape] | None:
    """`(H, N)` and `(N/2, H)` of one expert whose matrices are stored whole, or halved along K or along the columns.

    Both are stored alike.  None where no reading makes them fit each other and `hidden`, or more than one does.
    """
    if len(gmm1) != 2 or len(gmm2) != 2:
        return None
    found = set()
    for rows, columns in ((1, 1), (2, 1), (1, 2)):  # whole, K halved, columns halved
        widths = {n * columns for h, n in (gmm1, gmm1[::-1]) if h * rows == hidden}
        inner = {k * rows for k, h in (gmm2, gmm2[::-1]) if h * columns == hidden}
        found |= {n for n in widths if n % 2 == 0 and n // 2 in inner}
    if len(found) != 1:
        return None
    n = found.pop()
    return (hidden, n), (n // 2, hidden)
