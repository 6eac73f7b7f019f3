"""The tables of vLLM V1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from castq.shapes.vllm.gpu_graphs import GpuBatch, GpuGraphs, GpuSettings, derived_sizes
from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode
from castq.shapes.vllm.replay import Step, replay
from castq.shapes.vllm.requests import Arrival
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings
from shape_cases import Case, Engine

__all__ = ["ENGINES", "MOST_STEPS", "arrivals", "settings", "trace"]

MOST_STEPS: Final = 60
_GRAPH_NAMES: Final = (
    "version",
    "runner",
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_spec_tokens",
    "max_capture_size",
    "enforce_eager",
    "performance_mode",
    "blackwell",
)


def settings(case: Case) -> SchedulerSettings:
    """The settings of a case of any scheduler table."""
    return SchedulerSettings(
        max_num_seqs=case["max_num_seqs"],
        max_num_batched_tokens=case["budget"],
        block_size=case["block_size"],
        num_blocks=case["num_blocks"],
        chunked_prefill=case.get("chunked", True),
        policy=case.get("policy", "fcfs"),
        long_prefill_token_threshold=case.get("long_prefill_token_threshold", 0),
        reserve_full_length=case.get("reserve_full", True),
        prefix_caching=case.get("prefix_caching", False),
        max_model_len=case.get("max_model_len"),
        pipeline_parallel_size=case.get("pp", 1),
    )


def arrivals(given: Sequence[Mapping[str, Any]]) -> list[Arrival]:
    """The requests of a case."""
    return [Arrival(**one) for one in given]


def trace(steps: Iterable[Step]) -> object:
    """Steps as a table shows them: at most 60."""
    return {"trace": [_entry(step) for step in islice(steps, MOST_STEPS)]}


def _entry(step: Step) -> object:
    shares = [
        [one.request.id, "prefill" if one.prefill else "decode", one.start, one.tokens, one.samples]
        for one in step.shares
    ]
    return {
        "step": step.number,
        "selected": shares,
        "preempted": step.preempted,
        "finished": sorted(step.ended),
        "running": step.running,
        "waiting": step.waiting,
        "free_blocks": step.free_blocks,
        **({"stalled": True} if step.stalled else {}),
    }


def _scheduler(group: str, case: Case) -> object:
    return trace(replay(Scheduler(settings(case)), arrivals(case["arrivals"])))


def _graphs(group: str, case: Case) -> object:
    given = {name: case[name] for name in _GRAPH_NAMES if name in case}
    sizes = case.get("capture_sizes")
    graphs = GpuSettings(
        mode=GraphMode(case.get("mode", "FULL_AND_PIECEWISE")),
        attention_support=AttentionSupport(case.get("attention_support", "ALWAYS")),
        capture_sizes=None if sizes is None else tuple(sizes),
        **given,
    )
    if group == "sizes":
        found = derived_sizes(graphs)
        return {"max": found[-1] if found else 0, "sizes": found}
    engine = GpuGraphs(graphs)
    runs = [engine.dispatch(GpuBatch(*batch)) for batch in case["batches"]]
    return {
        "mode": engine.mode.value,
        "sizes": engine.sizes,
        "full": engine.full,
        "piecewise": engine.piecewise,
        "batches": [[run.mode.name, run.tokens, run.requests] for run in runs],
    }


ENGINES: Mapping[str, Engine] = {"sched_vllm_v1": _scheduler, "vllm_graph": _graphs}
