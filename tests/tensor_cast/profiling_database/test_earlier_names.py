"""Names that users of the existing module import (docs/migrating.md)."""

from __future__ import annotations

from pathlib import Path

from support import mm, row, write_database
from tensor_cast import InterpolatingDataSource, LeafOp, ProfilingDataSource, QueryResult, QuerySource
from tensor_cast.operators.records import OperatorRecord
from tensor_cast.performance_model.profiling_database import (
    DataSourcePerformanceModel,
    MissReason,
    profiling_data_source,
)


def test_tiles_and_tiers() -> None:
    assert profiling_data_source.fractal_nz_to_nd((66, 448, 16, 32)) == [2112, 7168]
    assert profiling_data_source.fractal_nz_to_nd([8, 16]) == [8, 16]
    # 2 servers of 4 cards of 2 dies: ranks 0 and 1 share a card, 0 and 2 a server, 0 and 8 neither
    tiers = [profiling_data_source.get_topology_tier(group, (2, 4, 2), (0, 1, 2)) for group in ((0, 1), (0, 2), (0, 8))]
    assert tiers == [2, 1, 0]


def test_names_of_dtypes_modes_and_children() -> None:
    assert profiling_data_source.DTYPE_MAP["torch.bfloat16"] == "DT_BF16"
    assert "attention_special" in profiling_data_source.SUPPORTED_QUERY_MODES
    child = profiling_data_source.SubKernelSpec("MatMulV2", [[2, 3], [3, 4]], "DT_BF16")
    assert (child.query_mode, child.is_attention, child.tc_input_count) == ("compute", False, None)


class _Own(DataSourcePerformanceModel):
    def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
        return None

    @property
    def last_miss_reason(self) -> str:
        return "csv_not_found"


def test_a_source_needs_lookup_alone() -> None:
    answer = _Own().query(mm(2, 3, 4))
    assert not isinstance(answer, QueryResult)
    assert answer.reason is MissReason.CSV_NOT_FOUND


def test_a_base_that_overrides_is_asked_through_its_own(tmp_path: Path) -> None:
    tables = {"MatMulV2": [row("2,3;3,4", "DT_BF16;DT_BF16", 1.0)]}
    where = write_database(tmp_path, tables, {"aten.mm.default": {"kernel_type": "MatMulV2"}})
    found = QueryResult(7.0, 1.0, QuerySource.MEASURED)

    class ByLookup(ProfilingDataSource):
        def lookup(self, op: LeafOp | OperatorRecord) -> QueryResult | None:
            return found

    class ByQuery(ProfilingDataSource):
        def query(self, op: LeafOp | OperatorRecord) -> QueryResult:
            return found

    for kind in (ByLookup, ByQuery):
        base = kind(where)
        assert base.query(mm(2, 3, 4)) == base.lookup(mm(2, 3, 4)) == found
        assert InterpolatingDataSource(base).query(mm(2, 3, 4)) == found
