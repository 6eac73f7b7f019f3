"""What the first question of a new process costs on GPU tables: run `python bench/cold.py`.

Whole processes, as a user starts them: the first ever (nothing kept), later ones (the table is kept in the user's cache
folder), and with --no-cache.  Beside them in the same run an interpreter that does nothing and one that imports numpy.
Bytecode is kept, as an installed package keeps it, whatever the environment says.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec

DATABASE = "h200_sxm/vllm/0.24.0"
PRODUCT = ("--op", "aten.mm.default", "--input", "5000,5120:bf16", "--input", "5120,4096:bf16")
ROUNDS = 9


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def median(command: Sequence[str], environment: dict[str, str]) -> float:
    return statistics.median(seconds(command, environment) for _ in range(ROUNDS))


def measure() -> dict[str, float]:
    lookup = [sys.executable, "-c", "from castq.cli import main; main()", "lookup", "-d", DATABASE, *PRODUCT]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    figures = {
        "empty_interpreter_s": median([sys.executable, "-c", ""], environment),
        "import_numpy_s": median([sys.executable, "-c", "import numpy"], environment),
    }
    seconds(lookup, environment)  # files of the packages into the system's cache
    firsts = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            firsts.append(seconds(lookup, {**environment, "XDG_CACHE_HOME": folder}))
    figures["first_ever_s"] = statistics.median(firsts)
    with tempfile.TemporaryDirectory() as folder:
        kept = {**environment, "XDG_CACHE_HOME": folder}
        seconds(lookup, kept)
        figures["cold_with_cache_s"] = median(lookup, kept)
    figures["cold_without_cache_s"] = median([*lookup, "--no-cache"], environment)
    return figures


def main() -> None:
    if find_spec("aiconfigurator_core") is None or find_spec("pyarrow") is None:
        print("cold lookups are not timed: the extra gpu is not installed")
        return
    figures = measure()
    for name, value in figures.items():
        print(f"{name:48s} {value:12.3f}")
    document = {"benchmark": "cold", "python": platform.python_version()}
    print(json.dumps({**document, "figures": {name: round(value, 3) for name, value in figures.items()}}))


if __name__ == "__main__":
    main()
