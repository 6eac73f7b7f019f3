"""Is every name and number of a program in the interchange form one that the language could have written?

Names become file names and columns of reports, so they are identifiers or identifiers joined by dots; numbers have the
bounds of their declarations.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from serq import ir
from serq.errors import SerqError
from serq.ir.words import BUILTINS

__all__ = ["check_values"]

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_MOST_SESSIONS: Final = 1_000_000
_SHARES: Final = (None, "maxmin", "bottleneck")


def check_values(program: ir.Program, nodes: Iterator[Any]) -> None:
    """Raises `SerqError` of kind `interchange` for a name or a number that no program has."""
    _check_names(program)
    _check_settings(program)
    _check_arrival(program.arrival)
    _check_trace(program.trace)
    for node in nodes:
        check = _CHECKS.get(type(node))
        if check is not None:
            check(node)


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise SerqError("interchange", message)


def _is_whole(value: float, least: float, most: float = math.inf) -> bool:
    return least <= value <= most and value % 1 == 0


def _is_period(value: float | None) -> bool:
    return value is None or 0 < value < math.inf


# --- names ------------------------------------------------------------------------------------------------------------


def _check_names(program: ir.Program) -> None:
    lists: tuple[tuple[str, Sequence[str]], ...] = (
        ("attribute", program.attrs),
        ("observation", program.observes),
        ("gauge", [gauge.name for gauge in program.gauges]),
        ("claim", [claim.name for claim in program.claims]),
        ("register", [register.name for register in program.registers]),
    )
    for what, names in lists:
        for name in names:
            _check_name(what, name)
        if what != "register":
            _check_once(what, names)
    for kind, rows in (("pool", program.pools), ("stage", program.stages)):
        for row in rows:
            _check_name(kind, row.name)
            _must(row.index is None or row.index >= 0, f"the {kind} {row.name!r} has no member {row.index}")
        _check_once(kind, [row.name if row.index is None else f"{row.name}[{row.index}]" for row in rows])
    slots = [slot for _, slot in program.builtins]
    _must(len(set(slots)) == len(slots) == len(BUILTINS), "'builtins' gives every slot once")


def _check_once(what: str, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    _must(twice is None, f"the {what} {twice!r} is there twice")


def _check_name(what: str, name: str) -> None:
    allowed = "letters, digits and '_', not a digit first; parts are joined by '.'"
    _must(_NAME.fullmatch(name) is not None, f"{name!r} does not name {_article(what)} (allowed: {allowed})")


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


# --- numbers ----------------------------------------------------------------------------------------------------------


def _check_settings(program: ir.Program) -> None:
    horizon, arrivals = program.horizon, program.arrivals
    _must(horizon is None or 0 < horizon < math.inf, f"the horizon is finite and above 0, not {horizon}")
    within = 0 <= program.warmup < (math.inf if horizon is None else horizon)
    _must(within, f"the warm-up lies between 0 and the horizon, not at {program.warmup}")
    _must(0 <= program.seed < 2**64, f"the seed lies between 0 and 2^64 - 1, not at {program.seed}")
    if arrivals is not None:
        _must(0 < arrivals < 2**64, f"'arrivals' lies between 1 and 2^64 - 1, not at {arrivals}")
        stream = program.arrival.kind in ("poisson", "renewal")
        _must(stream, "'arrivals' needs sessions that arrive as 'poisson' or 'renewal'")
    _must(program.share in _SHARES, f"there is no sharing policy {program.share!r}")


def _check_arrival(arrival: ir.Arrival) -> None:
    kind, value = arrival.kind, arrival.value
    if kind == "poisson":
        _must(0 < value < math.inf, f"a rate of arrivals is above 0 and finite, not {value}")
    elif kind in ("closed", "batch"):
        whole = _is_whole(value, 1, _MOST_SESSIONS)
        _must(whole, f"{kind!r} takes a whole number from 1 to {_MOST_SESSIONS}, not {value}")
    elif kind == "renewal":
        gap = arrival.gap
        _must(gap is not None, "a 'renewal' has a gap")
        _must(not isinstance(gap, ir.Num) or gap.value > 0, "a gap between arrivals is above 0")


def _check_trace(trace: ir.Trace | None) -> None:
    if trace is None:
        return
    _must("\0" not in trace.path, "the path of a trace holds no NUL")
    if trace.sessions is None:
        return
    _must(bool(trace.sessions) and all(trace.sessions), "a trace has sessions, and each of them turns")
    for rows in trace.sessions:
        for new, out, *others in rows:
            whole = _is_whole(new, 0) and _is_whole(out, 0) and all(map(math.isfinite, (new, out, *others)))
            _must(whole, f"the row {(new, out, *others)} of a trace: lengths are whole, all numbers finite")


def _pool(pool: ir.Pool) -> None:
    name, block = pool.name, pool.block
    _must(pool.cap >= 0, f"the cap of {name!r} is not negative, not {pool.cap}")
    _must(block is None or 0 < block < math.inf, f"the block of {name!r} is above 0 and finite, not {block}")
    for every in (pool.queue_every, pool.preempt.every):
        _must(_is_period(every), f"a period of {name!r} is above 0 and finite, not {every}")
    keyed = bool(pool.preempt.keys) == (pool.preempt.kind != "none")
    _must(keyed, f"the pool {name!r}: 'by' and 'leases' have keys, 'none' has none")


def _stage(stage: ir.Stage) -> None:
    name = stage.name
    _must(stage.servers >= 1, f"the stage {name!r} has at least 1 server, not {stage.servers}")
    capacity = stage.capacity
    constant = not isinstance(capacity, ir.Num) or capacity.value >= 0
    _must(constant, f"the capacity of {name!r} is not negative")
    own = (stage.kind == "ps") == (capacity is not None) and (stage.kind == "step") == (stage.step is not None)
    _must(own, f"the stage {name!r} has what belongs to another kind, or lacks what its own kind needs")


def _step(step: ir.Step) -> None:
    _must(not isinstance(step.budget, ir.Num) or step.budget.value > 0, "a constant budget is above 0")
    _must(step.granule is None or step.granule > 0, f"a granule is above 0, not {step.granule}")
    _must(not (step.exclusive and step.iteration), "an exclusive step has no iteration of its own")


def _iteration(item: ir.Iteration) -> None:
    _must(item.kind != "branch" or item.test is not None, "an Iteration 'branch' has a test")
    for test in (item.test, item.gate):
        _guard(test)


def _guard(test: ir.Expr | None) -> None:
    _must(not isinstance(test, ir.Num) or test.value in (0.0, 1.0), "a constant test is 0 or 1")


def _hold(hold: ir.Hold) -> None:
    _must(bool(hold.pools), "a Hold names at least one pool")
    clauses = hold.reuse is None and not hold.prefix
    _must(hold.cache is not None or clauses, "a Hold with 'reuse' or 'prefix' has a 'cache'")
    private = hold.private_from
    _must(private is None or 0 <= private < len(hold.prefix), f"a Hold has no segment {private}")
    for part in hold.pools:
        for amount in (part.units, part.reserve):
            _amount(amount, "units")
    if hold.lease is not None:
        _amount(hold.lease.time, "time of a lease")
        held = [part.pool for part in hold.pools]
        _must(hold.lease.pool in held, "a Hold leases a pool that it holds")


def _amount(amount: ir.Expr | None, what: str) -> None:
    _must(not isinstance(amount, ir.Num) or amount.value >= 0, f"a constant amount ({what}) is not negative")


def _run(run: ir.Run) -> None:
    _amount(run.work, "work")
    _amount(run.latency, "latency")
    _must(run.share in _SHARES, f"there is no sharing policy {run.share!r}")


def _ref(ref: ir.Ref) -> None:
    _must(ref.index is not None or ref.count == 1, f"a reference to a family of {ref.count} has an index")
    if isinstance(ref.index, ir.Num):
        there = _is_whole(ref.index.value, 0, ref.count - 1)
        _must(there, f"the index {ref.index.value} is not a whole number from 0 to {ref.count - 1}")


def _choose(choose: ir.Choose) -> None:
    counts = not isinstance(choose.count, ir.Num) or _is_whole(choose.count.value, 0)
    _must(counts, "'choose' counts whole numbers")


def _set(assign: ir.Set) -> None:
    _must(assign.least is None or not math.isnan(assign.least), "the least value of an attribute is a number")


def _claim(claim: ir.Claim) -> None:
    _must(
        (claim.kind == "at_end") == (claim.stage is None), f"the claim {claim.name!r} reads the iterations of a stage"
    )


_CHECKS: Final[dict[type, Callable[[Any], None]]] = {
    ir.Pool: _pool,
    ir.Stage: _stage,
    ir.Step: _step,
    ir.Iteration: _iteration,
    ir.Hold: _hold,
    ir.Grow: lambda node: _amount(node.amount, "growth"),
    ir.Shrink: lambda node: _amount(node.amount, "shrinking"),
    ir.Load: lambda node: _amount(node.amount, "load"),
    ir.Run: _run,
    ir.Ref: _ref,
    ir.Branch: lambda node: _guard(node.test),
    ir.While: lambda node: _guard(node.test),
    ir.Choose: _choose,
    ir.Set: _set,
    ir.Claim: _claim,
}
