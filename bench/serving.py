"""How fast serving programs run: `python bench/serving.py [--full]`; prints a table and one JSON line.

Six programs, each compiled once and run three times; the figures are those of the median run, without compiling.
`pyserq`, where it can be imported, runs the same texts in the same process, run by run in turn with castq; `ratio` is
its time over castq's.  `--full` lets ten to fifty times the sessions in (a million at the queue, 1e5 requests at the
engine, 5e4 at the split deployment) and runs each once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from serq.compiler import compile as compile_program
from serq.runner import run

HORIZON = 1e9  # every run ends with its last session


@dataclass(frozen=True)
class Bench:
    """A deployment and its traffic, and how many sessions are let in."""

    name: str
    deployment: str
    workload: str
    sessions: int


@dataclass(frozen=True)
class Figures:
    """One program on one simulator: the median wall time of a run, and what was simulated in it."""

    seconds: float
    events: int
    iterations: int
    requests: int

    def per_second(self, count: int) -> float:
        return count / self.seconds


QUEUE = "fn main() { stage desk : fifo; server (work) { run desk (cost(desk, work)); } }"
QUEUE_TRAFFIC = "workload { arrive poisson (0.8); turn { set work = ~exp(1); } send (work); session { turn; } }"

ENGINE = """
fn main() {
  device chip { kv cap 64000; }
  engine npu on chip {
    slots cap 64;
    tokens cap 2048;
    scheduler {
      advance running;
      admit waiting while (running.preempted == 0)
        taking slots (1), kv (min(request.known, request.hit + budget_left(npu))) reserve (request.known)
        reuse (floor(request.known - 1, 16)) cache (request.input + request.output - 1);
    }
    worker { forward (0.008 + 0.00003 * batch.tokens + 0.0000002 * (batch.kv_decode + batch.kv_prefill)); }
  }
  pool slots on npu { queue fifo; }
  pool kv on chip { block 16; evict lru; preempt lifo; }
  server (prompt, hidden answer) { npu (prompt, answer); }
}
"""
TURNS = """
workload {
  arrive poisson (1.2);
  init { set context = 0; }
  turn { set prompt = context + floor(~uniform(50, 600)); set answer = 2 + floor(~exp(120)); }
  send (prompt, answer);
  session {
    turn;
    while (turn_no < 4) { set context = prompt + answer; tool ~exp(8); turn; }
  }
}
"""
REPLAY = """
workload {
  arrive poisson (1.5);
  trace "trace.csv" ordered;
  init { set context = 0; }
  turn { set prompt = context + new; set answer = out; }
  send (prompt, answer);
  session {
    turn;
    while (more) { set context = prompt + answer; tool think; turn; }
  }
}
"""
LONG_ANSWERS = """
workload {
  arrive poisson (1);
  turn { set prompt = floor(~uniform(50, 300)); set answer = 2000; }
  send (prompt, answer);
  session { turn; }
}
"""

SPLIT = """
use "std/kvt";
use "std/share";
fn main() {
  queue pre : prefill {
    device chip { kv cap 32000; }
    engine on chip {
      slots cap 16;
      tokens cap 2048;
      scheduler { advance running; admit waiting while (running.preempted == 0); }
      worker { forward (0.004 + 0.00003 * batch.tokens); }
    }
    pool slots on pre { queue fifo; }
    pool kv on chip { block 16; evict lru; preempt lifo; }
    nic ps(200000);
    prefill (prompt) {
      hold slots (cost(slots, 1)), kv (cost(kv, min(prompt, budget_left(pre)))) reserve (cost(kv, prompt)) {
        run pre prefill (cost(pre, prompt)) growing kv;
      } cache (cost(slots, kv, 0)) lease kv (inf);
    }
  }
  queue dec : decode {
    device chip { kv cap 64000; }
    engine on chip {
      slots cap 64;
      tokens cap 512;
      connector pre { load (request.input); }
      scheduler {
        advance running;
        admit waiting while (running.preempted == 0) taking slots (1), kv (request.known) cache (0);
      }
      worker { forward (0.006 + 0.00005 * batch.tokens); }
    }
    pool slots on dec { queue fifo; }
    pool kv on chip { block 16; evict lru; preempt lifo; }
    nic ps(200000);
    decode (prompt) from pre { dec (prompt, answer); }
  }
  kvt.nixl_pull (pre, dec, latency = 0.002, share = share.maxmin);
  server (prompt, hidden answer) { pre.prefill (prompt); dec.decode (prompt) from pre; }
}
"""
SINGLE = """
workload {
  arrive poisson (6);
  turn { set prompt = 50 + floor(~exp(600)); set answer = 2 + floor(~exp(150)); }
  send (prompt, answer);
  session { turn; }
}
"""


def write_trace(path: Path, sessions: int = 300) -> None:
    """A trace of `sessions` conversations of one to six turns."""
    draw = random.Random(0)
    lines = []
    for session in range(sessions):
        for turn in range(1, draw.randint(1, 6) + 1):
            new, out = draw.randint(40, 900), draw.randint(10, 300)
            lines.append(f"{session},{turn},{new},{out},{draw.uniform(1, 20):.3f}")
    path.write_text("\n".join(lines) + "\n")


def benches(full: bool) -> list[Bench]:
    return [
        Bench("M/M/1 queue", QUEUE, QUEUE_TRAFFIC, 1_000_000 if full else 100_000),
        Bench("engine, multi-turn", ENGINE, TURNS, 25_000 if full else 500),
        Bench("prefill/decode split", SPLIT, SINGLE, 50_000 if full else 2000),
        Bench("replayed trace", ENGINE, REPLAY, 6000 if full else 600),
        Bench("decode-heavy", ENGINE, LONG_ANSWERS, 1500 if full else 150),
        Bench("decode-heavy, light load", ENGINE, LONG_ANSWERS.replace("(1)", "(0.1)"), 1500 if full else 150),
    ]


def runners(bench: Bench, folder: Path) -> dict[str, Callable[[], Any]]:
    """What runs the program, by simulator; without `pyserq` where that is not installed."""
    program, workload = folder / "bench.sq", folder / "bench.wl.sq"
    program.write_text(bench.deployment)
    workload.write_text(bench.workload)
    compiled = compile_program(program, workload=workload, arrivals=bench.sessions, horizon=HORIZON)
    found: dict[str, Callable[[], Any]] = {"castq": lambda: run(compiled)}
    try:
        pyserq: Any = importlib.import_module("pyserq")
    except ImportError:
        return found
    reference = pyserq.compile(str(program), workload=str(workload), arrivals=bench.sessions, horizon=HORIZON)
    found["pyserq"] = lambda: pyserq.run(reference)
    return found


def timed(runner: Callable[[], Any]) -> Figures:
    start = time.perf_counter()
    report = runner()
    seconds = time.perf_counter() - start
    return Figures(seconds, report.events, sum(stage.iterations for stage in report.stages), report.turns)


def median(rounds: list[Figures]) -> Figures:
    middle = statistics.median_low(figures.seconds for figures in rounds)
    return next(figures for figures in rounds if figures.seconds == middle)


def measure(bench: Bench, folder: Path, rounds: int) -> dict[str, Figures]:
    ready = runners(bench, folder)
    runs = [{name: timed(runner) for name, runner in ready.items()} for _ in range(rounds)]
    return {name: median([figures[name] for figures in runs]) for name in ready}


def shown(results: dict[str, dict[str, Figures]]) -> Table:
    table = Table(title="serving programs, median run", title_justify="left")
    table.add_column("program")
    table.add_column("simulator")
    for column in ("run s", "events/s", "iterations/s", "requests/s", "ratio"):
        table.add_column(column, justify="right")
    for name, figures in results.items():
        for simulator, one in figures.items():
            counts = (one.events, one.iterations, one.requests)
            rates = [f"{one.per_second(count):,.0f}" if count else "-" for count in counts]
            ratio = f"{one.seconds / figures['castq'].seconds:.3f}" if simulator != "castq" else ""
            table.add_row(name if simulator == "castq" else "", simulator, f"{one.seconds:.3f}", *rates, ratio)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="ten to fifty times the sessions, one run each")
    full = parser.parse_args().full
    console = Console(width=110, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder) / "trace.csv")
        results = {bench.name: measure(bench, Path(folder), 1 if full else 3) for bench in benches(full)}
    console.print(shown(results))
    if all("pyserq" not in figures for figures in results.values()):
        console.print("pyserq is not installed: castq's own figures only")
    document = {
        "benchmark": "serving",
        "python": platform.python_version(),
        "figures": {
            name: {simulator: asdict(one) for simulator, one in figures.items()} for name, figures in results.items()
        },
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
