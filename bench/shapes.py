"""What planning costs: `python bench/shapes.py`; medians of five rounds, one JSON line.

10 000 steps of a mixed load (decodes, a prefill now and then) planned for each vendor; the reference is a plain sum
over the same requests in the same run.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

from castq.shapes.ascend.planner import AscendPlanner
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.planned import Planner, Work
from castq.shapes.plans import plan_steps
from castq.shapes.rbln.buckets import BucketLayout
from castq.shapes.rbln.planner import RblnPlanner
from castq.shapes.rbln.settings import RblnSettings
from castq.shapes.vllm.gpu_graphs import GpuSettings
from castq.shapes.vllm.planner import GpuPlanner

STEPS, SLOTS, ROUNDS, GOAL_S = 10_000, 32, 5, 1.0


def load(*, exclusive: bool) -> list[tuple[Work, ...]]:
    """Every eighth step has a prefill: beside the decodes, or alone."""
    decodes = [tuple(Work(200 + at, 1, 201 + at) for at in range(1 + number % SLOTS)) for number in range(STEPS)]
    prefill = Work(0, 128, 128 + 2)
    for number in range(0, STEPS, 8):
        decodes[number] = (prefill,) if exclusive else (*decodes[number][:-1], prefill)
    return decodes


def median_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    planners: dict[str, Planner] = {
        "vllm": GpuPlanner(GpuSettings(max_num_seqs=SLOTS)),
        "ascend": AscendPlanner(AscendSettings(max_num_seqs=SLOTS)),
        "rbln": RblnPlanner(RblnSettings(max_num_seqs=SLOTS, buckets=BucketLayout(limit=6))),
    }
    figures = {}
    for name, planner in planners.items():
        steps = load(exclusive=name == "rbln")
        reference = median_s(lambda steps=steps: [sum(one.tokens for one in work) for work in steps])  # type: ignore[misc]
        taken = median_s(lambda planner=planner, steps=steps: plan_steps(planner, steps))  # type: ignore[misc]
        figures[name] = {"seconds": round(taken, 4), "plain_sum_seconds": round(reference, 4)}
        ratio = taken / reference
        sys.stdout.write(f"{name:8s} {STEPS} steps {taken:.3f} s, goal {GOAL_S} s; {ratio:.1f} times a plain sum\n")
    line = {"benchmark": "shapes", "python": platform.python_version(), "figures": figures}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
