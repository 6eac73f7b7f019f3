"""Pure interpolation functions against hand calculations and SciPy's griddata."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import griddata

from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.interpolation_math import (
    SimplexField,
    find_boundary,
    griddata_linear_interp,
    linear_interp,
    validate_interpolated_latency,
    validate_positive_latency,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        ("2.5", True),
        (0, False),
        (-1, False),
        (math.nan, False),
        (math.inf, False),
        ("x", False),
        (None, False),
    ],
)
def test_a_latency_is_positive_and_finite(value: object, expected: bool) -> None:
    assert validate_positive_latency(value) is expected


def test_the_latency_bound_is_exclusive() -> None:
    assert not validate_positive_latency(2.0, min_latency_us=2.0)
    assert validate_positive_latency(2.1, min_latency_us=2.0)


def test_an_interpolated_latency_needs_one_positive_candidate() -> None:
    assert validate_interpolated_latency(1.0, [0.0, 3.0])
    assert not validate_interpolated_latency(1.0, [0.0, -3.0])
    assert not validate_interpolated_latency(0.0, [3.0])
    assert validate_interpolated_latency(1.0)


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([1, 4, 9], 4, (4, 4)),
        ([9, 1, 4], 5, (4, 9)),
        ([1, 4, 9], 0.5, None),
        ([1, 4, 9], 9.5, None),
        ([math.nan, 1, math.inf, 4], 2, (1, 4)),
        ([1, 4], math.nan, None),
        ([], 1, None),
    ],
)
def test_boundary(values: list[float], target: float, expected: tuple[float, float] | None) -> None:
    assert find_boundary(values, target) == expected


def test_line() -> None:
    assert linear_interp(15, 10, 100, 20, 200) == 150
    assert linear_interp(10, 10, 100, 10, 300) == 100


@given(
    x=st.floats(0, 1),
    x0=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    y0=st.floats(1e-6, 1e9),
    y1=st.floats(1e-6, 1e9),
)
def test_a_line_never_leaves_its_end_values(x: float, x0: float, width: float, y0: float, y1: float) -> None:
    value = linear_interp(x0 + x * width, x0, y0, x0 + width, y1)
    assert min(y0, y1) <= value <= max(y0, y1)


# z = 2 + 3x + 5y is linear, so every triangulation gives the same value
PLANE = [(0, 0), (4, 0), (0, 4), (4, 4), (1, 2)]


def plane(x: float, y: float) -> float:
    return 2 + 3 * x + 5 * y


def test_a_plane_is_reproduced() -> None:
    value, details = griddata_linear_interp(PLANE, [plane(*p) for p in PLANE], (1.5, 2.5), return_details=True)  # type: ignore[misc]
    assert value == pytest.approx(2 + 4.5 + 12.5, rel=1e-12)
    assert sum(details["barycentric_weights"]) == pytest.approx(1.0)
    assert len(details["simplex_vertex_indices"]) == 3


@pytest.mark.parametrize(
    ("points", "values", "target", "reason"),
    [
        ([(0, 0), (1, 1)], [1, 2], (0.5, 0.5), "insufficient_points"),
        ([(0,), (1,), (2,)], [1, 2, 3], (0.5,), "insufficient_points"),
        ([(0, 0), (1, 1), (2, 2)], [1, 2, 3], (1, 1), "degenerate_point_cloud"),
        ([(0, 0), (1, 0), (0, 1)], [1, 2], (0, 0), "point_shape_mismatch"),
        ([0, 1, 2], [1, 2, 3], (1,), "invalid_array_rank"),
        ([(0, 0), (1, 0), (0, math.nan)], [1, 2, 3], (0.2, 0.2), "non_finite_input"),
        ([(0, 0), (1, 0), (0, 1)], [1, 2, 3], (0.8, 0.8), "outside_convex_hull"),
        ([(0, 0), (1, 0), (0, 1)], [1, 2, 3], (0.1, math.inf), "non_finite_input"),
        ([(0, 0), (1, 0), (0, 1)], [1, 2, 3], (0.1,), "point_shape_mismatch"),
        ([(0, 0), (1, 0), (0, 1)], [-1, -2, -3], (0.2, 0.2), "latency_guard_rejected"),
    ],
)
def test_each_refusal_has_its_reason(points: object, values: object, target: object, reason: str) -> None:
    value, details = griddata_linear_interp(points, values, target, return_details=True)  # type: ignore[misc,arg-type]
    assert value is None
    assert details["reason"] == reason


def test_missing_scipy_is_a_reason_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.spatial", None)
    points = np.array([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)])
    assert SimplexField.build(points, np.array([1.0, 2.0, 3.0])) is MissReason.SCIPY_UNAVAILABLE


@pytest.mark.parametrize("dim", [2, 3])
def test_values_equal_griddata_on_scattered_points(dim: int) -> None:
    """Decision 002.13: the same values as `griddata(method="linear")` on the same points."""
    generator = np.random.default_rng(dim)
    points = generator.uniform(1, 100, (60, dim))
    values = generator.uniform(10, 1000, 60)
    targets = generator.uniform(5, 95, (200, dim))
    expected = griddata(points, values, targets, method="linear")
    field = SimplexField.build(points, values)
    assert isinstance(field, SimplexField)
    many = field.at_many(targets)
    assert np.allclose(many, expected, rtol=1e-9, equal_nan=True)
    for target, wanted in zip(targets, expected, strict=True):
        found = field.at(target.tolist())
        if np.isnan(wanted):
            assert found is MissReason.OUTSIDE_CONVEX_HULL
        else:
            assert not isinstance(found, MissReason)
            assert found.value == pytest.approx(wanted, rel=1e-9)
