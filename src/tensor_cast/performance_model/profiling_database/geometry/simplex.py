"""Barycentric coordinates of small simplices in closed form.

The inverses of 2 x 2 and 3 x 3 matrices are written out, because a linear-algebra library called once per simplex
stalls for seconds when its threads compete for busy cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

__all__ = ["barycentric_transforms", "spans_all_axes"]

_FLAT: Final = 1e-13
_RANK: Final = 1e-12


def barycentric_transforms(points: FloatArray, simplices: NDArray[np.int32]) -> FloatArray:
    """(n, dim + 1, dim): the inverse edge matrix and the last vertex of each simplex, NaN for flat ones.

    With `T` such an entry, the first `dim` weights of `x` are `T[:dim] @ (x - T[dim])`; the last completes them to 1.
    """
    corners = points[simplices]
    origin = corners[:, -1]
    edges = corners[:, :-1] - origin[:, None, :]
    inverse, determinant = _inverse_2(edges) if points.shape[1] == 2 else _inverse_3(edges)
    lengths = _product([_length(edges[:, i]) for i in range(points.shape[1])])
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = inverse / determinant[:, None, None]
    inverse[np.abs(determinant) <= _FLAT * lengths] = np.nan
    return np.concatenate([inverse, origin[:, None, :]], axis=1)


def _inverse_2(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Adjugate of the matrices whose columns are the edges, and their determinants."""
    (a, c), (b, d) = edges[:, 0].T, edges[:, 1].T
    adjugate = np.stack([np.stack([d, -b], axis=1), np.stack([-c, a], axis=1)], axis=1)
    return adjugate, a * d - b * c


def _inverse_3(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    u, v, w = edges[:, 0], edges[:, 1], edges[:, 2]
    adjugate = np.stack([np.cross(v, w), np.cross(w, u), np.cross(u, v)], axis=1)
    x, y, z = (u * adjugate[:, 0]).T
    return adjugate, x + y + z


def _length(edges: FloatArray) -> FloatArray:
    squares = np.zeros(len(edges))
    for column in edges.T:
        squares = squares + column * column
    length: FloatArray = np.sqrt(squares)
    return length


def _product(factors: list[FloatArray]) -> FloatArray:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def spans_all_axes(points: FloatArray) -> bool:
    """Whether the points lie on no common line (2D) or plane (3D); each axis is scaled to its own range first."""
    width = np.ptp(points, axis=0)
    if (width <= 0).any():
        return False
    scaled = (points - points.mean(axis=0)) / width
    spread = np.einsum("ni,nj->ij", scaled, scaled)
    values = np.linalg.eigvalsh(spread)
    return bool(values[0] > _RANK * values[-1])
