"""Typed evidence of answers, and the search that leaves points out.  Expected values are worked out by hand."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import base_source, hit, mm, row, source, write_database
from tensor_cast import Miss, QueryResult
from tensor_cast.performance_model.profiling_database.dispatch import path_for
from tensor_cast.performance_model.profiling_database.engine import Question
from tensor_cast.performance_model.profiling_database.evidence import (
    Evidence,
    Interval,
    evidence_details,
    merged_rows,
    suspect_rows,
)
from tensor_cast.performance_model.profiling_database.geometry.points import PointSet
from tensor_cast.performance_model.profiling_database.geometry.slices import Found, Pick
from tensor_cast.performance_model.profiling_database.interpolation_index import CandidateGroup, Hidden
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}


def product(m: int, latency: float) -> dict[str, Any]:
    return row(f"{m},512;512,1024", "DT_BF16;DT_BF16", latency, outputs=f"{m},1024", output_dtypes="DT_BF16")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """M = 10 at 4 us, twice at 20 (6 and 8 us: 7), 40 at 10 us."""
    rows = [product(10, 4.0), product(20, 6.0), product(20, 8.0), product(40, 10.0)]
    return write_database(tmp_path, {"MatMulV2": rows}, MM)


def test_an_interpolated_answer_says_where_it_lies(folder: Path) -> None:
    answer = hit(source(folder).query(mm(25, 512, 1024)))
    assert answer.latency_us == 7.75  # a quarter of the way from 7 to 10
    evidence = answer.evidence
    assert isinstance(evidence, Evidence)
    place = evidence.neighbourhood
    assert place is not None
    assert (place.dim, place.axes, place.target) == (1, ("M",), (25.0,))
    assert (place.coordinates, place.weights) == (((20.0,), (40.0,)), (0.75, 0.25))
    assert place.boundary() == (Interval(20.0, 40.0),)
    assert set(place.held) == {"K", "N"}
    repeated, single = evidence.rows
    assert (repeated.latency_us, single.latency_us, single.repeats) == (7.0, 10.0, None)
    assert repeated.repeats is not None
    assert (repeated.repeats.count, repeated.repeats.latency_us, repeated.repeats.std_us) == (
        2,
        Interval(6.0, 8.0),
        1.0,
    )
    assert [one.line for one in (*repeated.repeats.rows, single)] == [3, 4, 5]


def test_a_measured_answer_names_its_row(folder: Path) -> None:
    evidence = hit(base_source(folder).query(mm(10, 512, 1024))).evidence
    assert evidence is not None
    assert evidence.neighbourhood is None
    assert [(one.file, one.line, one.latency_us) for one in evidence.rows] == [("MatMulV2.csv", 2, 4.0)]


def test_details_are_the_evidence_as_json(folder: Path) -> None:
    answer = hit(source(folder).query(mm(25, 512, 1024)))
    assert answer.evidence is not None
    assert json.loads(json.dumps(answer.details)) == json.loads(json.dumps(evidence_details(answer.evidence)))


def test_an_answer_that_was_pickled_keeps_its_details(folder: Path) -> None:
    answer = hit(source(folder).query(mm(25, 512, 1024)))
    again = pickle.loads(pickle.dumps(answer))
    assert again.details == answer.details
    assert again.evidence is None


def test_suspects_are_found_among_merged_rows(folder: Path) -> None:
    evidence = hit(base_source(folder).query(mm(10, 512, 1024))).evidence
    assert evidence is not None
    [first] = evidence.rows
    odd = replace(first, line=9, suspect="spike")
    assert suspect_rows([merged_rows([first, odd])]) == ["MatMulV2.csv:9: spike"]


# --- leaving points out -----------------------------------------------------------------------------------------------


def test_the_engine_searches_as_if_a_coordinate_had_not_been_measured(folder: Path) -> None:
    wrapper = source(folder)
    leaf = mm(20, 512, 1024)
    entry = wrapper.base.entry(leaf)
    assert entry is not None
    path = path_for(entry)
    assert isinstance(path, OperatorPath)
    question = Question(path, leaf, entry)
    targets = wrapper.engine.targets(question, "MatMulV2")
    assert isinstance(targets, tuple)
    [target] = targets
    seen = wrapper.engine.search(question, "MatMulV2", target)
    left_out = wrapper.engine.search(question, "MatMulV2", target, {"M": (20.0,)})
    assert isinstance(seen, QueryResult)
    assert isinstance(left_out, QueryResult)
    assert (seen.latency_us, seen.details["exact_coordinate_match"]) == (7.0, True)
    assert (left_out.source, left_out.latency_us) == ("INTERPOLATED", 6.0)  # a third of the way from 4 to 10
    edge = wrapper.engine.search(question, "MatMulV2", target, {"M": (20.0, 40.0)})
    assert not isinstance(edge, QueryResult)
    assert edge.reason == "insufficient_filtered_candidates"
    again = wrapper.engine.search(question, "MatMulV2", target)
    assert isinstance(again, QueryResult)
    assert again.latency_us == 7.0


def test_a_kernel_without_a_table_has_nothing_to_search(folder: Path) -> None:
    wrapper = source(folder)
    leaf = mm(20, 512, 1024)
    entry = wrapper.base.entry(leaf)
    assert entry is not None
    path = path_for(entry)
    assert isinstance(path, OperatorPath)
    question = Question(path, leaf, entry)
    assert isinstance(wrapper.engine.targets(question, "Absent"), Miss)
    targets = wrapper.engine.targets(question, "MatMulV2")
    assert isinstance(targets, tuple)
    with pytest.raises(LookupError, match="Absent has no table"):
        wrapper.engine.search(question, "Absent", targets[0])


SIZES = st.integers(1, 4)
POINTS = st.lists(st.tuples(SIZES, SIZES, SIZES, st.integers(1, 50)), min_size=2, max_size=30)


def group(points: list[tuple[int, int, int, int]], at: np.ndarray) -> CandidateGroup:
    columns = [np.array(column, dtype=np.float64)[at] for column in zip(*points, strict=True)]
    axes = dict(zip("abc", columns[:3], strict=True))
    return CandidateGroup((), PointSet(axes, columns[3], np.flatnonzero(at)))


@settings(max_examples=200, deadline=None)
@given(POINTS, st.dictionaries(st.sampled_from("abc"), st.sets(SIZES, min_size=1), min_size=1), st.data())
def test_leaving_points_out_is_never_having_had_them(
    points: list[tuple[int, int, int, int]], hidden: dict[str, set[int]], data: st.DataObject
) -> None:
    values = {axis: np.array([point["abc".index(axis)] for point in points]) for axis in "abc"}
    out = np.ones(len(points), dtype=bool)
    for axis, left in hidden.items():
        out &= np.isin(values[axis], list(left))
    whole = group(points, np.ones(len(points), dtype=bool))
    if data.draw(st.booleans()):
        whole.interpolate({"a": 2.0, "b": 2.0, "c": 2.0}, [("a",), ("a", "b")])  # something prepared already
    asked: Hidden = {axis: tuple(map(float, left)) for axis, left in hidden.items()}
    thinned, real = whole.without(asked), group(points, ~out)
    assert len(thinned) == len(real)
    target = {axis: float(data.draw(SIZES)) for axis in "abc"}
    if not len(real):
        return
    assert answered(thinned.exact(target)) == answered(real.exact(target))
    axes = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c")]
    for one in (axes, axes[3:], axes[5:]):
        assert answered(thinned.interpolate(target, one, pick=Pick())) == answered(real.interpolate(target, one))


def answered(outcome: object) -> object:
    if not isinstance(outcome, Found):
        return outcome
    rows = [outcome.merged.members(vertex).tolist() for vertex in outcome.vertices]
    return outcome.latency_us, outcome.method, outcome.axes, rows, outcome.weights, outcome.attempts
