"""RFC 7.3, sentence by sentence, over every specialised path at once.

What belongs to one operator is in `specialized/`; here each rule is asked of all of them in the same words.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specialized_cases import CASES, Built, Case, recorded_sparse_row, sum_row
from specialized_rows import (
    DFC,
    DFC_OP,
    INDEXER_OP,
    QBMM_OP,
    QUANT_OP,
    SCATTER_OP,
    SPARSE,
    SPARSE_OP,
    binary,
    data,
    dfc,
    dfc_row,
    differs_in,
    even,
    qbmm,
    quant,
    rejected,
    scatter,
    sparse,
    sparse_row,
)
from support import hit, miss, row, source, write_table
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource
from tensor_cast.performance_model import profiling_database
from tensor_cast.performance_model.profiling_database.data_source import MissReason

PACKAGE = Path(profiling_database.__file__).parent
SHIPPED = PACKAGE / "data" / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend"
AVERAGE, PROFILING = "Average Duration(us)", "Profiling Average Duration(us)"


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def pair(case: Case, tmp_path: Path) -> InterpolatingDataSource:
    """Rows at 100 -> 10 us and 200 -> 20 us."""
    return data(tmp_path, {case.kernel: [case.row(100, 10.0), case.row(200, 20.0)]})


# --- 7.3.2: sources --------------------------------------------------------------------------------------------------


def test_a_coordinate_between_rows_is_interpolated(case: Case, pair: InterpolatingDataSource) -> None:
    """RFC 7.3.2: an interpolated coordinate returns INTERPOLATED; RFC 6.1: what a success records."""
    answer = hit(pair.query(case.leaf(150)))
    assert (answer.latency_us, answer.source, answer.confidence) == (15.0, QuerySource.INTERPOLATED, 0.70)
    details = answer.details
    expected: dict[str, Any] = {
        "kernel_type": case.kernel,
        "method": "linear_1d",
        "interpolation_dim": 1,
        "axes": [case.axis],
        "target": {case.axis: 150.0},
        "axis_boundary": {case.axis: [100.0, 200.0]},
        "candidate_count": 2,
        "fallback_from": "specialized_exact_miss" if case.owned else "exact_miss",
        "interpolation_path": f"{case.path}_1d",
        **case.selector,
        **case.shown,
    }
    assert {key: details[key] for key in expected} == expected
    assert [meta["line"] for meta in details["matched_row_meta"]] == [2, 3]
    assert [meta["latency_us"] for meta in details["matched_row_meta"]] == [10.0, 20.0]


def test_a_measured_coordinate_is_measured(case: Case, pair: InterpolatingDataSource) -> None:
    """RFC 7.3.2: an exact coordinate returns MEASURED with method=exact_coordinate and the matched row."""
    answer = hit(pair.query(case.leaf(200)))
    assert (answer.latency_us, answer.source, answer.confidence) == (20.0, QuerySource.MEASURED, 1.0)
    details = answer.details
    assert (details["method"], details["interpolation_dim"]) == ("exact_coordinate", 0)
    assert details["interpolation_path"] == case.path
    assert details["exact_coordinate_match"] is True
    assert [meta["line"] for meta in details["matched_row_meta"]] == [3]
    assert {key: details[key] for key in {**case.selector, **case.shown}} == {**case.selector, **case.shown}
    assert answer.shape_match_info is not None
    assert answer.shape_match_info.shape_match_rule == "exact_coordinate"


def test_one_row_suffices_for_the_exact_coordinate(case: Case, tmp_path: Path) -> None:
    """RFC 3.3: exact coordinates are checked before interpolation and need no second candidate."""
    answer = hit(data(tmp_path, {case.kernel: [case.row(100, 10.0)]}).query(case.leaf(100)))
    assert (answer.latency_us, answer.source) == (10.0, QuerySource.MEASURED)


def test_a_measured_row_beats_the_line_through_its_neighbours(case: Case, tmp_path: Path) -> None:
    """RFC 2.2: exact first."""
    rows = [case.row(100, 10.0), case.row(150, 77.0), case.row(200, 20.0)]
    assert hit(data(tmp_path, {case.kernel: rows}).query(case.leaf(150))).latency_us == 77.0


def test_the_nearest_rows_bracket_the_target(case: Case, tmp_path: Path) -> None:
    """RFC 2.1: linear interpolation between adjacent measured points, whatever the file order."""
    rows = [case.row(at, latency) for at, latency in ((400, 90.0), (100, 10.0), (200, 30.0), (50, 1.0))]
    answer = hit(data(tmp_path, {case.kernel: rows}).query(case.leaf(150)))
    assert answer.latency_us == 20.0
    assert answer.details["axis_boundary"] == {case.axis: [100.0, 200.0]}
    assert answer.details["candidate_count"] == 4


# --- 6.2 and 7.2: misses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [50, 300])
def test_outside_the_measured_range_there_is_no_answer(case: Case, pair: InterpolatingDataSource, at: int) -> None:
    """RFC 2.2: no extrapolation; RFC 6.2: target axes, regime, attempted kernels, geometry of the last attempt."""
    answer = miss(pair.query(case.leaf(at)))
    assert answer.reason is MissReason.OUTSIDE_AXIS_BOUNDARY
    details = answer.details
    assert details["target_axes"][case.axis] == at
    assert details["target_regime"]["kernel_type"] == case.kernel
    assert details["attempted_kernel_types"][0] == case.kernel
    assert details["measured_range"] == {case.axis: (100.0, 200.0)}
    assert details["interpolation_path"] == case.path
    assert details["attempts"][0]["rejected_rows"] == {}
    geometry = details["attempts"][0]["axis_attempts"][0]
    assert geometry["axes"] == [case.axis]
    assert geometry["measured_range"] == {case.axis: [100.0, 200.0]}
    assert geometry["candidate_count"] == 2
    assert pair.lookup(case.leaf(at)) is None
    assert pair.last_miss_details["miss_code"] == "outside_axis_boundary"
    assert pair.last_miss_details["target_axes"][case.axis] == at


def test_a_single_candidate_is_insufficient(case: Case, tmp_path: Path) -> None:
    """RFC 6.2: insufficient candidates."""
    answer = miss(data(tmp_path, {case.kernel: [case.row(100, 10.0)]}).query(case.leaf(150)))
    assert answer.reason is MissReason.INSUFFICIENT_FILTERED_CANDIDATES
    assert answer.details["attempts"][0]["axis_attempts"][0]["candidate_count"] == 1


@pytest.mark.parametrize(
    ("latency", "reason"),
    [
        ("0", "latency_zero"),
        ("-1", "latency_invalid"),
        ("nan", "latency_invalid"),
        ("x", "latency_invalid"),
        ("", "latency_blank"),
    ],
)
def test_invalid_latency_is_rejected_and_counted(case: Case, tmp_path: Path, latency: str, reason: str) -> None:
    """RFC 6.3: candidate latency must be positive and finite; decision 002.19: zero is no measurement."""
    wrapper = data(tmp_path, {case.kernel: [case.row(100, 10.0), case.row(150, latency), case.row(200, 20.0)]})
    assert hit(wrapper.query(case.leaf(150))).source is QuerySource.INTERPOLATED
    assert rejected(wrapper.query(case.leaf(300))) == {reason: 1}


def test_a_missing_table_is_named(case: Case, tmp_path: Path) -> None:
    """RFC 6.2: missing CSV."""
    answer = miss(data(tmp_path, {}).query(case.leaf(150)))
    assert answer.reason is MissReason.CSV_NOT_FOUND
    assert answer.details["attempted_kernel_types"][0] == case.kernel
    assert {key: answer.details[key] for key in case.selector} == case.selector


def test_an_empty_leaf_is_no_target(case: Case, pair: InterpolatingDataSource) -> None:
    """RFC 6.2: unavailable target or required field."""
    answer = miss(pair.query(LeafOp.build(case.operator, [])))
    assert answer.details["attempts"][0]["kernel_type"] == case.kernel
    assert "target_axes" not in answer.details


# --- 7.3.3: the ceiling ----------------------------------------------------------------------------------------------


def test_a_ceiling_of_zero_leaves_exact_matches_alone(case: Case, tmp_path: Path) -> None:
    """RFC 7.3.3: max_interpolation_dim blocks dimensions above the ceiling."""
    rows = [case.row(100, 10.0), case.row(200, 20.0)]
    closed = data(tmp_path, {case.kernel: rows}, policies={case.kernel: {"max_interpolation_dim": 0}})
    assert miss(closed.query(case.leaf(150))).reason is MissReason.INTERPOLATION_DIM_DISABLED
    assert hit(closed.query(case.leaf(100))).source is QuerySource.MEASURED


@pytest.mark.parametrize("ceiling", [1, 2, 3])
def test_a_higher_ceiling_changes_nothing_in_one_dimension(case: Case, tmp_path: Path, ceiling: int) -> None:
    """RFC 7.3.3: without changing low-dimension-first order."""
    rows = [case.row(100, 10.0), case.row(200, 20.0)]
    policies = {case.kernel: {"max_interpolation_dim": ceiling}}
    answer = hit(data(tmp_path, {case.kernel: rows}, policies=policies).query(case.leaf(150)))
    assert (answer.latency_us, answer.details["axes"]) == (15.0, [case.axis])


def test_the_policy_of_one_kernel_is_not_anothers(case: Case, tmp_path: Path) -> None:
    """RFC 5: kernel_overrides.<kernel> narrows that kernel."""
    rows = [case.row(100, 10.0), case.row(200, 20.0)]
    wrapper = data(tmp_path, {case.kernel: rows}, policies={"Other": {"max_interpolation_dim": 0}})
    assert hit(wrapper.query(case.leaf(150))).latency_us == 15.0


# --- 7.3.4: no ordinary compute --------------------------------------------------------------------------


def test_ordinary_compute_never_interpolates_for_a_selected_path(case: Case, tmp_path: Path) -> None:
    """RFC 7.3.4: no false generic-compute hit; rows that hold the leaf's very tensors give the path no candidate."""
    leaf = case.leaf(150)
    shapes = ";".join(",".join(str(dim) for dim in spec.shape) for spec in leaf.tensors)
    names = {"bfloat16": "DT_BF16", "float32": "FLOAT"}
    dtypes = ";".join(names.get(spec.dtype, spec.dtype.upper()) for spec in leaf.tensors)
    rows = [row(shapes, dtypes, 1.0)]
    wrapper = data(tmp_path, {case.kernel: rows})
    answer = miss(wrapper.query(leaf))
    assert answer.reason is MissReason.REGIME_KEY_UNMATCHED
    assert answer.details["interpolation_path"] == case.path


# --- 7.3.5: isolation ------------------------------------------------------------------------------------------------


def test_rows_of_another_regime_neither_answer_nor_bend_the_line(case: Case, tmp_path: Path) -> None:
    """RFC 7.3.5: candidates do not cross incompatible regimes (one field per path; all of them in `specialized/`)."""
    others = [case.row_of_other_regime(at, 900.0) for at in (100, 150, 200)]
    mixed = data(tmp_path / "mixed", {case.kernel: [*others, case.row(100, 10.0), case.row(200, 20.0)]})
    assert hit(mixed.query(case.leaf(150))).latency_us == 15.0
    assert hit(mixed.query(case.leaf(100))).latency_us == 10.0
    alone = data(tmp_path / "alone", {case.kernel: others})
    for at in (100, 150):
        answer = miss(alone.query(case.leaf(at)))
        assert differs_in(answer) == case.fields
        nearest = answer.details["attempts"][0]["nearest_regime_differs_in"][case.fields[0]]
        assert set(nearest) == {"asked", "measured"}


def test_latency_columns_are_never_mixed(case: Case, tmp_path: Path) -> None:
    """RFC 6.3: the selected latency column and fallback columns do not share one interpolation."""
    rows = [
        case.row(100, None, **{AVERAGE: 10, PROFILING: ""}),
        case.row(150, None, **{AVERAGE: "", PROFILING: 1000}),
        case.row(200, None, **{AVERAGE: 30, PROFILING: ""}),
        case.row(250, None, **{AVERAGE: "", PROFILING: 3000}),
    ]
    wrapper = data(tmp_path, {case.kernel: rows})
    selected = hit(wrapper.query(case.leaf(176)))
    assert selected.latency_us == pytest.approx(10 + 20 * 76 / 100)
    assert selected.details["latency_source_attempt"] == "selected_only"
    fallback = hit(wrapper.query(case.leaf(224)))
    assert fallback.latency_us == pytest.approx(1000 + 2000 * 74 / 100)
    assert fallback.details["latency_source_attempt"] == "fallback_only"


def test_answers_are_stable(case: Case, pair: InterpolatingDataSource) -> None:
    """RFC 7.3.1: data gaps produce stable misses; the same question has the same answer, in any order."""
    questions = [case.leaf(at) for at in (150, 300, 100)]
    first = [pair.query(leaf) for leaf in questions]
    assert [pair.query(leaf) for leaf in reversed(questions)] == first[::-1]


# --- 7.3.1: shipped mappings reach their builders --------------------------------------------------------------------


def _dispatch(operator: str, at: int) -> LeafOp:
    return dfc(at, operator)


def _binary(operator: str, at: int) -> LeafOp:
    return binary((at, 64), (at, 64), (at, 64), operator=operator)


OPERATORS: dict[str, Callable[[int], LeafOp]] = {
    "tensor_cast.dispatch_ffn_combine.default": lambda at: dfc(at, "tensor_cast.dispatch_ffn_combine.default"),
    DFC_OP: dfc,
    **{
        f"tensor_cast.dispatch_ffn_combine_{kind}.default": (
            partial(_dispatch, f"tensor_cast.dispatch_ffn_combine_{kind}.default")
        )
        for kind in ("quant_int4", "fp8", "mxfp4")
    },
    **{f"aten.{name}.Tensor": (partial(_binary, f"aten.{name}.Tensor")) for name in ("add", "mul", "div")},
    INDEXER_OP: CASES["lightning_indexer"].leaf,
    SPARSE_OP: CASES["sparse_flash_attention"].leaf,
    QUANT_OP: CASES["dynamic_quant"].leaf,
    "tensor_cast.dynamic_quantize_asymmetric.default": lambda at: quant(
        at, 64, scales=[(at, 1), (at, 1)], operator="tensor_cast.dynamic_quantize_asymmetric.default"
    ),
    "tensor_cast.dynamic_quantize_mxfp4.default": lambda at: quant(
        at, 64, scales=[(2,)], operator="tensor_cast.dynamic_quantize_mxfp4.default"
    ),
    QBMM_OP: CASES["quantized_matmul"].leaf,
    "tensor_cast.static_quant_linear_int4.default": lambda at: qbmm(
        at, 64, 128, operator="tensor_cast.static_quant_linear_int4.default", weight=(32, 128)
    ),
    "tensor_cast.fp8_linear.default": lambda at: qbmm(
        at, 64, 128, operator="tensor_cast.fp8_linear.default", dtype="fp8"
    ),
    "tensor_cast.mxfp4_linear.default": lambda at: qbmm(
        at, 64, 128, operator="tensor_cast.mxfp4_linear.default", dtype="mxfp4"
    ),
    SCATTER_OP: scatter,
}
TABLES: dict[str, Callable[[int, float], Built]] = {
    **{item.kernel: item.row for item in CASES.values()},
    **dict.fromkeys(("Mul", "Div", "RealDiv"), sum_row),
}
UNANSWERED = {
    "tensor_cast.dispatch_ffn_combine.default": "regime_key_unmatched",
    "tensor_cast.dispatch_ffn_combine_quant_int4.default": "regime_key_unmatched",
    "tensor_cast.dispatch_ffn_combine_fp8.default": "regime_key_unmatched",
    "tensor_cast.dispatch_ffn_combine_mxfp4.default": "regime_key_unmatched",
    "tensor_cast.dynamic_quantize_asymmetric.default": "regime_key_unmatched",
    "tensor_cast.dynamic_quantize_mxfp4.default": "csv_not_found",
    "tensor_cast.static_quant_linear_int4.default": "regime_key_unmatched",
    "tensor_cast.fp8_linear.default": "regime_key_unmatched",
    "tensor_cast.mxfp4_linear.default": "regime_key_unmatched",
}


@pytest.fixture(params=["0.13", "0.15", "0.18"])
def shipped(request: pytest.FixtureRequest, tmp_path: Path) -> InterpolatingDataSource:
    """A shipped mapping over two rows per kernel: W8A8, per-token, INT8."""
    (folder,) = SHIPPED.glob(f"vllm{request.param}*")
    shutil.copy(folder / "op_mapping.yaml", tmp_path)
    for kernel, build in TABLES.items():
        write_table(tmp_path, kernel, [build(100, 10.0), build(200, 20.0)])
    return source(tmp_path, expert_parallel_size=16)


def test_every_selector_of_a_shipped_mapping_reaches_its_builder(shipped: InterpolatingDataSource) -> None:
    """RFC 7.3.1: every implemented leaf mapping that declares a Phase 2 selector reaches its target builder."""
    selected = [
        name
        for name, entry in shipped.database.mapping.operators.items()
        if entry.compute_subcategory or (entry.query_mode and entry.query_mode != "attention_special")
    ]
    assert sorted(set(selected) - set(OPERATORS)) == []
    for name in selected:
        answer = shipped.query(OPERATORS[name](150))
        if name in UNANSWERED:
            assert miss(answer).code == UNANSWERED[name], name
            assert miss(answer) == shipped.query(OPERATORS[name](150))
        else:
            assert hit(answer).latency_us == 15.0, name
            assert hit(answer).source is QuerySource.INTERPOLATED


def test_a_shipped_mapping_without_tables_misses_everywhere(case: Case) -> None:
    """RFC 7.3.1: an entry wired without a CSV stably misses; nothing is borrowed from another version."""
    for folder in sorted(SHIPPED.glob("vllm*")):
        wrapper = source(folder, expert_parallel_size=16)
        if case.operator in wrapper.database.mapping.operators:
            assert miss(wrapper.query(case.leaf(150))).reason is MissReason.CSV_NOT_FOUND


# --- 7.3.6 to 7.3.8 --------------------------------------------------------------------------------------------------


def test_v015_rows_without_an_ep_column_miss_for_every_subtype(tmp_path: Path) -> None:
    """RFC 7.3.6: v0.15 and plain, INT4, FP8 and MXFP4 paths return stable misses."""
    names = [name for name in OPERATORS if "dispatch_ffn_combine" in name]
    entries = {name: {"kernel_type": DFC, "query_mode": "moe_fused", "tc_input_count": 1} for name in names}
    wrapper = data(tmp_path, {DFC: [dfc_row(at, float(at), ep=None) for at in (100, 150, 200)]}, entries)
    assert len(names) == 5
    for name in names:
        answer = miss(wrapper.query(OPERATORS[name](150)))
        assert answer.code == "regime_key_unmatched"
        assert rejected(answer) == {"ep_size_missing": 3}


def test_sparse_attention_stays_closed_until_both_sides_agree(tmp_path: Path) -> None:
    """RFC 7.3.7: leaf, sparse phase and grouping equivalently extractable from target and CSV, or no answer."""
    complete = [recorded_sparse_row(at, float(at)) for at in (100, 200)]
    known = sparse(150, requests=even(2, 75, 3000))
    assert hit(data(tmp_path / "both", {SPARSE: complete}).query(known)).latency_us == 150.0
    blind_rows = [sparse_row(at, float(at)) for at in (100, 150, 200)]
    assert not data(tmp_path / "rows", {SPARSE: blind_rows}).query(known)
    assert not data(tmp_path / "leaf", {SPARSE: complete}).query(sparse(150))


def test_the_interpolation_modules_know_nothing_of_decomposition(tmp_path: Path) -> None:
    """RFC 7.3.8: Phase 2 performs neither decomposition nor multi-operator aggregation."""
    modules = [
        *(PACKAGE / "paths").glob("*.py"),
        *(PACKAGE / f"{name}.py" for name in ("interpolating_data_source", "engine", "candidates", "diagnostics")),
    ]
    assert len(modules) > 15
    for module in modules:
        imported = [
            name
            for node in ast.walk(ast.parse(module.read_text()))
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
        ]
        assert not [name for name in imported if "decompos" in name or "composite" in name], module.name


def test_a_child_of_a_decomposed_operator_is_a_leaf_like_any_other(case: Case, pair: InterpolatingDataSource) -> None:
    """RFC 7.3.8: upstream passes independently queryable leaf operators; their origin changes nothing."""
    direct = case.leaf(150)
    child = LeafOp(
        direct.name, direct.inputs, direct.outputs, direct.attrs, direct.requests, "child:tensor_cast.parent.default#2"
    )
    assert hit(pair.query(child)).latency_us == hit(pair.query(direct)).latency_us == 15.0
    assert hit(pair.query(child)).details == hit(pair.query(direct)).details
