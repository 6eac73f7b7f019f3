"""Statements to the interchange form."""

from __future__ import annotations

from collections.abc import Sequence

from serq import ir
from serq.errors import closest, fail
from serq.ir.fold import parts
from serq.lowering.build import Macro, Scope, Value
from serq.lowering.costs import spend
from serq.lowering.expansion import check_size, inside
from serq.lowering.expressions import expression_names, lower, lower_keys, lower_number, resolve
from serq.lowering.hold import lower_hold, whole_amount
from serq.lowering.names import assign, attribute_slot
from serq.lowering.queues import call_entry
from serq.lowering.refs import find_resource
from serq.lowering.requests import lower_request
from serq.lowering.runs import lower_run, lower_transfer
from serq.syntax import tree
from serq.syntax.walk import nested

__all__ = ["lower_block", "lower_body"]


def lower_block(body: tree.Body, scope: Scope) -> int:
    """The number of the block a body becomes."""
    return scope.build.block(lower_body(body, scope))


def lower_body(body: tree.Body, scope: Scope) -> list[ir.Stmt]:
    """The statements a body becomes; a statement in error leaves nothing and the next one is still checked."""
    found: list[ir.Stmt] = []
    for statement in body:
        with scope.build.keeping():
            found.extend(_placed(statement, scope))
    return found


def _placed(statement: tree.Statement, scope: Scope) -> Sequence[ir.Stmt]:
    lowered = _statement(statement, scope)
    for one in lowered:
        if scope.build.place(one) is None:
            scope.build.places[id(one)] = (one, statement.at)
    return lowered


def _statement(statement: tree.Statement, scope: Scope) -> Sequence[ir.Stmt]:
    match statement:
        case tree.SetStatement():
            return _set(statement, scope)
        case tree.CostRecord():
            return _cost_record(statement, scope)
        case tree.WordStatement():
            return _word(statement, scope)
        case tree.NameStatement():
            return _mark(statement, scope)
        case tree.HoldStatement():
            return lower_hold(statement, scope, lower_block)
        case tree.AmountStatement():
            return _amount(statement, scope)
        case tree.RunStatement():
            return lower_run(statement, scope)
        case tree.TransferStatement():
            return lower_transfer(statement, scope)
        case tree.IfStatement():
            return _if(statement, scope)
        case tree.WhileStatement():
            test = ir.Num(1.0) if statement.test is None else _guard(statement.test, scope)
            return (ir.While(test, lower_block(statement.body, scope)),)
        case tree.ForkStatement():
            scope.build.fork_at = scope.build.fork_at or statement.at
            return (ir.Fork(lower_block(statement.body, scope.but(leg=True))),)
        case tree.ChooseStatement():
            return _choose(statement, scope)
        case tree.CallStatement():
            return _call(statement, scope)
        case tree.EntryCall():
            return call_entry(statement, scope, lower_body)


# --- assignments ------------------------------------------------------------------------------------------------------


def _set(statement: tree.SetStatement, scope: Scope) -> Sequence[ir.Stmt]:
    build = scope.build
    value = lower(statement.value, scope)
    if statement.word == "observe":
        if scope.queue is None:
            build.declare("observation", statement.name, statement.name_at)
        return (ir.Observe(build.observe(statement.name), value.expr),)
    if statement.word == "Size" and scope.side != "client":
        raise fail("cost", "only the workload assigns sizes", statement.at, hint=f"write 'set {statement.name} = …'")
    if statement.word == "Cost" and value.cost is None:
        hint = "write 'cost(resource, amount)'"
        raise fail("cost", f"{statement.name!r} is declared a cost of no resource", statement.value.at, hint=hint)
    slot = assign(statement.name, statement.name_at, scope)
    known = build.costs.get(slot)
    if slot in build.mark_slots and known != value.cost:
        raise fail("cost", f"{statement.name!r} is sometimes one kind of amount, sometimes another", statement.value.at)
    build.mark_slots.add(slot)
    if value.cost is not None:
        build.costs[slot] = value.cost
    return (ir.Set(slot, value.expr),)


def _cost_record(statement: tree.CostRecord, scope: Scope) -> Sequence[ir.Stmt]:
    found: list[ir.Stmt] = []
    for path, amount in statement.fields:
        resource = find_resource(path, scope)
        if resource is None:
            raise fail("name", f"no pool or stage is called {path.text!r}", path.at)
        slot = scope.build.slot(f"{statement.name}.{path.text}")
        scope.build.costs[slot] = frozenset({resource[0].name})
        found.append(ir.Set(slot, lower_number(amount, scope, "the amount")))
    return found


def _mark(statement: tree.NameStatement, scope: Scope) -> Sequence[ir.Stmt]:
    if scope.side != "entry":
        hint = f"write 'set {statement.name} = now;'"
        raise fail("structure", "'mark' stands only in the entry of a queue", statement.at, hint=hint)
    return (ir.Set(assign(statement.name, statement.at, scope), ir.Ctx("now")),)


# --- control ----------------------------------------------------------------------------------------------------------


def _word(statement: tree.WordStatement, scope: Scope) -> Sequence[ir.Stmt]:
    build, at = scope.build, statement.at
    if statement.word == "turn":
        if scope.side == "single":
            return (ir.Turn(),)
        if scope.side != "client":
            raise fail("structure", "'turn' is a statement of the workload's session", at)
        if scope.leg:
            raise fail("structure", "a leg cannot take a turn", at)
        return (ir.Turn(build.server_block),)
    if statement.word == "join":
        build.joins = True
        return (ir.Join(),)
    if statement.word == "request":
        if not build.server:
            raise fail("structure", "'request' needs a 'server { … }'", at)
        return lower_body(build.server, scope)
    if scope.side in ("single", "client"):
        return (ir.End("session"),)
    if scope.side == "entry" or scope.holds or scope.leg:
        raise fail("structure", "'end' stands outside holds, legs and entries of a server", at)
    return (ir.End("session"),)


def _guard(test: tree.Expression, scope: Scope) -> ir.Expr:
    value = lower_number(test, scope, "the test")
    if isinstance(value, ir.Num) and value.value not in (0.0, 1.0):
        raise fail("guard", f"a test is 0 or 1, not {value.value:g}", test.at, hint="compare it: 'x != 0'")
    return value


def _if(statement: tree.IfStatement, scope: Scope) -> Sequence[ir.Stmt]:
    if statement.chance:
        test: ir.Expr = ir.Sample("bernoulli", (lower_number(statement.test, scope),))
    else:
        test = _guard(statement.test, scope)
    return (ir.Branch(test, lower_block(statement.then, scope), lower_block(statement.otherwise, scope)),)


def _choose(statement: tree.ChooseStatement, scope: Scope) -> Sequence[ir.Stmt]:
    slot = assign(statement.name, statement.name_at, scope)
    scope.build.mark_slots.add(slot)
    count = lower_number(statement.count, scope, "the number of choices")
    keys = lower_keys(statement.keys, scope)
    if isinstance(count, ir.Num) and not (count.value >= 0 and count.value % 1 == 0):
        raise fail("value", f"'choose' counts whole numbers, not {count.value:g}", statement.count.at)
    return (ir.Choose(slot, count, keys),)


# --- pools ------------------------------------------------------------------------------------------------------------


def _amount(statement: tree.AmountStatement, scope: Scope) -> Sequence[ir.Stmt]:
    pool, ref = resolve(statement.pool, scope, "pool")
    inside = any(pool.name in frame.pools for frame in scope.holds)
    if statement.word == "drop":
        return (ir.Drop(ref),)
    if statement.word == "release":
        if not inside:
            scope.build.releases.append((pool, statement.pool.at))
        return (ir.Release(ref),)
    if not inside:
        message = f"{statement.word!r} needs an enclosing hold of {pool.name!r}"
        raise fail("structure", message, statement.pool.at)
    assert statement.amount is not None
    value = lower(statement.amount, scope)
    spend(value, (pool,), scope, statement.pool.at)
    if isinstance(value.expr, ir.Num) and not value.expr.value >= 0:
        raise fail("value", f"a negative amount of {pool.name!r}", statement.pool.at)
    whole_amount(value.expr, pool, statement.pool.at, scope)
    if statement.word == "grow":
        return (ir.Grow(ref, value.expr),)
    return (ir.Shrink(ref, value.expr) if statement.word == "shrink" else ir.Load(ref, value.expr),)


# --- definitions ------------------------------------------------------------------------------------------------------


def _call(statement: tree.CallStatement, scope: Scope) -> Sequence[ir.Stmt]:
    build, name = scope.build, statement.name
    defs = build.defs_of(scope.side)
    if name in defs:
        return _expand(statement, defs[name].decl, scope)
    engine = scope.queue.engine if scope.queue is not None and scope.queue.name == name else build.engines.get(name)
    if engine is not None and engine.decl is not None:
        return lower_request(statement, engine, scope)
    names = [*build.engines, *(key for key, found in defs.items() if found.decl.value is None)]
    raise fail("call", f"no definition or engine is called {name!r}", statement.at, hint=closest(name, names))


def _expand(statement: tree.CallStatement, decl: tree.DefDecl, scope: Scope) -> Sequence[ir.Stmt]:
    if decl.value is not None:
        raise fail("call", f"{decl.name!r} is a value, not a statement", statement.at)
    if len(statement.args) != len(decl.params):
        count, found = len(decl.params), len(statement.args)
        raise fail("call", f"{decl.name!r} takes {count} argument{'s' * (count != 1)}, not {found}", statement.at)
    assigned = {attribute_slot(name, scope) for name in _assigned(decl.body)}
    names: dict[str, Macro | Value] = {}
    for param, arg in zip(decl.params, statement.args, strict=True):
        if isinstance(arg, tree.Path) and find_resource(arg, scope) is not None:
            names[param] = Macro(arg, scope)
        else:
            names[param] = _argument(arg, param, decl, assigned, scope)
    return lower_body(decl.body, inside(decl.name, statement.at, scope).but(names=names))


def _assigned(body: tree.Body) -> set[str]:
    names = set()
    for one in nested(body):
        if (isinstance(one, tree.SetStatement) and one.word != "observe") or isinstance(one, tree.ChooseStatement):
            names.add(one.name)
    return names


def _argument(arg: tree.Expression, param: str, decl: tree.DefDecl, assigned: set[int], scope: Scope) -> Value:
    value = lower(arg, scope)
    check_size(value.expr, decl.name, arg.at, scope)
    for one in parts(value.expr):
        live = isinstance(one, ir.Ctx) or (isinstance(one, ir.Call) and one.ref is not None)
        if live or (isinstance(one, ir.Attr) and one.slot in assigned):
            message = f"the argument {param!r} would change its meaning inside {decl.name!r}"
            raise fail("call", message, arg.at, hint="pass the value in an attribute: 'set x = …;'")
        if isinstance(one, ir.Sample) and _mentions(decl.body, param) > 1:
            raise fail("draw", f"{decl.name!r} uses {param!r} more than once, so its argument may not draw", arg.at)
    return value


def _mentions(body: tree.Body, name: str) -> int:
    total = 0
    for one in nested(body):
        for field in one.__slots__:
            value = getattr(one, field)
            if isinstance(
                value, tree.Number | tree.Path | tree.CallExpr | tree.BinaryOp | tree.UnaryOp | tree.Conditional
            ):
                total += sum(isinstance(e, tree.Path) and e.parts[0].name == name for e in expression_names(value))
    return total
