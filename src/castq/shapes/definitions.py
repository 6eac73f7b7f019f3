"""serQ definitions of a planner's sizes, so that the cost of a program and the planner cannot drift apart."""

from __future__ import annotations

from collections.abc import Sequence

from castq.shapes.ascend.planner import AscendPlanner
from castq.shapes.planned import Planner
from castq.shapes.rbln.planner import RblnPlanner
from tensor_cast.errors import InvalidValueError

__all__ = ["aligned", "bucketed", "definitions"]


def bucketed(name: str, sizes: Sequence[int], *, beyond: str = "n") -> str:
    """`def NAME(n) = n <= 1 ? 1 : n <= 2 ? 2 : ... ;` with what stands above the last size."""
    if not sizes:
        raise InvalidValueError(f"def {name}: there are no sizes")
    chain = " : ".join(f"n <= {size} ? {size}" for size in sizes)
    return f"def {name}(n) = {chain} : {beyond};"


def aligned(name: str, multiple: int) -> str:
    """`def NAME(n) = 4 * floor((n + 3) / 4);`"""
    return f"def {name}(n) = {multiple} * floor((n + {multiple - 1}) / {multiple});"


def definitions(planner: Planner) -> str:
    """The definitions of a planner's shapes, as a library that programs `use`.

    Where a step falls off the graphs it pays for its real tokens, so the last branch is `n`; nothing runs above the
    last compiled bucket, so that branch is the bucket itself.
    """
    lines = [f"// {planner.vendor}: sizes {', '.join(map(str, planner.sizes))}"]
    if isinstance(planner, RblnPlanner):
        *below, top = planner.sizes
        body = bucketed("decode_rows", below, beyond=str(top)) if below else f"def decode_rows(n) = {top};"
        width = planner.settings.max_num_batched_tokens
        lines += [body, f"def rows_paid(prefill_tokens, n) = prefill_tokens > 0 ? {width} : decode_rows(n);"]
        return "\n".join(lines) + "\n"
    if isinstance(planner, AscendPlanner) and planner.settings.rounds_tokens:
        lines.append(aligned("aligned_tokens", planner.settings.tensor_parallel_size))
    if planner.sizes:
        lines.append(bucketed("graph_tokens", planner.sizes))
    return "\n".join(lines) + "\n"
