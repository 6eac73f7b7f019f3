"""From a cold process to the first answer of a large table: `python bench/load.py` prints a table and one JSON line.

The table holds 300 000 rows of one kernel, every row of its own shape.  Each figure is the median of several fresh
processes, from its start to its answer, imports included; the reference is Python's own `csv` reader over the file.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 300_000
ROUNDS = 3
GOAL_SECONDS = 3.0
# An installed package keeps its bytecode, whatever the environment says.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
_HEADER = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Average Duration(us),Profiling Average Duration(us)"
)
_MAPPING = """operator_mappings:
  aten.mm.default: {kernel_type: MatMulV2}
interpolation_policy:
  kernel_overrides:
    MatMulV2: {max_interpolation_dim: 1}
"""
_ASK = """
import sys
from tensor_cast import InterpolatingDataSource, LeafOp, ProfilingDataSource
m, k, n = map(int, sys.argv[2:])
leaf = LeafOp.build("aten.mm.default", [((m, k), "bf16"), ((k, n), "bf16")], [((m, n), "bf16")])
print(InterpolatingDataSource(ProfilingDataSource(sys.argv[1])).query(leaf))
"""
_READ = "import csv, sys\nprint(sum(1 for row in csv.reader(open(sys.argv[1], newline=''))))"


def write_database(folder: Path, rows: int) -> Path:
    """M in steps of 3, fifty widths K and twenty N: every shape once."""
    (folder / "op_mapping.yaml").write_text(_MAPPING)
    with (folder / "MatMulV2.csv").open("w", newline="") as stream:
        stream.write(_HEADER + "\n")
        writer = csv.writer(stream, lineterminator="\n")
        for i in range(rows):
            m, k, n = 1 + 3 * (i // 1000), 128 * (1 + i % 50), 256 * (1 + i // 50 % 20)
            tensors = (f"{m},{k};{n},{k}", "DT_BF16;DT_BF16", "ND;ND", f"{m},{n}", "DT_BF16", "ND")
            writer.writerow(("dynamic", "AI_CORE", *tensors, f"{4 + m * k * n * 1e-8:.4f}", ""))
    return folder


def seconds(code: str, *arguments: object) -> tuple[float, str]:
    """Median wall time of a fresh process, and what it printed."""
    figures, printed = [], ""
    for _ in range(ROUNDS):
        start = time.perf_counter()
        command = [sys.executable, "-c", code, *(str(item) for item in arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=_ENVIRONMENT)
        figures.append(time.perf_counter() - start)
        printed = ran.stdout.strip()
    return statistics.median(figures), printed


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="castq-load-") as place:
        folder = write_database(Path(place), ROWS)
        figures = {
            "csv reader alone": seconds(_READ, folder / "MatMulV2.csv"),
            "first exact answer": seconds(_ASK, folder, 301, 1280, 2560),
            "first interpolated answer": seconds(_ASK, folder, 300, 1280, 2560),
        }
    sys.stdout.write(f"{ROWS} rows, cold process, goal {GOAL_SECONDS:g} s\n")
    for name, (figure, printed) in figures.items():
        sys.stdout.write(f"{name:28s}{figure:8.2f} s   {printed[:90]}\n")
    sys.stdout.write(json.dumps({name: round(figure, 3) for name, (figure, _) in figures.items()}) + "\n")


if __name__ == "__main__":
    main()
