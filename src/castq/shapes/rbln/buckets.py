"""Decode request buckets: the rows that decode graphs are compiled for.

Source: vllm_rbln/v1/worker/bucketing, vllm_rbln/config.py at 0.11.3a21.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from castq.shapes.refusals import ShapeError
from tensor_cast.errors import nearest

__all__ = ["STRATEGIES", "BucketLayout", "DecodeRows", "covering", "decode_ceiling", "decode_rows"]

STRATEGIES = ("exponential", "linear", "manual")


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The rows of a decode graph, and how many of them hold no request."""

    rows: int
    dummy_rows: int


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """How decode buckets are laid out below the ceiling; the defaults are the vendor's.

    `limit` counts buckets, whatever the vendor's help text says; `manual` is read by the strategy of that name only.
    """

    strategy: str = "exponential"
    min: int = 1
    step: int = 2
    limit: int = 1
    manual: tuple[int, ...] = ()

    def buckets(self, ceiling: int) -> tuple[int, ...]:
        """Ascending rows up to the ceiling.  Raises ShapeError for a layout that the vendor refuses."""
        if self.strategy == "manual":
            return self._manual(ceiling)
        self._check(ceiling)
        found, last = [ceiling], ceiling
        while len(found) < self.limit:
            last = last // self.step if self.strategy == "exponential" else last - self.step
            if last < self.min:
                break
            found.append(last)
        return tuple(sorted(set(found)))

    def _check(self, ceiling: int) -> None:
        if self.strategy not in STRATEGIES:
            close = nearest(self.strategy, STRATEGIES)
            allowed = ", ".join(STRATEGIES)
            raise ShapeError("unknown_strategy", f"bucket strategy {self.strategy!r}: one of {allowed}{close}")
        if ceiling < self.min:
            raise ShapeError(
                "ceiling_below_min",
                f"bucket min {self.min} is above the ceiling {ceiling} (max_num_seqs // pipeline_parallel_size)",
            )
        for name in ("limit", "step", "min"):
            value = getattr(self, name)
            if value <= 0:
                raise ShapeError(f"{name}_not_positive", f"bucket {name} {value}: at least 1")
        if self.strategy == "exponential" and self.step < 2:
            raise ShapeError("exponential_step_not_above_1", f"bucket step {self.step}: exponential needs at least 2")

    def _manual(self, ceiling: int) -> tuple[int, ...]:
        if not self.manual:
            raise ShapeError("manual_empty", "a manual bucket list has at least one bucket", raised="AssertionError")
        found = tuple(sorted(set(self.manual)))
        if found[-1] != ceiling:
            raise ShapeError(
                "manual_last_not_ceiling",
                f"manual buckets {list(found)}: the largest must be the ceiling {ceiling} "
                "(max_num_seqs // pipeline_parallel_size)",
            )
        if found[0] < 1:
            raise ShapeError("min_not_positive", f"manual bucket {found[0]}: at least 1")
        return found


def decode_ceiling(max_num_seqs: int, pipeline_parallel_size: int) -> int:
    """Decodes that one step can hold: the slots shared out over the pipeline's stages."""
    return max_num_seqs // pipeline_parallel_size


def covering(buckets: Sequence[int], decodes: int, *, rank: int | None = None) -> int:
    """The smallest bucket that holds so many decodes.  Raises ShapeError: nothing runs eager here."""
    at = bisect_left(buckets, decodes)
    if at == len(buckets):
        raise ShapeError(
            "no_covering_bucket", f"{decodes} decodes: the largest compiled bucket has {buckets[-1]} rows", rank=rank
        )
    return buckets[at]


def decode_rows(buckets: Sequence[int], decodes: int) -> DecodeRows:
    """The rows that so many decodes run on."""
    rows = covering(buckets, decodes)
    return DecodeRows(rows, rows - decodes)
