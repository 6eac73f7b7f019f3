"""Properties of interpolation inside one regime, and the policies that depart from the defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.performance_model.profiling_database.data_source import MissReason
from tensor_cast.performance_model.profiling_database.geometry.points import PointSet, freeze
from tensor_cast.performance_model.profiling_database.geometry.slices import Found, Method, Pick
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, CandidateIndex

GROUPS = (("x",), ("y",), ("x", "y"))


def group(points: list[tuple[float, float, float]], **extra: Any) -> CandidateGroup:
    table = np.array(points, dtype=float)
    rows = np.arange(len(points))
    return CandidateGroup((), PointSet({"x": table[:, 0], "y": table[:, 1]}, table[:, 2], rows, **extra))


COORDINATE = st.integers(1, 40)
POINTS = st.lists(
    st.tuples(COORDINATE, COORDINATE, st.floats(0.1, 1e4, allow_subnormal=False)),
    min_size=4,
    max_size=40,
    unique_by=lambda point: point[:2],
)


@settings(max_examples=150, deadline=None)
@given(points=POINTS, x=COORDINATE, y=COORDINATE, multi_axis=st.sampled_from(["simplex", "bracket_blend"]))
def test_an_answer_is_a_convex_combination_inside_the_data(
    points: list[tuple[float, float, float]], x: int, y: int, multi_axis: str
) -> None:
    """It lies between its vertices, weights sum to one, nothing is answered outside the bounding box, and the same rows
    in another order give the same latency."""
    method = Method(multi_axis=multi_axis)
    target = {"x": float(x), "y": float(y)}
    found = group(points).interpolate(target, GROUPS, method)
    shuffled = group(points[::-1]).interpolate(target, GROUPS, method)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    if not isinstance(found, Found):
        assert not isinstance(shuffled, Found)
        return
    assert isinstance(shuffled, Found)
    assert min(xs) <= x <= max(xs)
    assert min(ys) <= y <= max(ys)
    values = [float(found.merged.values[v]) for v in found.vertices]
    assert min(values) <= found.latency_us <= max(values)
    assert sum(found.weights) == pytest.approx(1.0)
    assert all(weight >= -1e-9 for weight in found.weights)
    assert shuffled.axes == found.axes
    if len(found.axes) == 1 or multi_axis == "bracket_blend":
        assert shuffled.latency_us == found.latency_us


@settings(max_examples=100, deadline=None)
@given(points=POINTS, at=st.integers(0, 3))
def test_a_measured_point_is_returned_bit_for_bit(points: list[tuple[float, float, float]], at: int) -> None:
    x, y, latency = points[at]
    found = group(points).exact({"x": float(x), "y": float(y)})
    assert isinstance(found, Found)
    assert found.latency_us == latency


def test_co_circular_grids_follow_qhull_whatever_the_row_order() -> None:
    grid = [(float(x), float(y), 1.0 + x * y) for x in (1, 2, 3) for y in (1, 2, 3)]
    target = {"x": 1.3, "y": 2.4}
    values = set()
    for order in (grid, grid[::-1], grid[3:] + grid[:3]):
        found = group(order).interpolate(target, (("x", "y"),))
        assert isinstance(found, Found)
        values.add(found.latency_us)
    assert len(values) == 1  # coordinates are sorted before they are triangulated


def test_points_without_a_latency_or_an_axis_take_no_part() -> None:
    points = group([(1, 1, 10.0), (2, 1, np.nan), (3, 1, 30.0), (np.nan, 1, 99.0)])
    found = points.interpolate({"x": 2.0, "y": 1.0}, (("x",),))
    assert isinstance(found, Found)
    assert (found.latency_us, found.merged.filtered) == (20.0, 2)


def test_other_axes_must_be_equal() -> None:
    points = group([(1, 1, 10.0), (3, 2, 30.0), (5, 1, 50.0)])
    found = points.interpolate({"x": 3.0, "y": 1.0}, (("x",),))
    assert isinstance(found, Found)
    assert found.latency_us == 30.0  # halfway between the rows at y = 1
    failed = points.interpolate({"x": 3.0, "y": 7.0}, (("x",),))
    assert not isinstance(failed, Found)
    assert failed[0].reason is MissReason.INSUFFICIENT_FILTERED_CANDIDATES


def test_matchers_filter_by_rule() -> None:
    points = group([(1, 30, 10.0), (3, 32, 30.0), (5, 64, 99.0)])
    found = points.interpolate({"x": 2.0, "y": 31.0}, (("x",),), matchers={"y": lambda a, b: abs(a - b) <= 1})
    assert isinstance(found, Found)
    assert found.latency_us == 20.0


def test_bracket_blend_follows_a_product_where_a_simplex_cannot() -> None:
    """Latency x*y at (15, 15) in the cell 10..20: bilinear blending gives exactly 225."""
    corners = [(x, y, x * y) for x in (10.0, 20.0) for y in (10.0, 20.0)]
    target = {"x": 15.0, "y": 15.0}
    blend = group(corners).interpolate(target, (("x", "y"),), Method(multi_axis="bracket_blend"))
    simplex = group(corners).interpolate(target, (("x", "y"),))
    assert isinstance(blend, Found)
    assert isinstance(simplex, Found)
    assert blend.latency_us == 225.0
    assert blend.method == "bracket_blend"
    assert simplex.latency_us in (200.0, 250.0)  # one diagonal or the other


def test_bracket_blend_refuses_a_missing_corner() -> None:
    corners = [(10.0, 10.0, 1.0), (10.0, 20.0, 2.0), (20.0, 10.0, 3.0), (30.0, 30.0, 9.0)]
    failed = group(corners).interpolate({"x": 15.0, "y": 15.0}, (("x", "y"),), Method(multi_axis="bracket_blend"))
    assert not isinstance(failed, Found)
    assert failed[0].reason is MissReason.BOUNDARY_POINT_MISSING


def test_the_frontier_guard_refuses_beyond_the_staircase() -> None:
    staircase = [(1.0, 1.0, 1.0), (1.0, 100.0, 100.0), (100.0, 1.0, 100.0), (2.0, 2.0, 4.0)]
    target = {"x": 40.0, "y": 40.0}  # no measured point is at or beyond it on both axes
    open_answer = group(staircase).interpolate(target, (("x", "y"),))
    assert isinstance(open_answer, Found)
    guarded = group(staircase).interpolate(target, (("x", "y"),), Method(frontier_guard=True))
    assert not isinstance(guarded, Found)
    assert guarded[0].reason is MissReason.BEYOND_MEASURED_FRONTIER


def test_the_tightest_axis_wins_only_under_its_policy() -> None:
    points = [(10.0, 50.0, 1.0), (90.0, 50.0, 9.0), (50.0, 49.0, 70.0), (50.0, 51.0, 72.0)]
    target = {"x": 50.0, "y": 50.0}
    listed = group(points).interpolate(target, (("x",), ("y",)))
    tightest = group(points).interpolate(target, (("x",), ("y",)), Method(tightest_axis=True))
    assert isinstance(listed, Found)
    assert isinstance(tightest, Found)
    assert (listed.axes, listed.latency_us) == (("x",), 5.0)
    assert (tightest.axes, tightest.latency_us) == (("y",), 71.0)


def test_two_kernels_are_never_joined_in_one_answer() -> None:
    points = [(1.0, 1.0, 10.0), (3.0, 1.0, 30.0), (5.0, 1.0, 50.0)]
    variants = np.array([0, 0, 1])
    candidates = group(points, variants=variants)
    inside = candidates.interpolate({"x": 2.0, "y": 1.0}, (("x",),))
    assert isinstance(inside, Found)
    across = candidates.interpolate({"x": 4.0, "y": 1.0}, (("x",),))
    assert not isinstance(across, Found)
    assert across[0].reason is MissReason.KERNEL_VARIANT_CHANGES


def test_a_coordinate_measured_with_two_kernels_needs_the_kernel_named() -> None:
    points = [(1.0, 1.0, 10.0), (1.0, 1.0, 90.0), (3.0, 1.0, 30.0)]
    candidates = group(points, variants=np.array([0, 1, 0]))
    ambiguous = candidates.exact({"x": 1.0, "y": 1.0})
    assert not isinstance(ambiguous, Found)
    assert ambiguous.reason is MissReason.KERNEL_VARIANT_AMBIGUOUS
    named = candidates.exact({"x": 1.0, "y": 1.0}, Pick(variant=1))
    assert isinstance(named, Found)
    assert named.latency_us == 90.0


def test_a_refused_coordinate_takes_no_part() -> None:
    points = [(1.0, 1.0, 10.0), (2.0, 1.0, 99.0), (3.0, 1.0, 30.0)]
    candidates = group(points, unusable=np.array([False, True, False]))
    refused = candidates.exact({"x": 2.0, "y": 1.0})
    assert not isinstance(refused, Found)
    assert refused.reason is MissReason.AMBIGUOUS_DUPLICATE_COORDINATE


# --- regime matching (docs/facts/interpolation.md, "Regimes") -------------------------------------------------------


def regime(**fields: Any) -> tuple[tuple[str, object], ...]:
    return tuple((name, freeze(value)) for name, value in fields.items())


def index(*keys: tuple[tuple[str, object], ...]) -> CandidateIndex:
    points = PointSet({}, np.array([1.0]), np.array([0]))
    return CandidateIndex([CandidateGroup(key, points) for key in keys], {}, len(keys))


def test_every_candidate_field_must_be_present_and_equal() -> None:
    candidates = index(regime(a=1, b=[2, 3]), regime(a=1), regime(a=2))
    assert (
        len(candidates.matching(regime(a=1, b=[2, 3]))) == 2
    )  # the second lacks b: a target-only field does not matter
    assert len(candidates.matching(regime(a=1))) == 1
    assert candidates.matching(regime(b=[2, 3])) == ()


def test_required_fields_must_exist_on_both_sides() -> None:
    candidates = index(regime(a=1, b=2), regime(a=1))
    assert len(candidates.matching(regime(a=1, b=2), required=frozenset({"b"}))) == 1
    assert candidates.matching(regime(a=1), required=frozenset({"b"})) == ()


def test_an_allowed_extra_field_may_be_absent_in_the_target_but_not_different() -> None:
    candidates = index(regime(a=1, path="x"), regime(a=1, path="y"))
    extra = frozenset({"path"})
    assert len(candidates.matching(regime(a=1), extra)) == 2
    assert len(candidates.matching(regime(a=1, path="x"), extra)) == 1
