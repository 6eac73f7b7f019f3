"""What a vendor's engine refuses, as the tagged version of it does."""

from __future__ import annotations

from tensor_cast.errors import CastqError

__all__ = ["ShapeError"]


class ShapeError(CastqError, ValueError):
    """A step or a configuration that the vendor's engine refuses.

    `raised` is the exception class of the vendor (`"ValueError"`, `"AssertionError"`), `reason` a code of our own,
    `rank` the first data-parallel rank that refuses, or None.
    """

    def __init__(self, reason: str, message: str, *, raised: str = "ValueError", rank: int | None = None) -> None:
        self.reason = reason
        self.raised = raised
        self.rank = rank
        super().__init__(f"rank {rank}: {message}" if rank is not None else message)
