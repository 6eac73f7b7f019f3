"""The parallel layout of a deployment."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tensor_cast.errors import InvalidValueError

__all__ = ["ParallelConfig"]


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Sizes of the parallel groups.

    `None` for expert parallelism means "not configured" and makes lookups of fused dispatch-FFN-combine refuse.
    """

    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int | None = None
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "sequence_parallel" or (value is None and item.name == "expert_parallel_size"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidValueError(f"{item.name} must be an integer >= 1, got {value!r}")
