"""Many sessions as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Flow"]


@dataclass(slots=True)
class Flow:
    """Sessions in the order of their times: each column (n,), the uniform numbers (n, draws)."""

    times: NDArray[np.float64]
    serials: NDArray[np.int64]
    arrived: NDArray[np.float64]
    submitted: NDArray[np.float64]
    attrs: dict[int, NDArray[np.float64]]
    uniforms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.times)

    def select(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Flow:
        """The sessions of these places, in this order."""
        return Flow(
            self.times[which],
            self.serials[which],
            self.arrived[which],
            self.submitted[which],
            {slot: column[which] for slot, column in self.attrs.items()},
            self.uniforms[which],
        )

    def then(self, other: Flow) -> Flow:
        """These sessions and after them the others, which have the same attributes."""
        import numpy as np

        return Flow(
            np.concatenate((self.times, other.times)),
            np.concatenate((self.serials, other.serials)),
            np.concatenate((self.arrived, other.arrived)),
            np.concatenate((self.submitted, other.submitted)),
            {slot: np.concatenate((column, other.attrs[slot])) for slot, column in self.attrs.items()},
            np.concatenate((self.uniforms, other.uniforms)),
        )
