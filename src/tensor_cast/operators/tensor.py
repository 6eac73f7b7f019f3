"""One tensor of an operator call, without its data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tensor_cast.errors import InvalidValueError

__all__ = ["Shape", "TensorSpec"]

Shape = tuple[int, ...]

_MAX_SIZE: Final = 2**63 - 1  # elements a tensor can have; also keeps every size representable as a float


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, dtype and storage format of one tensor; `role` is the argument name it fills."""

    shape: Shape
    dtype: str
    format: str = "ND"
    role: str = ""

    def __post_init__(self) -> None:
        for dim in self.shape:
            if type(dim) is not int or dim < 0:
                raise InvalidValueError(f"tensor shape {self.shape!r}: every dimension must be an integer >= 0")
        if any(dim > _MAX_SIZE for dim in self.shape) or math.prod(self.shape) > _MAX_SIZE:
            raise InvalidValueError("tensor shape has more than 2**63 - 1 elements")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)
