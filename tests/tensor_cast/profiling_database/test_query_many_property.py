"""`query_many` is `query`, bit for bit and source for source, whatever the path, the axes and the values."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castq.rfc.rows import load_rows
from support import mm, row, write_database
from sweeps import ASCEND_LEAVES, GPU_LEAVES, Subject, differences, subject
from tensor_cast.demo import write_demo_database
from tensor_cast.performance_model.profiling_database import open_database

GPU = ("h200_sxm/vllm/0.24.0", "b200_sxm/trtllm/1.3.0rc20", "gb300/sglang/0.5.10")


@pytest.fixture(scope="session")
def ascend(tmp_path_factory: pytest.TempPathFactory) -> tuple[Subject, ...]:
    report = write_demo_database(tmp_path_factory.mktemp("sweeps"), noise=0.05, versions=("0.13", "0.15", "0.18"))
    asked = [(probe.leaf, probe.ep_size) for found in load_rows().rows for probe in found.probes]
    found = []
    for written in report.databases:
        database = open_database(written.path)
        for op, ep_size in dict.fromkeys([*asked, *((op, 16) for op in ASCEND_LEAVES)]):
            found.append(subject(written.version, database, op, ep_size))
    return tuple(one for one in found if one is not None)


@cache
def gpu() -> tuple[Subject, ...]:
    asked = [(found.real.leaf, found.real.ep_size) for found in load_rows().rows if found.real is not None]
    subjects = [
        subject(name, open_database(name), op, ep_size)
        for name in GPU
        for op, ep_size in dict.fromkeys([*asked, *((op, None) for op in GPU_LEAVES)])
    ]
    return tuple(one for one in subjects if one is not None)


def sweep(data: st.DataObject, subjects: tuple[Subject, ...]) -> list[str]:
    """Draw an operator, one to three of its axes, and points, measured ones and others; the differences found."""
    one = data.draw(st.sampled_from(sorted({found.path.name for found in subjects})))
    chosen = data.draw(st.sampled_from([found for found in subjects if found.path.name == one]))
    axes = data.draw(st.lists(st.sampled_from(sorted(chosen.values)), min_size=1, max_size=3, unique=True))
    if "output_numel" in axes or chosen.leaf.name.endswith("int4.default"):
        step = {axis: 7168 * 64 if axis == "output_numel" else 2 for axis in axes}
    else:
        step = dict.fromkeys(axes, 1)
    random = data.draw(st.randoms(use_true_random=False))
    size = data.draw(st.sampled_from([1, 5, 120]))
    columns = {}
    for axis in axes:
        values = chosen.values[axis]
        drawn = [random.choice(values) if random.random() < 0.8 else random.randint(0, values[-1]) for _ in range(size)]
        columns[axis] = [value * step[axis] if step[axis] != 2 else value + value % 2 for value in drawn]
    return differences(chosen, columns, disabled=random.random() < 0.1)


SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(st.data())
def test_the_demo_databases(ascend: tuple[Subject, ...], data: st.DataObject) -> None:
    assert sweep(data, ascend) == []


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the GPU tables are not installed")
@SLOW
@given(st.data())
def test_the_gpu_tables(data: st.DataObject) -> None:
    assert sweep(data, gpu()) == []


POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "method": st.just("bracket_blend"),
        "axis_order": st.just("tightest"),
        "frontier_guard": st.booleans(),
        "max_interpolation_dim": st.sampled_from([0, 1, 2]),
    },
)


@settings(deadline=None, max_examples=30)
@given(st.data(), POLICIES)
def test_untidy_tables(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, policy: dict[str, Any]) -> None:
    """Repeats, holes, both latency columns, transposed weights and alternates, under every policy."""
    sizes = st.sampled_from([5, 16, 33, 60, 64, 100, 128, 171, 200, 400])
    rows: dict[str, list[dict[str, Any]]] = {"MatMulV2": [], "MatMulV3": []}
    for m, k, n, turned in data.draw(st.lists(st.tuples(sizes, sizes, sizes, st.booleans()), min_size=3, max_size=40)):
        weight = f"{n},{k}" if turned else f"{k},{n}"
        latency = data.draw(st.floats(1, 100))
        column = data.draw(st.sampled_from(["Duration(us)", "Profiling Average Duration(us)"]))
        kernel = data.draw(st.sampled_from(["MatMulV2", "MatMulV2", "MatMulV3"]))
        cells = row(f"{m},{k};{weight}", "DT_BF16;DT_BF16", outputs=f"{m},{n}", output_dtypes="DT_BF16")
        rows[kernel].append(cells | {column: latency})
    mapping = {"aten.mm.default": {"kernel_type": "MatMulV2", "alternate_kernel_types": ["MatMulV3"]}}
    folder = write_database(tmp_path_factory.mktemp("untidy"), rows, mapping, {"MatMulV2": policy} if policy else None)
    one = subject("untidy", open_database(folder), mm(64, 128, 200))
    assert one is not None
    axes = data.draw(st.lists(st.sampled_from(["M", "K", "N"]), min_size=1, max_size=3, unique=True))
    random = data.draw(st.randoms(use_true_random=False))
    columns = {axis: [random.choice([5, 64, 80, 128, 150, 171, 200, 300]) for _ in range(60)] for axis in axes}
    columns |= {axis: [*columns[axis], *(random.randint(2, 420) for _ in range(60))] for axis in axes}
    assert differences(one, columns) == []


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the GPU tables are not installed")
def test_dense_sweeps_of_gpu_blends() -> None:
    """Thousands of points on three axes at once, so that whole cells are answered in one pass."""
    import numpy as np

    random = np.random.default_rng(5)
    checked = 0
    for one in gpu():
        axes = sorted(one.values)[:3]
        if len(axes) < 2 or one.leaf.name != "aten.mm.default":
            continue
        columns = {axis: random.integers(8, 6000, 300).tolist() for axis in axes}
        assert differences(one, columns) == []
        checked += int(one.source.query_many(one.leaf, **columns).answered.sum())
    assert checked > 300


def test_the_database_of_this_test_is_swept_on_every_path(ascend: tuple[Subject, ...]) -> None:
    assert {type(one.path).__name__ for one in ascend} == {
        "CacheUpdatePath",
        "DenseAttentionPath",
        "DispatchFFNCombinePath",
        "DynamicQuantPath",
        "ElementwisePath",
        "GenericComputePath",
        "LightningIndexerPath",
        "MatmulPath",
        "QuantizedMatmulPath",
        "SparseFlashAttentionPath",
    }
    assert Path(ascend[0].source.database.path).exists()
