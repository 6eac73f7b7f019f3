"""Traces of real schedulers as programs: what a case asks for, and where a run first departs from it.

A case is one run of a scheduler, step by step.  Its program has iterations of one unit of time, so that step n is the
iteration that starts at time n; the requests are the sessions of a trace file and arrive at the time of their step.
"""

from __future__ import annotations

import math
import shutil
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serq.compiler import compile as compile_program
from serq.report.report import Report
from serq.report.rows import GaugeRow
from serq.runner import run

LIBRARY = Path(__file__).resolve().parents[1] / "src" / "serq" / "lib"
Case = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One step: who computes how many tokens, in order ('p' for prefill), and what is taken while it runs."""

    selected: tuple[tuple[str, str, int], ...] = ()
    seats: int = 0
    blocks: int | None = 0

    def __str__(self) -> str:
        chosen = " ".join(f"{name}:{kind}{tokens}" for name, kind, tokens in self.selected) or "nothing"
        return f"{chosen}, {self.seats} seats, {self.blocks} blocks"


# ------------------------------------------------------------------------------------------- what a table says


def vllm_kinds(trace: Sequence[Any]) -> list[list[tuple[str, str, int]]]:
    """A request is prefilling until its first sample since it was admitted, whatever a step of one token is called."""
    decoding: set[str] = set()
    found = []
    for entry in trace:
        decoding -= set(entry["preempted"])
        row = []
        for name, _, _, tokens, samples in entry["selected"]:
            row.append((name, "d" if name in decoding else "p", tokens))
            if samples:
                decoding.add(name)
        found.append(row)
    return found


def phase_kinds(trace: Sequence[Any]) -> list[list[tuple[str, str, int]]]:
    return [[(name, phase[0], tokens) for name, phase, _, tokens, _ in entry["selected"]] for entry in trace]


def expected_steps(case: Case, kinds: Sequence[Sequence[tuple[str, str, int]]]) -> list[Step]:
    """The table counts seats and free blocks after the finished have gone; a step is compared with them still there."""
    asked, trace = case["in"], case["out"]["trace"]
    usable = asked["num_blocks"] - 1
    reached: dict[str, int] = {}
    steps = []
    for entry, selected in zip(trace, kinds, strict=True):
        reached.update({name: start + tokens for name, _, start, tokens, _ in entry["selected"]})
        gone = sum(math.ceil(reached[name] / asked["block_size"]) for name in entry["finished"])
        seats = len(entry["running"]) + len(entry["finished"])
        steps.append(Step(tuple(selected), seats, usable - entry["free_blocks"] + gone))
    return steps


def complete(case: Case) -> bool:
    """Whether the table follows the requests to their end: it stops after 60 steps."""
    done = {name for entry in case["out"]["trace"] for name in entry["finished"]}
    return done == {row["id"] for row in case["in"]["arrivals"]}


def preemptions(case: Case) -> int:
    return sum(len(entry["preempted"]) for entry in case["out"]["trace"])


# ------------------------------------------------------------------------------------------- programs and runs


def requests_csv(case: Case) -> str:
    """session, turn, prompt, output, step of arrival, priority or shared tokens."""
    lines = []
    for number, row in enumerate(case["in"]["arrivals"]):
        mark = row.get("priority", row.get("shared_tokens", 0))
        lines.append(f"{number},1,{row['prompt']},{row['output']},{row['step']},{mark}")
    return "\n".join(lines) + "\n"


def run_program(case: Case, template: str, folder: Path, workload: str | None = None) -> Report:
    """Run the program of a case in a folder of its own, with the library beside it, for as long as the table goes."""
    numbers = options(case)
    shutil.copytree(LIBRARY, folder / "lib", dirs_exist_ok=True)
    (folder / "requests.csv").write_text(requests_csv(case))
    (folder / "case.sq").write_text(template.format(**numbers))
    horizon = len(case["out"]["trace"]) + (5 if complete(case) else -0.5)
    if workload is None:
        return run(compile_program(folder / "case.sq", horizon=horizon), iterations=True)
    (folder / "case.wl.sq").write_text(workload.format(**numbers))
    program = compile_program(folder / "case.sq", workload=folder / "case.wl.sq", horizon=horizon)
    return run(program, iterations=True)


def observed_steps(case: Case, report: Report) -> list[Step]:
    names = [row["id"] for row in case["in"]["arrivals"]]
    chosen: dict[float, tuple[tuple[str, str, int], ...]] = {}
    for one in report.iterations:
        assert one.time == int(one.time), f"an iteration starts at {one.time}, which is no step"
        chosen[one.time] = tuple((names[got.request], got.phase[0], int(got.tokens)) for got in one.requests)
    last = max([len(case["out"]["trace"]) - 1, *map(int, chosen)])
    block = case["in"]["block_size"]
    seats, units = report.gauges["seats_taken"], report.gauges["units_taken"]
    return [
        Step(chosen.get(step, ()), int(_value(seats, step)), math.ceil(_value(units, step) / block))
        for step in range(last + 1)
    ]


def _value(gauge: GaugeRow, time: float) -> float:
    """The value of a gauge right after everything that happens at `time`."""
    place = bisect_right(gauge.times, time)
    return gauge.values[place - 1] if place else 0.0


def first_divergence(case: Case, expected: Sequence[Step], report: Report, *, blocks: bool = True) -> str | None:
    """The first step that differs, in words; `blocks=False` leaves the memory out of the comparison."""
    got = observed_steps(case, report)
    if not blocks:
        expected, got = ([replace(step, blocks=None) for step in steps] for steps in (expected, got))
    for number, (want, have) in enumerate(zip(expected, got, strict=False)):
        if want != have:
            return f"{case['id']} step {number}: the scheduler has {want}; the program has {have}"
    if len(got) > len(expected):
        return f"{case['id']} step {len(expected)}: the scheduler is done; the program has {got[len(expected)]}"
    evictions = sum(pool.preemptions for pool in report.pools)
    if evictions != preemptions(case):
        return f"{case['id']}: the scheduler preempts {preemptions(case)} times, the program {evictions} times"
    return None


# ------------------------------------------------------------------------------------------- programs


def options(case: Case) -> dict[str, Any]:
    """The numbers of a case under the names the programs below use."""
    asked = case["in"]
    threshold, stages = asked.get("long_prefill_token_threshold", 0), asked.get("pp", 1)
    width = min(threshold or asked["budget"], asked["budget"])
    shared = {row.get("shared_tokens", 0) // width * width for row in asked["arrivals"]}
    return {
        "shared": max(shared),
        "units": (asked["num_blocks"] - 1) * asked["block_size"],
        "block": asked["block_size"],
        "seats": asked["max_num_seqs"],
        "budget": asked["budget"],
        "threshold": threshold,
        "longest": threshold or "inf",
        "chunked": int(asked.get("chunked", True)),
        "full": int(asked.get("reserve_full", True)),
        "requests": len(asked["arrivals"]),
        "width": width,
        "stages": stages,
        "most": asked["max_num_seqs"] // stages,
    }


_POOLS = """
pool kv {{ cap {units}; block {block}; preempt lifo; }}
pool slots {{ cap {seats}; admit via npu; }}
stage clock : delay;
workload {{ arrive batch({requests}); trace "requests.csv" ordered; }}
gauge seats_taken = holders(slots);
gauge units_taken = used(kv);
run {{ horizon 1; }}
"""

# With pipeline stages a sample is known `stages` steps after the one that computed it: the request is away in between.
_AWAY = """
    loop {{
      run pipeline ({stages} - 1);
      set made = made + 1;
      branch (made >= out) {{ end; }}
      decode on npu (1) growing kv;
    }}
"""

_VLLM = (
    """use "lib/vllm.sq";
stage npu : step {{ budget {budget}; chunk {threshold}; cost 1; memory kv; }}
session {{
  turn;
  run clock (think);
  vllm_request_with(npu, slots, kv, new, out, {longest}, {chunked}, {full});
  end;
}}
"""
    + _POOLS
)

_VLLM_PIPELINE = (
    """use "lib/vllm.sq";
stage npu : step {{ budget {budget}; cost 1; memory kv; }}
stage pipeline : delay;
session {{
  turn;
  run clock (think);
  hold slots (1), kv (min(new, budget_left(npu))) reserve (new) {{
    set made = 0;
    prefill on npu (new) growing kv;
"""
    + _AWAY
    + """  }}
}}
"""
    + _POOLS
)

_RBLN = (
    """use "lib/rbln.sq";
pool ready {{}}
stage npu : step {{ budget {budget}; chunk {threshold}; cost 1; serve exclusive prefill; memory kv; }}
session {{
  turn;
  run clock (think);
  rbln_request(npu, slots, kv, ready, new, out, {width});
  end;
}}
"""
    + _POOLS
)

# A step that can take a prefill has the whole budget.  One of decodes has the running ones' share per stage, and room
# for those who come to decode at once up to the most rows there are; full with running ones, it admits nobody.
_RBLN_PIPELINE = (
    """use "lib/rbln.sq";
pool ready {{}}
pool asking {{}}
def present_decodes() = holders(slots) - (residents - decoders);
def share() = max(1, min({most}, ceil(present_decodes() / {stages})));
def prefill_due() = residents > decoders || (used(asking) > 0 && free(slots) > 0 && min(decoders, share()) < {most});
stage npu : step {{
  budget prefill_due() ? {budget} : decoders > share() ? share() : {most};
  cost 1;
  serve exclusive prefill;
  memory kv;
}}
stage pipeline : delay;
session {{
  turn;
  run clock (think);
  hold asking (new > 1 ? 1 : 0) {{
  hold slots (1), kv (first_rows(new, {width}, used(ready))) reserve (new), ready (new == 1 ? 1 : 0) {{
    release asking;
    set made = 0;
    set over = lone_token(new, {width});
    prefill on npu (new - over) growing kv;
    decode on npu (over) growing kv;
    release ready;
"""
    + _AWAY
    + """  }}
  }}
}}
"""
    + _POOLS
)

_CLIENT = """
workload {{
  arrive batch({requests});
  trace "requests.csv" ordered;
  turn {{ }}
  send (prompt: new, answer: out, wait: think, mark: forced, group: forced > 0 ? 1 : serial + 2);
  session {{ turn; }}
}}
"""

# `0 * used(kv)` makes the reserve read the moment: a request that can never fit then waits, as in the tables, instead
# of being rejected when it joins.
_VLLM_PRIORITY = """
fn main() {{
  stage clock : delay;
  device chip {{ kv cap {units}; }}
  engine npu on chip {{
    slots cap {seats};
    tokens cap {budget};
    scheduler {{
      advance running;
      admit waiting while (running.preempted == 0)
        taking slots (1), kv (min(request.known, budget_left(npu))) reserve (request.known + 0 * used(kv));
    }}
    worker {{ forward (1); }}
  }}
  pool slots on npu {{ queue by (mark, serial); }}
  pool kv on chip {{ block {block}; preempt by (-mark, -serial) requeue tail; }}
  server (prompt, answer, wait, mark, group) {{
    run clock (cost(clock, wait));
    npu (prompt, answer);
  }}
  gauge seats_taken = holders(slots);
  gauge units_taken = used(kv);
}}
"""

_VLLM_PREFIX = """
fn main() {{
  stage clock : delay;
  device chip {{ kv cap {units}; }}
  engine npu on chip {{
    slots cap {seats};
    tokens cap {budget};
    scheduler {{
      advance running;
      admit waiting while (running.preempted == 0)
        taking slots (1), kv (min(request.known, request.hit + budget_left(npu)))
          reserve (request.known + 0 * used(kv))
        reuse (floor(request.known - 1, {block}))
        prefix (group: floor(mark), serial: inf)
        cache (request.input + request.output - 1);
    }}
    worker {{ forward (1); }}
  }}
  pool slots on npu {{ queue fifo; }}
  pool kv on chip {{ block {block}; evict lru; preempt lifo; }}
  server (prompt, answer, wait, mark, group) {{
    run clock (cost(clock, wait));
    npu (prompt, answer);
  }}
  gauge seats_taken = holders(slots);
  gauge units_taken = used(kv);
}}
"""

# What may be read again is counted in pieces of the compiled width, so these are the blocks of the program's pool.
_RBLN_PREFIX = """
fn main() {{
  stage clock : delay;
  queue npu : agg {{
    device chip {{ kv cap {units}; }}
    engine on chip {{
      slots cap {seats};
      tokens cap {budget};
      scheduler {{ exclusive prefill; admit waiting while (running.preempted == 0); }}
      worker {{ forward (1); }}
    }}
    pool slots on npu {{ queue fifo; }}
    pool kv on chip {{ block {width}; evict lru; preempt lifo; }}
    decode (prompt) {{
      hold slots (cost(slots, 1)), kv (cost(kv, min(prompt, floor(prompt - 1, {width}) + {width})))
           reserve (cost(kv, prompt)) prefix (1: {shared}, serial: inf)
           reuse (cost(slots, kv, floor(prompt - 1, {width}))) {{
        set rest = prompt - cached;
        set over = rest - floor(rest, {width}) == 1 ? 1 : 0;
        run npu prefill (cost(npu, rest - over)) growing kv;
        run npu decode (cost(npu, over + answer - 1)) growing kv;
      }} cache (cost(slots, kv, prompt + answer - 1))
    }}
  }}
  server (prompt, hidden answer, wait, mark, group) {{
    run clock (cost(clock, wait));
    npu.decode (prompt);
  }}
  gauge seats_taken = holders(npu.slots);
  gauge units_taken = used(npu.kv);
}}
"""


def vllm_divergence(case: Case, folder: Path) -> str | None:
    """Where the program of a vLLM V1 case first departs from the scheduler; None if nowhere."""
    asked, steps = case["in"], expected_steps(case, vllm_kinds(case["out"]["trace"]))
    if asked.get("policy") == "priority":
        report = run_program(case, _VLLM_PRIORITY, folder, _CLIENT)
    elif asked.get("prefix_caching"):
        report = run_program(case, _VLLM_PREFIX, folder, _CLIENT)
    else:
        report = run_program(case, _VLLM_PIPELINE if asked.get("pp", 1) > 1 else _VLLM, folder)
    return first_divergence(case, steps, report)


def rbln_divergence(case: Case, folder: Path) -> str | None:
    """Where the program of an RBLN case first departs from the scheduler; None if nowhere."""
    asked, steps = case["in"], expected_steps(case, phase_kinds(case["out"]["trace"]))
    if asked.get("prefix_caching"):
        report = run_program(case, _RBLN_PREFIX, folder, _CLIENT)
        return first_divergence(case, steps, report, blocks=False)
    return first_divergence(case, steps, run_program(case, _RBLN_PIPELINE if asked.get("pp", 1) > 1 else _RBLN, folder))
