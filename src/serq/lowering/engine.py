"""Devices, engines and schedulers of the split edition to the interchange form.

Source: docs/language.md, "Devices and engines".
"""

from __future__ import annotations

from serq import ir
from serq.errors import fail
from serq.lowering.build import Amount, Engine, Macro, Scope
from serq.lowering.expressions import constant, lower_keys, lower_number
from serq.lowering.pools import member_of
from serq.lowering.step import DECODE_FIRST, NOBODY_PREEMPTED, check_budget
from serq.syntax import tree

__all__ = ["add_registers", "engine_scope", "lower_engine"]


def engine_scope(engine: Engine, scope: Scope) -> Scope:
    """The scope of the expressions written inside an engine."""
    return scope.but(side="server", queue=engine.queue, engine=engine)


def add_registers(engine: Engine, scope: Scope) -> None:
    """The registers an engine keeps between iterations."""
    decl = engine.decl
    assert decl is not None
    for state in decl.states:
        if engine.stage.family:
            raise fail("structure", "an engine family cannot have registers", state.name_at)
        scope.build.declare("register", state.name, state.name_at)
        engine.registers[state.name] = len(scope.build.registers)
        initial = constant(state.value, scope, "the first value of a register")
        scope.build.registers.append(ir.Register(state.name, engine.stage.base, initial))


def lower_engine(engine: Engine, scope: Scope) -> list[ir.Stage]:
    """The rows of an engine, one for each member."""
    decl = engine.decl
    assert decl is not None
    for part, what in ((decl.tokens, "tokens cap"), (decl.scheduler, "scheduler"), (decl.forward, "worker")):
        if part is None:
            raise fail("structure", f"the engine {engine.name!r} has no {what!r}", decl.name_at)
    inside = engine_scope(engine, scope)
    _check_scheduler(engine)
    stage = engine.stage
    rows = []
    for index in range(stage.count):
        own = inside.but(member=ir.Num(float(index))) if stage.family else inside
        memory = None
        if engine.memory is not None:
            memory = member_of(engine.memory, index, stage.count, decl.at) if stage.family else engine.memory.base
        step = _step(engine, decl, own, memory)
        rows.append(ir.Stage(stage.name, "step", index if stage.family else None, step=step))
    return rows


def _step(engine: Engine, decl: tree.EngineDecl, scope: Scope, memory: int | None) -> ir.Step:
    assert decl.tokens is not None
    assert decl.forward is not None
    assert decl.scheduler is not None
    budget = lower_number(decl.tokens, scope.to("budget"), "'tokens cap'")
    check_budget(budget, decl.tokens.at)
    scope.build.amounts.append(Amount(budget, f"the 'tokens cap' of {engine.name!r}", decl.tokens.at))
    cost = lower_number(decl.forward, scope.to("step cost"), "the duration of an iteration")
    exclusive = decl.scheduler[0].word == "exclusive" if decl.scheduler else False
    chunk = _chunk(engine, decl, scope)
    granule = _granule(decl, chunk, exclusive, scope)
    iteration = tuple(_iteration(one, engine, scope) for one in decl.scheduler)
    return ir.Step(budget, cost, chunk, granule, exclusive, () if exclusive else iteration, memory)


# --- the scheduler ----------------------------------------------------------------------------------------------------


def _check_scheduler(engine: Engine) -> None:
    assert engine.decl is not None
    statements = engine.decl.scheduler or ()
    every = _flat(statements)
    if any(one.word == "exclusive" for one in every):
        shape = [one.word for one in statements]
        plain = shape == ["exclusive", "admit"] and (statements[1].order or tree.Order()).only is None
        if not plain or statements[1].gate is None:
            hint = "write 'exclusive prefill; admit waiting while (running.preempted == 0) …;'"
            message = f"'exclusive prefill' of {engine.name!r} stands only before one 'admit waiting'"
            raise fail("scheduler", message, engine.decl.scheduler_at, hint=hint)
    if not _works(statements):
        message = f"a path through the scheduler of {engine.name!r} neither advances nor admits"
        raise fail("scheduler", message, engine.decl.scheduler_at)


def _flat(statements: tuple[tree.SchedulerStatement, ...]) -> list[tree.SchedulerStatement]:
    found = []
    for one in statements:
        found += [one, *_flat(one.then), *_flat(one.otherwise)]
    return found


def _works(statements: tuple[tree.SchedulerStatement, ...]) -> bool:
    return any(
        one.word in ("advance", "admit", "exclusive")
        or (one.word == "if" and _works(one.then) and _works(one.otherwise))
        for one in statements
    )


def _chunk(engine: Engine, decl: tree.EngineDecl, scope: Scope) -> ir.Expr:
    moment = scope.to("chunk")
    names: dict[str, Macro] = {}
    for let in decl.lets:
        names[let.name] = Macro(let.value, moment.but(names=dict(names)))
    inside = moment.but(names=names)
    written = [one for one in _flat(decl.scheduler or ()) if one.word in ("advance", "admit", "exclusive")]
    limits = [None if one.at_most is None else lower_number(one.at_most, inside) for one in written]
    if any(limit != limits[0] for limit in limits):
        message = f"every 'each at most' of {engine.name!r} is the same, or none is written"
        raise fail("scheduler", message, decl.scheduler_at)
    if not limits or limits[0] is None:
        return ir.Num(0.0)
    at = next(one.at_most.at for one in written if one.at_most is not None)
    if isinstance(limits[0], ir.Num) and not limits[0].value > 0:
        raise fail("value", f"'each at most' is above 0, not {limits[0].value:g}", at)
    scope.build.amounts.append(Amount(limits[0], f"'each at most' of {engine.name!r}", engine.at))
    return limits[0]


def _granule(decl: tree.EngineDecl, chunk: ir.Expr, exclusive: bool, scope: Scope) -> float | None:
    if decl.granule is None:
        return None
    at = decl.granule.at
    granule = constant(decl.granule, scope, "'granule'")
    if not granule > 0:
        raise fail("value", f"'granule' is above 0, not {granule:g}", at)
    if exclusive:
        raise fail("scheduler", "'granule' does not go with 'exclusive prefill'", at)
    if isinstance(chunk, ir.Num) and 0 < chunk.value < granule:
        raise fail("value", f"'granule' {granule:g} is above 'each at most' {chunk.value:g}", at)
    scope.build.amounts.append(Amount(ir.Num(granule), "'granule'", at))
    return granule


def _iteration(one: tree.SchedulerStatement, engine: Engine, scope: Scope) -> ir.Iteration:
    guard = scope.to("guard")
    if one.word == "if":
        assert one.value is not None
        then = tuple(_iteration(inner, engine, scope) for inner in one.then)
        otherwise = tuple(_iteration(inner, engine, scope) for inner in one.otherwise)
        return ir.Iteration("branch", test=_test(one.value, guard), then=then, otherwise=otherwise)
    if one.word == "set":
        assert one.value is not None
        if one.name not in engine.registers:
            raise fail("name", f"{engine.name!r} has no register called {one.name!r}", one.at)
        return ir.Iteration("set", register=engine.registers[one.name], value=lower_number(one.value, guard))
    order = one.order or tree.Order()
    moment = scope.to("order")
    only = None if order.only is None else lower_number(order.only, moment, "'only'")
    if only is not None and order.only is not None:
        scope.build.decisions.append((only, "'only'", order.only.at))
    if one.word == "advance":
        return ir.Iteration("serve", only=only, keys=_keys(order, moment))
    gate = None if one.gate is None else _test(one.gate, guard)
    if one.word == "admit" and engine.decl and engine.decl.scheduler and engine.decl.scheduler[0].word == "exclusive":
        _check_gate(gate, engine)
    return ir.Iteration("admit", only=only, gate=gate)


def _test(expr: tree.Expression, guard: Scope) -> ir.Expr:
    value = lower_number(expr, guard, "the test")
    if isinstance(value, ir.Num) and value.value not in (0.0, 1.0):
        raise fail("guard", f"a test is 0 or 1, not {value.value:g}", expr.at)
    return value


def _check_gate(gate: ir.Expr | None, engine: Engine) -> None:
    if gate != NOBODY_PREEMPTED:
        assert engine.decl is not None
        hint = "write 'admit waiting while (running.preempted == 0) …;'"
        message = f"'exclusive prefill' of {engine.name!r} admits while nobody was preempted"
        raise fail("scheduler", message, engine.decl.scheduler_at, hint=hint)


def _keys(order: tree.Order, moment: Scope) -> tuple[ir.Expr, ...]:
    if order.kind == "decode_first":
        return DECODE_FIRST
    keys = lower_keys(order.keys, moment)
    for key, written in zip(keys, order.keys, strict=True):
        moment.build.decisions.append((key, "an order", written.at))
    return keys
