"""Blends and simplex values to the last bit: rational arithmetic, each operation rounded once, and literal digests."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from tensor_cast.performance_model.profiling_database.geometry.points import PointSet
from tensor_cast.performance_model.profiling_database.geometry.slice_values import _many
from tensor_cast.performance_model.profiling_database.geometry.slices import ALL_POINTS, Found, Method
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup
from tensor_cast.performance_model.profiling_database.interpolation_math import SimplexField, SimplexHit

AXES = ("M", "K", "N")
BLEND = Method(multi_axis="bracket_blend")
# One cell: latencies at the corners in the order of their coordinates.
LATENCIES = (1.1, 2.3, 3.7, 5.3, 7.9, 11.3, 13.7, 17.9)


def rounded(value: Fraction) -> Fraction:
    """To the nearest double."""
    return Fraction(float(value))


def blend_by_hand(dim: int, at: tuple[int, ...]) -> Fraction:
    """The cell from 10 to 40 on every axis, additions from left to right."""
    shares = [rounded(rounded(Fraction(x - 10)) / 30) for x in at]
    total = Fraction(0)
    for corner in range(2**dim):
        weight = Fraction(1)
        for axis in reversed(range(dim)):
            high = corner >> (dim - 1 - axis) & 1
            weight = rounded((shares[axis] if high else rounded(1 - shares[axis])) * weight)
        total = rounded(total + rounded(weight * Fraction(LATENCIES[corner])))
    return total


def cell(dim: int) -> CandidateGroup:
    places = np.array(np.meshgrid(*[[10.0, 40.0]] * dim, indexing="ij")).reshape(dim, -1)
    axes = dict(zip(AXES, places, strict=False))
    return CandidateGroup((), PointSet(axes, np.array(LATENCIES[: 2**dim]), np.arange(2**dim)))


@pytest.mark.parametrize("dim", [2, 3])
def test_a_blend_has_the_bits_of_rational_arithmetic(dim: int) -> None:
    group, axes = cell(dim), AXES[:dim]
    prepared = group.slice_for(dict.fromkeys(axes, 10.0), axes, ALL_POINTS, {})
    assert prepared is not None
    places = [tuple(10 + (7 * i + 11 * j * i) % 31 for j in range(dim)) for i in range(60)]
    many = _many(group, prepared, np.array(places, dtype=np.float64), BLEND)
    for place, value in zip(places, many.tolist(), strict=True):
        single = group.multi(prepared, axes, tuple(map(float, place)), BLEND)
        assert isinstance(single, Found)
        assert single.latency_us.hex() == float(blend_by_hand(dim, place)).hex() == value.hex()


def simplex_by_hand(at: tuple[int, int]) -> Fraction:
    """The triangle (0, 0), (7, 0), (0, 3) with 1.1, 2.3 and 3.7: weights by rounded cross products."""
    corners, heights = ((0, 0), (7, 0), (0, 3)), (1.1, 2.3, 3.7)
    order = tuple(int(vertex) for vertex in FIELD_ORDER)
    (ax, ay), (bx, by), (cx, cy) = (corners[vertex] for vertex in order)
    determinant = Fraction((ax - cx) * (by - cy) - (ay - cy) * (bx - cx))
    matrix = [[by - cy, -(bx - cx)], [-(ay - cy), ax - cx]]
    inverse = [[rounded(Fraction(item) / determinant) for item in line] for line in matrix]
    x, y = at[0] - cx, at[1] - cy
    first, second = (rounded(rounded(line[0] * x) + rounded(line[1] * y)) for line in inverse)
    weights = (first, second, rounded(1 - rounded(first + second)))
    total = Fraction(0)
    for weight, vertex in zip(weights, order, strict=True):
        total = rounded(total + rounded(weight * Fraction(heights[vertex])))
    return min(max(total, Fraction(1.1)), Fraction(3.7))


TRIANGLE = SimplexField(np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 3.0]]), np.array([1.1, 2.3, 3.7]))
FIELD_ORDER = TRIANGLE._mesh.simplices[0]


@pytest.mark.parametrize("at", [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (5, 0), (0, 2), (6, 0), (0, 0)])
def test_a_simplex_value_has_the_bits_of_rational_arithmetic(at: tuple[int, int]) -> None:
    hit = TRIANGLE.at((float(at[0]), float(at[1])))
    assert isinstance(hit, SimplexHit)
    many = TRIANGLE.at_many(np.array([at], dtype=np.float64))
    assert hit.value.hex() == float(simplex_by_hand(at)).hex() == float(many[0]).hex()


def test_digests() -> None:
    """The rational values of every whole place of the cells, as one digest each: the same on every interpreter."""
    digests = {}
    for dim in (2, 3):
        group, axes = cell(dim), AXES[:dim]
        prepared = group.slice_for(dict.fromkeys(axes, 10.0), axes, ALL_POINTS, {})
        assert prepared is not None
        grid = np.array(np.meshgrid(*[np.arange(10.0, 41.0)] * dim, indexing="ij")).reshape(dim, -1).T
        values = _many(group, prepared, grid, BLEND)
        digests[dim] = hashlib.sha256(" ".join(value.hex() for value in values.tolist()).encode()).hexdigest()[:16]
    assert digests == {2: "9ae6ca7f8f8c3876", 3: "0f214448ca02a563"}
