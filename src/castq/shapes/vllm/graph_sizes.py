"""Token counts for which graphs are captured, by version of vLLM.

Source: vllm/config/vllm.py, vllm/config/compilation.py at 0.11.2, 0.13.0, 0.27.1 and 0.33.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from castq.shapes.refusals import ShapeError

__all__ = ["DENSE", "SIZE_RULES", "SizeRules", "capture_sizes", "grid", "round_to_multiples"]

DENSE: Final = 32
_CEILING, _BLACKWELL_CEILING = 512, 1024


@dataclass(frozen=True, slots=True)
class SizeRules:
    """What versions differ in.

    `headroom` multiplies the slots for the largest size; `counts_drafts` says that a decode of K drafts counts K + 1
    tokens there; `ends_with_budget` and `slots_entry` add the token budget and the full decode batches to the list;
    `blackwell_ceiling` doubles the ceiling on data-centre Blackwell.
    """

    headroom: int = 2
    counts_drafts: bool = True
    ends_with_budget: bool = True
    slots_entry: bool = False
    blackwell_ceiling: bool = False

    def largest(self, max_num_seqs: int, query_len: int, budget: int, *, blackwell: bool = False) -> int:
        """The largest size that is derived."""
        ceiling = _BLACKWELL_CEILING if blackwell and self.blackwell_ceiling else _CEILING
        return min(self.headroom * max_num_seqs * (query_len if self.counts_drafts else 1), ceiling, budget)

    def listed(
        self, largest: int, max_num_seqs: int, query_len: int, budget: int, *, dense: bool = False
    ) -> tuple[int, ...]:
        """The sizes up to the largest."""
        sizes = set(grid(largest))
        if dense:
            sizes |= set(range(1, min(DENSE, largest) + 1))
        if self.ends_with_budget and budget <= largest:
            sizes.add(budget)
        if self.slots_entry:
            sizes |= {n * query_len for n in (*grid(max_num_seqs), max_num_seqs) if n * query_len <= largest}
        return tuple(sorted(sizes))


SIZE_RULES: Final = {
    "0.11.2": SizeRules(counts_drafts=False, ends_with_budget=False),
    "0.13.0": SizeRules(ends_with_budget=False),
    "0.27.1": SizeRules(),
    "0.33.0": SizeRules(slots_entry=True, blackwell_ceiling=True),
}


def grid(largest: int) -> Iterator[int]:
    """1, 2, 4, then every 8th up to 248, then every 16th from 256."""
    for sizes in ((1, 2, 4), range(8, 256, 8), range(256, largest + 1, 16)):
        yield from (size for size in sizes if size <= largest)


def capture_sizes(
    rules: SizeRules,
    max_num_seqs: int,
    query_len: int,
    budget: int,
    *,
    sizes: Sequence[int] | None = None,
    maximum: int | None = None,
    blackwell: bool = False,
    dense: bool = False,
) -> tuple[int, ...]:
    """The captured sizes, ascending; `sizes` and `maximum` are a user's own.  Raises ShapeError for those refused.

    The largest size that is captured is the last of the list, which may lie below the maximum.
    """
    if sizes is None:
        if maximum is not None and maximum < 1:
            raise ShapeError(
                "max_capture_size_below_one", f"max capture size {maximum}: at least 1", raised="AssertionError"
            )
        largest = min(maximum, budget) if maximum is not None else None
        if largest is None:
            largest = rules.largest(max_num_seqs, query_len, budget, blackwell=blackwell)
        return rules.listed(largest, max_num_seqs, query_len, budget, dense=dense)
    if not sizes:
        raise ShapeError("capture_sizes_empty", "the list of capture sizes is empty", raised="AssertionError")
    found = tuple(sorted({size for size in sizes if size <= budget}))
    last = found[-1] if found else 0
    if maximum is not None and maximum != last:
        raise ShapeError(
            "max_capture_size_inconsistent",
            f"max capture size {maximum} is not the last of the capture sizes within the token budget, {last}",
        )
    return found


def round_to_multiples(sizes: Sequence[int], multiple: int, largest: int) -> tuple[int, ...]:
    """Sizes rounded up to a multiple; those beyond the largest are dropped."""
    rounded = {-(-size // multiple) * multiple for size in sizes}
    return tuple(sorted(size for size in rounded if size <= largest))
