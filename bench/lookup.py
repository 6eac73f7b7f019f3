"""What a question costs: run `python bench/lookup.py`; prints a table and one JSON line.

Medians over several rounds.  Each figure has its reference in the same run: a plain scan over the rows for exact
questions, `scipy.interpolate.griddata` on the same points for interpolated ones, a loop of single questions for
`query_many`.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the reference calls LAPACK once per simplex

import numpy as np
import yaml
from scipy.interpolate import griddata

from tensor_cast import InterpolatingDataSource, LeafOp, ProfilingDataSource
from tensor_cast.performance_model.profiling_database import open_database

HEADER = (
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Average Duration(us)",
    "Profiling Average Duration(us)",
)
ROUNDS = 5


def write_table(path: Path, rows: int) -> None:
    """`rows` matmul rows on a grid of M (odd steps), K and N."""
    per_m = 20
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(HEADER)
        for i in range(rows):
            m, k, n = 1 + 16 * (i // per_m), 512 * (1 + i % 5), 512 * (1 + i // 5 % 4)
            latency = round(2 + m * k * n * 1e-8, 4)
            cells = (f"{m},{k};{k},{n}", "DT_BF16;DT_BF16", "ND;ND", f"{m},{n}", "DT_BF16", "ND", latency, "")
            writer.writerow(cells)


def write_database(folder: Path, kernels: int, rows: int) -> Path:
    folder.mkdir(parents=True)
    names = [f"Kernel{i}" for i in range(kernels - 1)]
    operators = {f"bench.{name}.default": {"kernel_type": name} for name in names}
    operators["aten.mm.default"] = {"kernel_type": "MatMulV2"}
    (folder / "op_mapping.yaml").write_text(yaml.safe_dump({"operator_mappings": operators}))
    for name in (*names, "MatMulV2"):
        write_table(folder / f"{name}.csv", rows)
    return folder


def mm(m: int, k: int, n: int) -> LeafOp:
    return LeafOp.build("aten.mm.default", [((m, k), "bfloat16"), ((k, n), "bfloat16")])


def per_call_us(
    source: InterpolatingDataSource, make: Callable[[], Sequence[LeafOp]], *, repeat: bool = False
) -> float:
    """Median over rounds of the mean time of one question; `repeat` asks each twice and times the second."""
    figures = []
    for _ in range(ROUNDS):
        leaves = make()
        source.base._answer.cache_clear()
        source._answer.cache_clear()
        if repeat:
            for leaf in leaves:
                source.query(leaf)
        start = time.perf_counter()
        for leaf in leaves:
            source.query(leaf)
        figures.append((time.perf_counter() - start) / len(leaves) * 1e6)
    return statistics.median(figures)


def many_us(source: InterpolatingDataSource) -> dict[str, float]:
    """Median over rounds of the mean time of one point of a sweep of 100 000 points, along one, two and three axes."""
    random = np.random.default_rng(0)
    columns = {"M": random.integers(2, 7_900, 100_000)}
    columns |= {"K": random.integers(512, 2_560, 100_000), "N": random.integers(512, 2_048, 100_000)}
    figures = {}
    for count, name in ((1, "query_many_us_per_point"), (2, "query_many_2_axes_us"), (3, "query_many_3_axes_us")):
        axes = dict(list(columns.items())[:count])
        source.query_many(mm(2, 512, 1024), **axes)
        times = []
        for _ in range(ROUNDS):
            source.base._answer.cache_clear()
            source._answer.cache_clear()
            start = time.perf_counter()
            source.query_many(mm(2, 512, 1024), **axes)
            times.append((time.perf_counter() - start) / 100_000 * 1e6)
        figures[name] = statistics.median(times)
    return figures


def import_ms(statement: str) -> float:
    """Median wall time of a fresh interpreter running `statement`, less that of an empty one."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(run(statement) - run("pass") for _ in range(9)) * 1e3


def scan_us(folder: Path, wanted: Sequence[tuple[str, str]]) -> float:
    """The reference for exact questions: walk the parsed rows until one matches."""
    with (folder / "MatMulV2.csv").open(newline="") as stream:
        rows = [
            (row["Input Shapes"], row["Input Data Types"], row["Average Duration(us)"])
            for row in csv.DictReader(stream)
        ]
    start = time.perf_counter()
    for shapes, dtypes in wanted:
        next((float(latency) for s, d, latency in rows if s == shapes and d == dtypes), None)
    return (time.perf_counter() - start) / len(wanted) * 1e6


def griddata_us(dim: int) -> float:
    """The reference for 2D and 3D: triangulate and evaluate one point with SciPy on a 400-point slice."""
    axes = [np.arange(1, 321, 16), 512 * np.arange(1, 6), 512 * np.arange(1, 5)][:dim]
    points = np.array(np.meshgrid(*axes)).reshape(dim, -1).T.astype(float)
    values = 2 + points.prod(axis=1) * 1e-8
    figures = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        griddata(points, values, points.mean(axis=0)[None, :], method="linear")
        figures.append((time.perf_counter() - start) * 1e6)
    return statistics.median(figures)


def questions(kind: str, rows: int) -> Sequence[LeafOp]:
    top = 1 + 16 * (min(rows, 20_000) // 20 - 1)
    measured, between = range(1, top + 1, 16), [m for m in range(2, top) if m % 8 not in (0, 1)][:800]
    if kind == "exact":
        return [mm(m, k, n) for m in list(measured)[:50] for k in (512, 1024, 2560) for n in (512, 1536)]
    if kind == "1d":
        return [mm(m, 512, 1024) for m in between]
    if kind == "2d":
        return [mm(m, 700, 1024) for m in between]
    return [mm(m, 700, 700) for m in between]


def measure(folder: Path) -> dict[str, float]:
    figures: dict[str, float] = {
        "import_tensor_cast_ms": import_ms("import tensor_cast"),
        "import_castq_cli_ms": import_ms("import castq.cli"),
    }
    start = time.perf_counter()
    database = open_database(write_database(folder / "wide", 100, 500))
    for kernel in database.kernels_on_disk():
        database.table(kernel)
    figures["write_and_cold_load_100_kernels_50k_rows_s"] = time.perf_counter() - start
    start = time.perf_counter()
    database = open_database(folder / "wide")
    for kernel in database.kernels_on_disk():
        database.table(kernel)
    figures["cold_load_100_kernels_50k_rows_s"] = time.perf_counter() - start
    figures["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for rows in (1_000, 10_000, 100_000):
        source = InterpolatingDataSource(ProfilingDataSource(write_database(folder / str(rows), 1, rows)))
        for kind in ("exact", "1d") if rows != 10_000 else ("exact", "1d", "2d", "3d"):
            leaves = questions(kind, rows)
            start = time.perf_counter()
            source.query(leaves[0])
            figures[f"{kind}_first_ever_ms_{rows}"] = (time.perf_counter() - start) * 1e3
            figures[f"{kind}_us_{rows}"] = per_call_us(source, partial(questions, kind, rows))
            figures[f"{kind}_repeated_us_{rows}"] = per_call_us(source, partial(questions, kind, rows), repeat=True)
        if rows == 10_000:
            figures |= many_us(source)
    wanted = [
        (f"{leaf.inputs[0].shape[0]},{leaf.inputs[0].shape[1]};512,512", "DT_BF16;DT_BF16")
        for leaf in questions("exact", 10_000)
    ]
    figures["reference_scan_us_10000"] = scan_us(folder / "10000", wanted)
    figures["reference_griddata_2d_us"] = griddata_us(2)
    figures["reference_griddata_3d_us"] = griddata_us(3)
    return figures


def ratios(figures: dict[str, float]) -> dict[str, float]:
    return {
        "scan_over_exact_10000": figures["reference_scan_us_10000"] / figures["exact_us_10000"],
        "griddata_over_2d": figures["reference_griddata_2d_us"] / figures["2d_us_10000"],
        "griddata_over_3d": figures["reference_griddata_3d_us"] / figures["3d_us_10000"],
        "2d_over_many_2_axes": figures["2d_us_10000"] / figures["query_many_2_axes_us"],
        "3d_over_many_3_axes": figures["3d_us_10000"] / figures["query_many_3_axes_us"],
        "single_over_many": figures["1d_us_10000"] / figures["query_many_us_per_point"],
        "exact_100000_over_1000": figures["exact_us_100000"] / figures["exact_us_1000"],
        "1d_100000_over_1000": figures["1d_us_100000"] / figures["1d_us_1000"],
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder))
    for name, value in figures.items():
        print(f"{name:48s} {value:12.3f}")
    for name, value in ratios(figures).items():
        print(f"{name:48s} {value:12.2f} x")
    document = {
        "benchmark": "lookup",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "figures": {name: round(value, 3) for name, value in figures.items()},
        "ratios": {name: round(value, 2) for name, value in ratios(figures).items()},
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
