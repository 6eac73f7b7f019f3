"""GPU tables: hand-made parquet files for every trap, and a few rows of the real ones read independently."""

from __future__ import annotations

import importlib.util
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tensor_cast import InterpolatingDataSource, LeafOp, Miss, ProfilingDataSource, QueryResult
from tensor_cast.errors import DataFileError, InvalidValueError, UnknownNameError
from tensor_cast.performance_model.profiling_database.catalogue import open_database
from tensor_cast.performance_model.profiling_database.columns import aiconfigurator
from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import (
    GpuTables,
    find_gpu_databases,
)
from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
from tensor_cast.performance_model.profiling_database.evidence import row_details
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import load_op_mapping
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def write(
    root: Path, table: str, columns: dict[str, list[Any]], *, where: str = "gpu1/{}/vllm/1.0", **types: Any
) -> Path:
    """A parquet file `<family>/<table>` of `gpu1/vllm/1.0`."""
    family, _, stem = table.partition("/")
    folder = root / where.format(family)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: pa.array(values, type=types.get(name)) for name, values in columns.items()}
    path = folder / f"{stem}.parquet"
    pq.write_table(pa.table(arrays), path)
    return path


def gemm(**changes: list[Any]) -> dict[str, list[Any]]:
    """Two rows of a gemm table: M=1 in 0.002 ms and M=2 in 0.003 ms."""
    rows: dict[str, list[Any]] = {
        "framework": ["VLLM", "vLLM"],
        "version": ["1.0", "1.0"],
        "kernel_source": ["a", "a"],
        "gemm_dtype": ["bfloat16", "bfloat16"],
        "m": [1, 2],
        "n": [64, 64],
        "k": [32, 32],
        "latency": [0.002, 0.003],
    }
    count = max((len(values) for values in changes.values()), default=2)
    return {name: changes.get(name, [values[0]] * count if count != 2 else values) for name, values in rows.items()}


def attention(**changes: list[Any]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {
        "kernel_source": ["fa3"],
        "batch_size": [4],
        "isl": [1],
        "step": [127],
        "num_heads": [8],
        "num_key_value_heads": [2],
        "head_dim": [128],
        "window_size": [0],
        "beam_width": [1],
        "attn_dtype": ["bfloat16"],
        "kv_cache_dtype": ["fp8"],
        "latency": [0.010],
    }
    count = max((len(values) for values in changes.values()), default=1)
    return {name: changes.get(name, values * count) for name, values in rows.items()}


def open_tables(root: Path) -> ProfilingDatabase:
    return open_database(f"{root}::gpu1/vllm/1.0")


def loaded(root: Path, kernel: str) -> ColumnTable:
    table = open_tables(root).table(kernel)
    assert isinstance(table, ColumnTable)
    return table


def test_milliseconds_become_microseconds_once(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm())
    table = loaded(tmp_path, "QuantMatmul")
    assert table.latency_us.tolist() == [2.0, 3.0]
    assert table.axes["M"].tolist() == [1.0, 2.0]
    assert table.axes["K"].tolist() == [32.0, 32.0]
    assert table.axes["N"].tolist() == [64.0, 64.0]
    assert table.fact_names == ("quant",)
    assert table.regime_keys == (("bfloat16",),)
    assert row_details(table.row_ref(1)) == {
        "file": "gpu1/gemm/vllm/1.0/gemm_perf.parquet",
        "row": 1,
        "latency_us": 3.0,
        "latency_column": "latency",
        "kernel_variant": "a",
    }


def test_large_strings_read_like_strings(tmp_path: Path) -> None:
    texts = {"gemm_dtype": pa.large_string(), "kernel_source": pa.large_string()}
    write(tmp_path, "gemm/gemm_perf", gemm(), **texts)
    large = loaded(tmp_path, "QuantMatmul")
    write(tmp_path, "gemm/gemm_perf", gemm(), gemm_dtype=pa.dictionary(pa.int32(), pa.string()))
    assert large.regime_keys == loaded(tmp_path, "QuantMatmul").regime_keys == (("bfloat16",),)
    assert large.variants == ("a",)


def test_unusable_rows_are_counted_by_reason(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    columns = gemm(
        m=[1, 2, 3, 4, 5, None, -6, 8, 9],
        latency=[0.001, 0.0, -1.0, nan, inf, 0.001, 0.001, None, 0.001],
        gemm_dtype=["fp8"] * 8 + [None],
    )
    write(tmp_path, "gemm/gemm_perf", columns)
    report = open_tables(tmp_path).report("QuantMatmul")
    assert dict(report.rejected) == {
        "coordinate_invalid": 2,
        "regime_missing": 1,
        "latency_zero": 1,
        "latency_invalid": 4,
    }
    assert report.examples["latency_zero"] == "gemm_perf.parquet:1"
    assert (report.rows_read, report.rows_usable, report.status) == (9, 1, "ok")


def test_a_table_without_usable_rows_is_empty(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(latency=[0.0, 0.0]))
    database = open_tables(tmp_path)
    assert database.table("QuantMatmul") is None
    assert database.report("QuantMatmul").status == "empty"


def test_rows_outside_the_layout_are_filtered(tmp_path: Path) -> None:
    write(tmp_path, "attention/context_attention_perf", attention(isl=[64, 64], step=[0, 128]))
    report = open_tables(tmp_path).report("PrefillAttention")
    assert dict(report.rejected) == {"filtered_out": 1}
    assert report.rows_usable == 1


def test_a_missing_window_reads_as_full_attention(tmp_path: Path) -> None:
    columns = attention()
    del columns["window_size"]
    write(tmp_path, "attention/generation_attention_perf", columns)
    table = loaded(tmp_path, "DecodeAttention")
    assert dict(zip(table.fact_names, table.regime_keys[0], strict=True)) == {
        "dtype": "bfloat16",
        "kv_dtype": "fp8",
        "head_dim": 128,
        "window": 0,
        "kv_heads": 2,
    }
    assert table.axes["kv"].tolist() == [128.0]
    assert table.constants == {"phase": "decode"}


def test_equal_head_counts_are_one_class(tmp_path: Path) -> None:
    columns = attention(num_heads=[2, 8, 8], num_key_value_heads=[2, 8, 2])
    write(tmp_path, "attention/generation_attention_perf", columns)
    table = loaded(tmp_path, "DecodeAttention")
    place = table.fact_names.index("kv_heads")
    assert [table.regime_keys[code][place] for code in table.regime_codes] == ["MHA", "MHA", 2]
    assert open_tables(tmp_path).report("DecodeAttention").points_per_regime == (1, 1, 2)


def test_close_repeats_merge_to_their_median(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(m=[1, 1, 1], latency=[0.0104, 0.0100, 0.0110]))
    table = loaded(tmp_path, "QuantMatmul")
    assert table.latency_us.tolist() == [pytest.approx(10.4)]
    assert table.repeat_counts.tolist() == [3]
    assert table.spread.tolist() == [pytest.approx(1.1)]
    assert not table.ambiguous.any()
    assert row_details(table.row_ref(0))["row"] == 0
    assert open_tables(tmp_path).report("QuantMatmul").repeats_merged == 2


def test_an_even_number_of_repeats_averages_the_middle_two(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(m=[1] * 4, latency=[0.0103, 0.0100, 0.0101, 0.0109]))
    assert loaded(tmp_path, "QuantMatmul").latency_us.tolist() == [pytest.approx(10.2)]


def test_repeats_too_far_apart_are_ambiguous(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(m=[1, 1, 2], latency=[0.0100, 0.0111, 0.02]))
    table = loaded(tmp_path, "QuantMatmul")
    assert table.ambiguous.tolist() == [True, False]
    assert len(table) == 2
    notes = open_tables(tmp_path).report("QuantMatmul").notes
    assert "1 points are ambiguous: their repeats differ by more than 10%" in notes


def test_another_kernel_is_no_repeat(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(m=[1, 1], kernel_source=["a", "b"], latency=[0.01, 0.05]))
    table = loaded(tmp_path, "QuantMatmul")
    assert table.latency_us.tolist() == [10.0, 50.0]
    assert [table.variants[code] for code in table.variant_codes] == ["a", "b"]
    assert not table.ambiguous.any()
    assert open_tables(tmp_path).report("QuantMatmul").regimes == 2


def quant_rows(latency: list[float], k: list[int] | None = None) -> dict[str, list[Any]]:
    count = len(latency)
    return {
        "kernel_source": ["q"] * count,
        "quant_dtype": ["fp8"] * count,
        "m": list(range(1, count + 1)),
        "k": k or [128] * count,
        "latency": latency,
    }


def test_dynamic_quantisation_is_the_sum_of_both_tables(tmp_path: Path) -> None:
    write(tmp_path, "quantize/computescale_perf", quant_rows([0.001, 0.0, 0.003, 0.004]))
    write(tmp_path, "quantize/scale_matrix_perf", quant_rows([0.005, 0.006, 0.0]))
    database = open_tables(tmp_path)
    table = database.table("DynamicQuant")
    assert isinstance(table, ColumnTable)
    assert table.latency_us.tolist() == [6.0, 6.0]
    assert table.axes["M"].tolist() == [1.0, 2.0]
    assert row_details(table.row_ref(0))["file"].startswith(
        "gpu1/quantize/vllm/1.0/computescale_perf.parquet (+ scale_matrix_perf"
    )
    report = database.report("DynamicQuant")
    assert dict(report.rejected) == {"added_coordinate_missing": 2}
    assert "the difference was zero in 1 rows" in report.notes
    assert "scale_matrix_perf is added: 3 rows read, rejected: latency_zero 1" in report.notes
    assert dict(database.report("StaticQuant").rejected) == {"latency_zero": 1}


def test_a_sum_needs_both_tables(tmp_path: Path) -> None:
    write(tmp_path, "quantize/computescale_perf", quant_rows([0.001]))
    assert open_tables(tmp_path).report("DynamicQuant").status == "table_not_found"


def test_a_sum_over_two_kernels_of_the_added_table_has_no_place(tmp_path: Path) -> None:
    write(tmp_path, "quantize/computescale_perf", quant_rows([0.001]))
    both = {**quant_rows([0.005, 0.009]), "m": [1, 1], "kernel_source": ["p", "q"]}
    write(tmp_path, "quantize/scale_matrix_perf", both)
    assert dict(open_tables(tmp_path).report("DynamicQuant").rejected) == {"added_coordinate_missing": 1}


def test_a_missing_column_is_a_problem_of_its_table_only(tmp_path: Path) -> None:
    columns = gemm()
    del columns["gemm_dtype"]
    write(tmp_path, "gemm/gemm_perf", columns)
    write(tmp_path, "quantize/scale_matrix_perf", quant_rows([0.001]))
    database = open_tables(tmp_path)
    assert database.table("QuantMatmul") is None
    [problem] = database.report("QuantMatmul").problems
    assert problem.startswith("missing_column: ")
    assert "'gemm_dtype'" in problem
    assert database.table("StaticQuant") is not None


def test_text_where_numbers_belong_is_named(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(m=["1", "2"]))
    assert open_tables(tmp_path).report("QuantMatmul").status == "column_type"


def test_files_that_are_no_tables_are_named(tmp_path: Path) -> None:
    pointer = write(tmp_path, "gemm/gemm_perf", gemm())
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    cut = write(tmp_path, "moe/moe_perf", gemm())
    cut.write_bytes(cut.read_bytes()[:-20])
    odd = write(tmp_path, "mla_bmm/mla_bmm_perf", gemm())
    odd.unlink()
    odd.mkdir()
    write(tmp_path, "quantize/scale_matrix_perf", {"m": [1]}).write_bytes(b"")
    database = open_tables(tmp_path)
    statuses = {kernel: database.report(kernel).status for kernel in ("QuantMatmul", "FusedExperts", "LatentBmm")}
    assert statuses == {
        "QuantMatmul": "lfs_pointer",
        "FusedExperts": "parquet_unreadable",
        "LatentBmm": "not_a_file",
    }
    assert database.report("StaticQuant").status == "parquet_unreadable"


def test_unknown_tables_and_collectives_are_listed_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm())
    write(tmp_path, "linear_attention/gdn_perf", gemm())
    write(tmp_path, "comm/custom_allreduce_perf", gemm())
    write(tmp_path, "comm/nccl_perf", gemm(), where="gpu1/comm/nccl/2.23")
    assert [str(name) for name in find_gpu_databases(tmp_path)] == ["gpu1/vllm/1.0"]
    database = open_tables(tmp_path)
    report = database.report("QuantMatmul")
    assert database.unread_tables == ("linear_attention/gdn_perf",)
    assert "the comm tables (collectives) are skipped" in report.notes
    assert report.status == "ok"


def test_a_kernel_without_a_table_is_named(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm())
    database = open_tables(tmp_path)
    assert database.report("FusedExperts").status == "table_not_found"
    assert database.report("Conv2D").status == "table_unmapped"


def test_reuse_between_versions_is_noted_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(), where="gpu1/{}/vllm/2.0")
    folder = write(tmp_path, "moe/moe_perf", gemm()).parent
    reuse = tmp_path / "gpu1" / "gemm" / "vllm" / "1.0"
    reuse.mkdir()
    (reuse / "reuse.yaml").write_text("reuse:\n- {table: gemm_perf, from_version: '2.0'}\n")
    (folder / "reuse.yaml").write_text("reuse: [\n")
    database = open_tables(tmp_path)
    report = database.report("QuantMatmul")
    assert report.status == "table_not_found"
    assert any("gemm_perf from version 2.0: not followed" in note for note in report.notes)
    assert any("reuse.yaml cannot be read" in note for note in database.report("FusedExperts").notes)


def test_a_version_column_that_differs_is_noted(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm(version=["1.0", "1.1"]))
    assert "rows say version 1.0, 1.1; the folder's 1.0 counts" in open_tables(tmp_path).report("QuantMatmul").notes


MEGAMOE = """
tables:
  DispatchFFNCombine:
    files: [moe/dsv4_megamoe_module_perf]
    axes: {tokens: num_tokens}
    regime: {phase: phase}
    values: {phase: {context: prefill, generation: decode}}
    metadata: [capacity, absent_in_old_files]
"""


def test_capacities_that_contradict_each_other_refuse_the_regime(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "phase": ["context", "context", "context", "generation", "generation"],
        "num_tokens": [1, 1, 2, 1, 1],
        "capacity": [128, 256, 128, 128, 256],
        "latency": [0.100, 0.101, 0.2, 0.3, 0.3],
    }
    write(tmp_path, "moe/dsv4_megamoe_module_perf", columns)
    (tmp_path / "op_mapping.yaml").write_text(MEGAMOE)
    [name] = find_gpu_databases(tmp_path)
    table, report = GpuTables(name, load_op_mapping(tmp_path / "op_mapping.yaml")).read("DispatchFFNCombine")
    assert table is not None
    phases = [table.regime_keys[code][0] for code in table.regime_codes]
    assert list(zip(phases, table.ambiguous.tolist(), strict=True)) == [
        ("prefill", True),
        ("prefill", True),
        ("decode", False),
    ]
    assert "1 regimes are refused: one coordinate under two capacities, with two latencies" in report.notes


def test_spellings_of_one_dtype_are_one_regime(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "kernel_source": ["s", "s"],
        "batch_size": [1, 1],
        "num_heads": [64, 64],
        "model": ["m", "m"],
        "compress_ratio": [4, 4],
        "mla_dtype": ["fp8_e4m3", "fp8"],
        "kv_cache_dtype": ["fp8", "fp8_e4m3"],
        "isl": [1, 16],
        "step": [64, 64],
        "latency": [0.01, 0.02],
    }
    write(tmp_path, "sparse_attention/dsv4_paged_mqa_logits_module_perf", columns)
    table = loaded(tmp_path, "LightningIndexerPaged")
    names = ("batch_size", "num_heads", "model", "compress_ratio", "dtype", "kv_dtype", "phase")
    assert table.fact_names == names
    assert set(table.regime_keys) == {
        (1, 64, "m", 4, "fp8", "fp8", "decode"),
        (1, 64, "m", 4, "fp8", "fp8", "prefill"),
    }


def test_an_unknown_rule_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    text = MEGAMOE + "    derive: {kv_heads: kv_heads_class}\n"
    (tmp_path / "op_mapping.yaml").write_text(text)
    with pytest.raises(DataFileError, match="did you mean 'kv_head_class'") as caught:
        load_op_mapping(tmp_path / "op_mapping.yaml")
    assert caught.value.line == 9


def test_an_unknown_name_gets_the_nearest_spelling(tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm())
    with pytest.raises(UnknownNameError, match=r"no framework 'vlm' of gpu1 .did you mean 'vllm'.."):
        open_database(f"{tmp_path}::gpu1/vlm/1.0")
    with pytest.raises(UnknownNameError, match=r"known: gpu1"):
        open_database(f"{tmp_path}::../x/y")
    with pytest.raises(InvalidValueError, match="is not a folder"):
        open_database(f"{tmp_path}/absent::gpu1/vllm/1.0")


def test_empty_folders_are_no_databases(tmp_path: Path) -> None:
    (tmp_path / "l4" / "gemm" / "vllm" / "1.0").mkdir(parents=True)
    (tmp_path / "l4" / "gemm" / "vllm" / "1.0" / "errors.json").write_text("{}")
    assert list(find_gpu_databases(tmp_path)) == []


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, "gemm/gemm_perf", gemm())
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda name: None)
    for call in (lambda: list(find_gpu_databases(None)), lambda: open_tables(tmp_path)):
        with pytest.raises(InvalidValueError, match=r"pip install '\.\[gpu\]'"):
            call()


def test_the_package_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "aiconfigurator_core"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    write(package / "systems" / "data", "gemm/gemm_perf", gemm())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aiconfigurator_core", raising=False)
    importlib.invalidate_caches()
    assert [str(name) for name in find_gpu_databases(None)] == ["gpu1/vllm/1.0"]
    assert open_database("gpu1/vllm/1.0").table("QuantMatmul") is not None


SHIPPED = sorted((Path(aiconfigurator.__file__).parent.parent / "data").glob("*/*/*/op_mapping.yaml"))
GPU = [path for path in SHIPPED if load_op_mapping(path).header.get("format") == "aiconfigurator"]


@pytest.mark.parametrize("path", GPU, ids=lambda path: "/".join(path.parts[-4:-1]))
def test_shipped_mappings_are_complete(path: Path) -> None:
    mapping = load_op_mapping(path)
    assert mapping.unknown_keys == ()
    assert set(mapping.kernel_names()) <= set(mapping.layouts)
    assert set(mapping.policies) <= set(mapping.layouts)
    assert all(entry.notes and entry.facts["family"] for entry in mapping.operators.values())
    assert (mapping.header["device"], mapping.header["framework"], mapping.header["version"]) == path.parts[-4:-1]


def test_a_column_that_stands_there_twice_is_a_named_problem(tmp_path: Path) -> None:
    path = write(tmp_path, "gemm/gemm_perf", gemm())
    table = pq.read_table(path)
    pq.write_table(table.append_column("m", table["m"]), path)
    assert open_tables(tmp_path).report("QuantMatmul").status == "duplicate_column"


def test_a_table_above_the_row_limit_is_refused_unread(tmp_path: Path) -> None:
    """48 million rows of one value pack into 30 kB; reading them would take gigabytes."""
    path = write(tmp_path, "gemm/gemm_perf", gemm())
    schema = pq.read_schema(path)
    part = pa.table({name: [value[0]] * 1_000_000 for name, value in gemm().items()}, schema=schema)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(6):
            writer.write_table(part)
    tracemalloc.start()
    report = open_tables(tmp_path).report("QuantMatmul")
    assert report.status == "too_many_rows"
    assert "has 6000000 rows, more than the 5000000 that are read" in report.problems[0]
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_kernels_between_which_a_question_is_open_are_listed(tmp_path: Path) -> None:
    columns = gemm(m=[1, 1, 2, 4], kernel_source=["fast", "safe", "fast", "safe"], latency=[0.01, 0.05, 0.02, 0.09])
    write(tmp_path, "gemm/gemm_perf", columns)
    source = InterpolatingDataSource(ProfilingDataSource(open_tables(tmp_path)))

    def asked(rows: int, **attrs: str) -> QueryResult | Miss:
        tensors = [((rows, 32), "bf16"), ((32, 64), "bf16")]
        return source.query(LeafOp.build("aten.mm.default", tensors, attrs=attrs))

    for rows, code in ((1, "kernel_variant_ambiguous"), (3, "kernel_variant_changes")):
        found = asked(rows)
        assert isinstance(found, Miss)
        assert found.code == code
        assert found.details["hint"] == "give attrs.kernel_source, one of fast, safe"
    named = asked(1, kernel_source="safe")
    assert isinstance(named, QueryResult)
    assert named.latency_us == pytest.approx(50.0)
    typo = asked(1, kernel_source="saef")
    assert isinstance(typo, Miss)
    assert "did you mean 'safe'?" in typo.details["hint"]
    assert "fast, safe" in typo.details["hint"]
