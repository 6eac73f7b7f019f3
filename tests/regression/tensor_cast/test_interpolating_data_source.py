"""The wrapper's dispatch: exact first, PARTIAL, the disable switch, thread isolation, repeated questions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from support import base_source, hit, miss, mm, named, row, source, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, QuerySource, Requests

BF16 = "DT_BF16;DT_BF16"
MM = {"aten.mm.default": {"kernel_type": "MatMulV2"}}
ROWS = [row("100,8;8,4", BF16, 10.0), row("200,8;8,4", BF16, 30.0)]


def test_complete_base_results_are_returned_unchanged(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": ROWS}, MM)
    wrapper = source(folder)
    assert wrapper.query(mm(100, 8, 4)) == wrapper.base.query(mm(100, 8, 4))
    assert hit(wrapper.query(mm(100, 8, 4))).source is QuerySource.MEASURED


def test_the_switch_hands_every_question_to_the_base(tmp_path: Path) -> None:
    folder = write_database(tmp_path, {"MatMulV2": ROWS}, MM)
    base = base_source(folder)
    disabled = InterpolatingDataSource(base, disable_interpolation=True)
    assert hit(disabled.query(mm(100, 8, 4))).latency_us == 10.0
    assert disabled.query(mm(150, 8, 4)) == base.query(mm(150, 8, 4))
    assert disabled.lookup(mm(150, 8, 4)) is None
    assert disabled.last_miss_reason == "shape_mismatch"
    assert hit(InterpolatingDataSource(base).query(mm(150, 8, 4))).latency_us == 20.0


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (None, "wrapper_unmapped:a.b.c"),
        ({"kernel_type": "K", "compute_subcategory": "nonsense"}, "compute_subcategory_unknown:nonsense"),
        ({"category": "communication", "kernel_type": "hcom_x_"}, "invalid_args"),
        ({"composite": True, "sub_kernels": []}, "no_sub_kernels"),
        ({"notes": "nothing"}, "compute_kernel_type_missing:a.b.c"),
    ],
)
def test_each_refusal_of_the_dispatch_has_its_reason(tmp_path: Path, entry: dict[str, Any] | None, code: str) -> None:
    folder = write_database(tmp_path, {}, {} if entry is None else {"a.b.c": entry})
    assert miss(source(folder).query(LeafOp.build("a.b.c", [((4, 8), "bf16")]))).code == code


def test_an_unknown_subcategory_still_allows_the_base_exact_row(tmp_path: Path) -> None:
    """Decision 002.12."""
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV2", "compute_subcategory": "nonsense"}}
    folder = write_database(tmp_path, {"MatMulV2": ROWS}, mapping)
    wrapper = source(folder)
    assert hit(wrapper.query(mm(100, 8, 4))).latency_us == 10.0
    assert miss(wrapper.query(mm(150, 8, 4))).code == "compute_subcategory_unknown:nonsense"


def test_zero_cost_and_accepted_miss_come_before_any_path(tmp_path: Path) -> None:
    """Decision 002.3."""
    mapping: dict[str, dict[str, Any]] = {
        "a.zero.x": {"zero_cost": True, "kernel_type": "Cast", "query_mode": "elementwise"},
        "a.accepted.x": {"accepted_miss": "absorbed", "kernel_type": "Cast", "compute_subcategory": "compute_scale"},
    }
    folder = write_database(tmp_path, {}, mapping)
    for name in mapping:
        answer = hit(source(folder).query(LeafOp.build(name, [((4,), "bf16")], [((4,), "bf16")])))
        assert (answer.latency_us, answer.source) == (0.0, QuerySource.MEASURED)


def mla() -> tuple[LeafOp, dict[str, Any]]:
    shapes: list[Any] = [
        ((2, 4, 192), "bf16"),
        ((9, 128, 576), "bf16"),
        ((2, 8), "int32"),
        ((3,), "int32"),
        ((2,), "int32"),
        ((2,), "int32"),
        ((4, 128, 512), "bf16"),
        ((4, 512, 128), "bf16"),
        ((512, 1024), "bf16"),
    ]
    name = "tensor_cast.multihead_latent_attention.default"
    leaf = LeafOp.build(name, shapes, requests=Requests((1, 1), (500, 500)))
    return leaf, {name: {"composite": True, "decomposer": True}}


def test_a_partial_whose_interpolation_fails_is_none_for_lookup_and_kept_by_query(tmp_path: Path) -> None:
    """Decision 002.1: a partial sum can never pass for a whole."""
    leaf, mapping = mla()
    tables = {
        "BatchMatMulV2": [row("4,2,128;4,128,512", BF16, 1.0)],
        "FusedInferAttentionScore": [
            row("2,4,512;9,128,512", BF16, 20.0, **named({"Runtime avg_seq_len": 500, "Runtime sparse_mode": 0}))
        ],
    }
    wrapper = source(write_database(tmp_path, tables, mapping))
    assert wrapper.lookup(leaf) is None
    answer = miss(wrapper.query(leaf))
    assert answer.partial is not None
    assert answer.partial.latency_us == 21.0
    assert answer.partial.details["hit_kernels"] == ["BatchMatMulV2", "FusedInferAttentionScore"]
    assert answer.partial.details["missed_kernels"] == ["TransposeBatchMatMul"]
    assert answer.details["fallback_from"] == "partial"
    assert "partial sum 21 us" in str(answer)


def test_a_repeated_question_is_the_same_object(tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": ROWS}, MM))
    assert wrapper.query(mm(150, 8, 4)) is wrapper.query(mm(150, 8, 4))


def test_a_slice_is_triangulated_once(tmp_path: Path) -> None:
    rows = [row(f"{m},{k};{k},4", BF16, 1.0 + m + k) for m in (100, 200, 300) for k in (8, 16, 24)]
    wrapper = source(write_database(tmp_path, {"MatMulV2": rows}, MM))
    for m in range(110, 190):
        assert hit(wrapper.query(mm(m, 12, 4))).details["interpolation_dim"] == 2
    table = wrapper.database.table("MatMulV2")
    assert table is not None
    entry = wrapper.base.entry(mm(1, 1, 1))
    assert entry is not None
    from tensor_cast.performance_model.profiling_database.dispatch import path_for
    from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

    path = path_for(entry)
    assert isinstance(path, OperatorPath)
    (group,) = wrapper.engine.index(path, table, entry).groups
    assert group.triangulations == 1


def test_threads_never_see_each_others_answers(tmp_path: Path) -> None:
    wrapper = source(write_database(tmp_path, {"MatMulV2": ROWS}, MM))
    wrong: list[str] = []
    gate = threading.Barrier(8)

    def ask(index: int) -> None:
        gate.wait()
        for step in range(200):
            m = 101 + 2 * ((index * 13 + step) % 49)  # odd, so that no padding rule applies
            found = wrapper.lookup(mm(m, 8, 4))
            if found is None or found.latency_us != pytest.approx(10 + 20 * (m - 100) / 100):
                wrong.append(f"hit {m}")
            outside = wrapper.lookup(mm(1000 + index, 8, 4))
            if outside is not None or wrapper.last_miss_details["target_axes"]["M"] != 1000 + index:
                wrong.append(f"miss {index}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
