"""One number, whoever is asked: the base, the wrapper, the switch and the empirical model (RFC 3.1, 8.2, 8.4).

A base's exact answer is the wrapper's and the empirical model's; with the switch off it is the base's own.  Where the
wrapper owns exact matches the switch gives what the base has.  Asked of every row of every table that a bundled mapping
can reach, of rows of its own where the demo has none, and of places between the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castq.rfc.own_rows import own_database
from castq.rfc.rows import load_rows
from column_leaves import INT4, NVFP4, PACKED, REAL_ROWS, leaf, linear, tensors
from owners import Owners
from row_questions import Question, measured, question, read_rows, spread
from support import comm_table, row, write_table
from tensor_cast import LeafOp, Miss, QueryResult
from tensor_cast.demo import write_demo_database
from tensor_cast.errors import InvalidValueError
from tensor_cast.performance_model.profiling_database import open_database
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry
from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

VERSIONS = ("0.13", "0.15", "0.18")
MODES = ("compatible", "strict")
# what no row of the demo can be: low precisions; composites whose children are no list
LOW = ("fp8", "mxfp4", "int4", "grouped_matmul_quant", "dispatch_ffn_combine")
BIASED = ("addmm",)  # the demo has no product with a bias
DECOMPOSED = ("mlapo", "multihead_latent_attention", "mla_sparse_attention")
ROWS = 8  # of each table, evenly from the first to the last
Asked = tuple[OperatorEntry, Question]


class Mapped:
    """A bundled mapping over the demo's tables, with rows of its own for kernels that the demo has not."""

    def __init__(self, database: ProfilingDatabase) -> None:
        self.database = database
        for entry in database.mapping.operators.values():
            if entry.kernels and not any(self.table(kernel) for kernel in entry.kernels):
                self._measure(entry)
        self._owners: dict[tuple[str, int | None], Owners] = {}
        self.asked = tuple(self._asked())

    def table(self, kernel: str) -> Path | None:
        folders = (self.database.path / (self.database.mapping.communication_data_ref or "."), self.database.path)
        return next((path for folder in folders if (path := folder / f"{kernel}.csv").exists()), None)

    def owners(self, matching: str, ep_size: int | None) -> Owners:
        key = (matching, ep_size)
        if key not in self._owners:
            self._owners[key] = Owners(self.database, *key)
        return self._owners[key]

    def _measure(self, entry: OperatorEntry) -> None:
        """Two rows of the entry's first kernel: one matrix, or a matrix and the weights of four experts."""
        kernel = entry.kernels[0]
        if entry.category == "communication":
            comm_table(self.database.path, kernel, [(2**n, 2, 2, float(n)) for n in range(8, 12)])
            return
        weights = ";4,64,32" if kernel.startswith("GroupedMatmul") else ""
        dtypes = "DT_BF16;DT_BF16" if weights else "DT_BF16"
        made = ["INT8;DT_FLOAT8_E8M0", "{},64;2"] if kernel == "DynamicBlockQuant" else ["DT_BF16", "{},64"]
        rows = [
            row(f"{m},64{weights}", dtypes, float(m), outputs=made[1].format(m), output_dtypes=made[0])
            for m in (16, 64)
        ]
        write_table(self.database.path, kernel, rows)

    def _asked(self) -> Iterator[Asked]:
        for entry in self.database.mapping.operators.values():
            if entry.zero_cost or entry.accepted_miss:
                yield entry, Question(LeafOp.build(entry.name, [((16, 64), "bf16")]))
                continue
            for found in self._rows(entry):
                asked = question(entry, found)
                if asked is not None:
                    yield entry, _with_ranks(entry, asked)

    def _rows(self, entry: OperatorEntry) -> Iterator[Mapping[str, str]]:
        """Some rows of each kernel; a composite's first one holds its products, of its own operands only."""
        if entry.composite and any(part in entry.name for part in LOW):
            return
        for kernel in entry.kernels or entry.sub_kernels[:1]:
            table = self.table(kernel)
            rows = [] if table is None else read_rows(table)
            yield from spread([found for found in rows if entry.category == "communication" or measured(found)], ROWS)


def _with_ranks(entry: OperatorEntry, asked: Question) -> Question:
    """A product with its collective names the ranks."""
    if not entry.composite:
        return asked
    one = asked.leaf
    return Question(LeafOp(one.name, one.inputs, one.outputs, (("rank", 0), ("rank_group", (0, 1)))), asked.ep_size)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapped]:
    report = write_demo_database(tmp_path_factory.mktemp("owners"), noise=0.05, versions=VERSIONS)
    return {written.version: Mapped(open_database(written.path)) for written in report.databases}


@pytest.mark.parametrize("matching", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_of_a_bundled_mapping_has_one_owner(mapped: dict[str, Mapped], version: str, matching: str) -> None:
    """RFC 3.1: one owner of each exact match; RFC 8.2: the switch hands every question to the base."""
    found = mapped[version]
    disagreements = [
        f"{entry.name}: {said}"
        for entry, asked in found.asked
        for said in found.owners(matching, asked.ep_size).disagreements(asked.leaf)
    ]
    assert disagreements == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_operator_of_a_bundled_mapping_was_asked_and_answered(mapped: dict[str, Mapped], version: str) -> None:
    found = mapped[version]
    answered = {
        entry.name
        for entry, asked in found.asked
        if isinstance(found.owners("strict", asked.ep_size).wrapper.query(asked.leaf), QueryResult)
    }
    left = set(found.database.mapping.operators) - answered
    assert sorted(name for name in left if not any(part in name for part in (*LOW, *BIASED, *DECOMPOSED))) == []


@pytest.mark.parametrize("matching", MODES)
def test_the_questions_of_the_rfc_have_one_owner(mapped: dict[str, Mapped], tmp_path: Path, matching: str) -> None:
    """RFC 8.4: base and wrapper consume one descriptor; composites and low precisions too, on rows of their own."""
    disagreements = []
    for found in load_rows().rows:
        for version in VERSIONS:
            for probe in found.probes:
                owners = mapped[version].owners(matching, probe.ep_size)
                disagreements += [f"{version}: {said}" for said in owners.disagreements(probe.leaf)]
        if found.own is not None:
            database = own_database(found.own, mapped["0.18"].database, tmp_path / found.operator)
            for probe in found.own.probes:
                disagreements += Owners(database, matching, probe.ep_size).disagreements(probe.leaf)
    assert disagreements == []


AXES = ("M", "K", "N", "axis_0", "axis_1", "tokens", "seq", "batch", "heads", "cache_blocks")
SIZES = st.one_of(st.integers(1, 9000), st.sampled_from([1, 2, 16, 64, 96, 128, 1000, 1024, 4096, 5120, 7168]))


def moved(path: OperatorPath, op: LeafOp, entry: OperatorEntry, places: Mapping[str, int]) -> LeafOp | None:
    try:
        return path.moved(op, places, entry)
    except InvalidValueError:
        return None


def elsewhere(data: st.DataObject, owners: Owners, op: LeafOp, entry: OperatorEntry, axes: Sequence[str]) -> LeafOp:
    """The operator at another place on one or two of its axes; where it is, if it cannot go there."""
    path = owners.path(entry)
    if isinstance(path, Miss) or entry.zero_cost or entry.accepted_miss:
        return op
    names = [axis for axis in axes if moved(path, op, entry, {axis: 64}) is not None]
    places = data.draw(st.dictionaries(st.sampled_from(names), SIZES, min_size=1, max_size=2)) if names else {}
    return moved(path, op, entry, places) or op


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_places_between_the_rows_have_one_owner(mapped: dict[str, Mapped], data: st.DataObject) -> None:
    """The question of a row, moved along one of its axes or two."""
    found = mapped[data.draw(st.sampled_from(VERSIONS))]
    matching = data.draw(st.sampled_from(MODES))
    asked = found.asked
    name = data.draw(st.sampled_from(sorted({entry.name for entry, _ in asked})))
    entry, at = data.draw(st.sampled_from([one for one in asked if one[0].name == name]))
    owners = found.owners(matching, at.ep_size)
    assert list(owners.disagreements(elsewhere(data, owners, at.leaf, entry, AXES))) == []


# --- GPU tables ------------------------------------------------------------------------------------------------------

A100, B200, GB300 = "a100_sxm/trtllm/1.0.0", "b200_sxm/vllm/0.24.0", "gb300/sglang/0.5.10"
SCALE: tuple[list[int], str] = ([], "float32")


def _gpu(op: str, *pairs: tuple[list[int], str], **more: Any) -> LeafOp:
    return leaf(op, tensors(*pairs), **more)


MORE: Sequence[tuple[str, LeafOp]] = (
    (A100, _gpu("tensor_cast.static_quant_linear.default", ([32, 4096], "int8"), ([4096, 4096], "int8"), SCALE)),
    (A100, _gpu(INT4, ([32, 4096], "bfloat16"), ([2048, 4096], "int4"), SCALE)),
    (B200, linear(NVFP4, [256, 4096], [4096, 8192], PACKED)),
    (B200, _gpu("tensor_cast.quantize.default", ([64, 4096], "bfloat16"), SCALE, attrs={"out_dtype": "fp8"})),
    (GB300, _gpu("tensor_cast.mxfp4_linear.default", ([64, 4096], "float4"), ([4096, 4096], "float4"), SCALE, SCALE)),
)


@cache
def gpu(name: str) -> Owners:
    return Owners(open_database(name))


@cache
def gpu_questions() -> Mapping[str, list[LeafOp]]:
    """Rows of the real tables, the RFC's questions and what is left of the operators, by database."""
    found: dict[str, list[LeafOp]] = {}
    for name, op in ((name, op) for name, op, *_ in REAL_ROWS):
        found.setdefault(name, []).append(op)
    for name, op in MORE:
        found.setdefault(name, []).append(op)
    for name in found:
        found[name] += [one.real.leaf for one in load_rows().rows if one.real is not None]
    return found


GPU_AXES = ("M", "K", "N", "isl", "kv", "step", "batch_size", "num_heads", "num_tokens", "tokens")
needs_gpu = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the GPU tables are not installed")


@needs_gpu
def test_gpu_tables_have_one_owner() -> None:
    disagreements = [
        f"{name}: {said}" for name, ops in gpu_questions().items() for op in ops for said in gpu(name).disagreements(op)
    ]
    assert disagreements == []


@needs_gpu
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_places_between_gpu_rows_have_one_owner(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(gpu_questions())))
    op = data.draw(st.sampled_from(gpu_questions()[name]))
    owners = gpu(name)
    entry = owners.base.entry(op)
    if entry is not None:
        assert list(owners.disagreements(elsewhere(data, owners, op, entry, GPU_AXES))) == []
