"""The sum: each leaf once, with its source; what is missing is said, never counted as zero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composites import indexer, latent
from support import mm, row, source, write_database
from tensor_cast import LeafOp, Miss, QueryResult, QuerySource, Requests
from tensor_cast.errors import InvalidValueError
from tensor_cast.operators.records import OperatorRecord, as_leaf
from tensor_cast.performance_model.base import LeafTime, OperatorTime, PerformanceModel, TimeSource
from tensor_cast.performance_model.empirical import EmpiricalModel
from tensor_cast.performance_model.profiling_database.data_source import DataSourcePerformanceModel, MissReason

MLA = "multihead_latent_attention"
DECODE = Requests((1, 1), (500, 500))
ZERO = QueryResult(0.0, 1.0, QuerySource.MEASURED, {"kernel_type": "", "zero_cost": True})


class Answers(DataSourcePerformanceModel):
    """Answers by operator name, and remembers the questions."""

    def __init__(self, answers: Mapping[str, QueryResult]) -> None:
        self.answers = answers
        self.asked: list[LeafOp] = []

    def query(self, op: LeafOp | OperatorRecord) -> QueryResult | Miss:
        leaf = as_leaf(op)
        self.asked.append(leaf)
        return self.answers.get(leaf.name, Miss(MissReason.UNMAPPED, leaf.name))

    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        raise AssertionError("the model asks with query")


class Flat:
    """A fallback: 7 us for the operators it knows."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.asked: list[LeafOp] = []

    def estimate(self, leaf: LeafOp) -> OperatorTime:
        self.asked.append(leaf)
        if leaf.name in self.known:
            return OperatorTime(leaf, (LeafTime(leaf, TimeSource.ANALYTIC, 7.0, 0.5),))
        return OperatorTime(leaf, (LeafTime(leaf, TimeSource.MISS, None, 0.0, "unknown"),))


def measured(latency: float, confidence: float = 1.0, **details: Any) -> QueryResult:
    return QueryResult(latency, confidence, QuerySource.MEASURED, {"kernel_type": "K", **details})


def interpolated(latency: float, confidence: float) -> QueryResult:
    return QueryResult(latency, confidence, QuerySource.INTERPOLATED, {"kernel_type": "K"})


LATENT = {"aten.bmm.default": measured(3.0), "tensor_cast.attention.default": interpolated(14.0, 0.8)}


def test_a_leaf_is_asked_as_it_is() -> None:
    answers = Answers({"aten.mm.default": measured(3.25, 0.9)})
    time = EmpiricalModel(answers).time(mm(4, 8, 3))
    assert answers.asked == [mm(4, 8, 3)]
    assert (time.latency_us, time.confidence, time.complete, time.synthetic) == (3.25, 0.9, True, False)
    assert [part.source for part in time.leaves] == [TimeSource.MEASURED]


def test_a_composite_is_the_sum_of_its_leaves_each_asked_once() -> None:
    answers = Answers(LATENT)
    time = EmpiricalModel(answers).time(latent(MLA, 2, DECODE))
    assert [leaf.source.partition("#")[2] for leaf in answers.asked] == ["0", "1", "2"]
    assert time.latency_us == 20.0  # 3 + 14 + 3
    assert time.confidence == pytest.approx(0.86)  # (3*1 + 14*0.8 + 3*1) / 20
    assert [str(part.source) for part in time.leaves] == ["MEASURED", "INTERPOLATED", "MEASURED"]
    assert time.refusal is None


def test_equal_operators_are_asked_once_and_counted_as_often_as_they_run() -> None:
    answers = Answers({**LATENT, "aten.mm.default": measured(2.0)})
    total = EmpiricalModel(answers).total([(latent(MLA, 2, DECODE), 61), (mm(4, 8, 3), 2), (latent(MLA, 2, DECODE), 1)])
    assert len(answers.asked) == 4
    assert total.latency_us == 62 * 20.0 + 2 * 2.0
    assert total.microseconds == {TimeSource.MEASURED: 62 * 6.0 + 4.0, TimeSource.INTERPOLATED: 62 * 14.0}
    assert total.calls == {TimeSource.MEASURED: 126, TimeSource.INTERPOLATED: 62}
    assert total.complete
    assert total.confidence == pytest.approx((376.0 + 868.0 * 0.8) / 1244.0)


def test_a_miss_without_a_fallback_makes_the_sum_partial_and_is_named() -> None:
    answers = Answers({"aten.bmm.default": measured(3.0)})
    time = EmpiricalModel(answers).time(latent(MLA, 2, DECODE))
    assert (time.latency_us, time.complete) == (6.0, False)
    (missed,) = time.misses
    assert (missed.source, missed.latency_us) == (TimeSource.MISS, None)
    assert missed.reason == "unmapped:tensor_cast.attention.default"
    assert "6 us PARTIAL, without tensor_cast.attention.default (unmapped:" in str(time)
    total = EmpiricalModel(answers).total([(latent(MLA, 2, DECODE), 3)])
    assert (total.latency_us, total.complete) == (18.0, False)
    assert [(part.leaf.name, count) for part, count in total.misses] == [("tensor_cast.attention.default", 3)]
    assert str(total).startswith("18 us PARTIAL: 3 leaf calls without a time; MEASURED 18 us (100.0%)")
    assert "3 x tensor_cast.attention.default (2x4x1x512, 9x1x128x512, 9x1x128x512, ...) no time; MISS" in str(total)


def test_nothing_known_is_no_time_and_not_zero() -> None:
    time = EmpiricalModel(Answers({})).time(mm(4, 8, 3))
    assert time.to_json()["latency_us"] is None
    assert str(time) == "aten.mm.default: no time; aten.mm.default (unmapped:aten.mm.default)"
    total = EmpiricalModel(Answers({})).total([(mm(4, 8, 3), 1)])
    assert (total.complete, total.to_json()["latency_us"], total.confidence) == (False, None, 0.0)
    assert total.calls == {TimeSource.MISS: 1}


def test_a_documented_zero_is_a_time() -> None:
    total = EmpiricalModel(Answers({"aten.view.default": ZERO})).total([(LeafOp("aten.view.default", ()), 9)])
    assert (total.latency_us, total.complete, total.confidence) == (0.0, True, 1.0)
    assert str(total) == "0 us; confidence 1.00"


def test_the_fallback_answers_leaf_by_leaf_and_only_what_was_missed() -> None:
    fallback = Flat("tensor_cast.attention.default")
    time = EmpiricalModel(Answers({"aten.bmm.default": measured(3.0)}), fallback).time(latent(MLA, 2, DECODE))
    assert [leaf.name for leaf in fallback.asked] == ["tensor_cast.attention.default"]
    assert (time.latency_us, time.complete) == (13.0, True)
    analytic = time.leaves[1]
    assert (analytic.source, analytic.reason) == (TimeSource.ANALYTIC, "unmapped:tensor_cast.attention.default")
    assert time.confidence == pytest.approx((6.0 + 7.0 * 0.5) / 13.0)


def test_a_fallback_that_does_not_know_either_leaves_the_miss() -> None:
    time = EmpiricalModel(Answers({}), Flat()).time(mm(4, 8, 3))
    assert not time.complete
    assert time.misses[0].reason == "unmapped:aten.mm.default"


def test_a_model_can_be_the_fallback_of_another() -> None:
    second = EmpiricalModel(Answers({"aten.mm.default": measured(5.0)}))
    assert isinstance(second, PerformanceModel)
    assert EmpiricalModel(Answers({}), second).time(mm(4, 8, 3)).latency_us == 5.0


def test_a_composite_that_cannot_be_decomposed_is_asked_as_it_is() -> None:
    op = latent(MLA, 2, DECODE, without=("w_uv",))
    answers = Answers({op.name: measured(40.0)})
    time = EmpiricalModel(answers).time(op)
    assert answers.asked == [op]
    assert time.latency_us == 40.0
    assert time.refusal is not None
    assert time.refusal.missing == ("w_uv of rank 3",)
    assert time.to_json()["not_decomposable"]["missing"] == ["w_uv of rank 3"]


def test_a_partial_sum_of_the_source_is_a_miss() -> None:
    op = latent(MLA, 2, DECODE, without=("w_uv",))
    partial = QueryResult(21.0, 0.5, QuerySource.PARTIAL, {"missed_kernels": ["A", "B"]})
    time = EmpiricalModel(Answers({op.name: partial})).time(op)
    assert (time.complete, time.misses[0].reason) == (False, "partial:A,B")
    assert time.to_json()["latency_us"] is None


def test_a_database_that_measured_the_operator_whole_is_asked_for_it(tmp_path: Path) -> None:
    name = "tensor_cast.mlapo.default"
    folder = write_database(tmp_path, {"Mlapo": [row("4,8", "DT_BF16", 30.0)]}, {name: {"kernel_type": "Mlapo"}})
    time = EmpiricalModel(source(folder)).time(LeafOp.build(name, [((4, 8), "bf16")]))
    assert (time.latency_us, [part.leaf.name for part in time.leaves]) == (30.0, [name])


def test_synthetic_rows_mark_the_operator_and_the_sum() -> None:
    answers = Answers({"aten.bmm.default": measured(3.0, synthetic="made up"), **{"aten.mm.default": measured(1.0)}})
    model = EmpiricalModel(answers)
    assert model.time(latent(MLA, 2, DECODE)).synthetic
    assert not model.time(mm(4, 8, 3)).synthetic
    total = model.total([(latent(MLA, 2, DECODE), 1), (mm(4, 8, 3), 1)])
    assert total.synthetic
    assert "SYNTHETIC data" in str(total)


def test_the_json_form_holds_every_leaf_and_miss() -> None:
    total = EmpiricalModel(Answers(LATENT)).total([(latent(MLA, 2, DECODE), 2), (mm(4, 8, 3), 5)])
    document = json.loads(json.dumps(total.to_json()))
    assert document["latency_us"] == 40.0
    assert document["microseconds_by_source"] == {"MEASURED": 12.0, "INTERPOLATED": 28.0}
    assert document["calls_by_source"] == {"MEASURED": 4, "INTERPOLATED": 2, "MISS": 5}
    assert [(item["operator"], item["count"]) for item in document["misses"]] == [("aten.mm.default", 5)]
    first = document["operators"][0]
    assert (first["count"], first["complete"], len(first["leaves"])) == (2, True, 3)
    assert first["leaves"][0]["call"] == "child:tensor_cast.multihead_latent_attention.default#0"


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_is_a_positive_integer(count: Any) -> None:
    with pytest.raises(InvalidValueError, match="count must be an integer >= 1"):
        EmpiricalModel(Answers({})).total([(mm(4, 8, 3), count)])


def test_an_empty_pass_takes_no_time() -> None:
    total = EmpiricalModel(Answers({})).total([])
    assert (total.latency_us, total.complete, total.to_json()["latency_us"]) == (0.0, True, 0.0)


def test_direct_leaves_are_asked_in_canonical_form() -> None:
    direct = LeafOp.build(
        "tensor_cast.sparse_attn_sharedkv.default",
        [((2, 1, 4, 512), "bf16"), ((9, 128, 1, 512), "bf16"), ((4,), "float32"), ((2, 1, 64), "int64")],
        requests=replace(DECODE, block_table_shape=(2, 8)),
    )
    answers = Answers({direct.name: measured(1.0)})
    EmpiricalModel(answers).time(direct)
    assert answers.asked[0].tensor_shapes == ((2, 4, 512), (9, 128, 512), (2, 1, 64))


def test_an_operator_outside_every_mapping_is_still_decomposed() -> None:
    answers = Answers({})
    time = EmpiricalModel(answers).time(indexer(2, DECODE))
    assert len(answers.asked) == len(time.leaves) == 8
    assert time.op.name not in {leaf.name for leaf in answers.asked}
