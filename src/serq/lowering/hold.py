"""Holds to the interchange form.  Source: docs/language.md, "Holds and admission"."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from serq import ir
from serq.errors import Place, fail
from serq.ir.fold import reads
from serq.lowering.build import Amount, Frame, Resource, Scope, Value
from serq.lowering.costs import spend
from serq.lowering.expressions import expression_names, lower, lower_number, resolve
from serq.lowering.names import assign
from serq.syntax import tree

__all__ = ["check_units", "lower_chain", "lower_hold", "whole_amount"]

_Block = Callable[[tree.Body, Scope], int]


def lower_hold(statement: tree.HoldStatement, scope: Scope, block: _Block) -> Sequence[ir.Stmt]:
    """The hold with its header, body, cache and lease."""
    resolved = [resolve(part.pool, scope, "pool") for part in statement.parts]
    pools = [pool for pool, _ in resolved]
    _check_clauses(statement, pools, scope)
    for pool in pools:
        pool.cached = pool.cached or statement.cache is not None
    header = scope.to("admission")
    bindings = _bindings(statement, header)
    held = tuple(_part(part, pool, ref, header) for part, (pool, ref) in zip(statement.parts, resolved, strict=True))
    reuse = None
    if statement.reuse is not None:
        value = lower(statement.reuse, header)
        spend(value, pools, scope, statement.reuse.at)
        reuse = _kept(value, pools, header, statement.reuse.at)
    prefix, private = lower_chain(statement.prefix, scope)
    inside = scope.but(holds=(*scope.holds, Frame(frozenset(pool.name for pool in pools), statement.cache is not None)))
    body = block(statement.body, inside)
    cache = None
    if statement.cache is not None:
        value = lower(statement.cache, inside)
        spend(value, pools, scope, statement.cache.at)
        cache = _kept(value, pools, None, statement.cache.at, build_scope=scope)
    lease = _lease(statement, pools, scope)
    return (ir.Hold(held, body, reuse, cache, bindings, prefix, private, lease),)


def _check_clauses(statement: tree.HoldStatement, pools: list[Resource], scope: Scope) -> None:
    names = [pool.name for pool in pools]
    for part, pool in zip(statement.parts, pools, strict=True):
        at = part.pool.at
        if names.count(pool.name) > 1 and not pool.family:
            raise fail("structure", f"{pool.name!r} is taken twice by one hold", at)
        if scope.side == "server" and pool.admitted_by is not None:
            message = f"the queue of {pool.name!r} is admitted by {pool.admitted_by.name!r}: a server does not hold it"
            hint = f"request the engine, '{pool.admitted_by.name} (input, output);', and let its 'taking' list the pool"
            raise fail("structure", message, at, hint=hint)
    if statement.cache is None and (statement.reuse is not None or statement.prefix):
        clause = "reuse" if statement.reuse is not None else "prefix"
        raise fail("structure", f"{clause!r} has no meaning without a 'cache' clause", statement.parts[0].pool.at)
    if statement.prefix and all(pool.block is None for pool in pools):
        message = "a 'prefix' chain needs a pool with a 'block'"
        raise fail("structure", message, statement.parts[0].pool.at)


def _bindings(statement: tree.HoldStatement, header: Scope) -> tuple[tuple[int, ir.Expr], ...]:
    found = []
    for name, at, expr in statement.bindings:
        value = lower_number(expr, header, "a binding")
        header.build.headers.append((value, f"the admission value {name!r}", expr.at))
        header.build.decisions.append((value, f"the admission value {name!r}", expr.at))
        found.append((assign(name, at, header), value))
    for i, (slot, _) in enumerate(found if not header.build.single_file else ()):
        for (_, value), (name, at, _) in zip(found[: i + 1], statement.bindings, strict=False):
            if slot in reads(value):
                other = statement.bindings[i][0]
                said = "itself" if name == other else f"{other!r}, which is bound after it"
                raise fail("name", f"the binding {name!r} reads {said}", at, hint="a binding sees those before it")
    return tuple(found)


def _part(part: tree.HoldPart, pool: Resource, ref: ir.Ref, header: Scope) -> ir.HoldPool:
    units = _units(part.units, pool, part.pool.at, header)
    reserve = None if part.reserve is None else _units(part.reserve, pool, part.pool.at, header)
    return ir.HoldPool(ref, units, reserve)


def _units(expr: tree.Expression, pool: Resource, at: Place, header: Scope) -> ir.Expr:
    if any(isinstance(one, tree.Draw) for one in expression_names(expr)):
        hint = "draw before, into an attribute: 'set x = ~…;'"
        raise fail("draw", f"the amount of {pool.name!r} may not draw: it is read at every attempt", at, hint=hint)
    value = lower(expr, header)
    spend(value, (pool,), header, at)
    check_units(value.expr, pool, at, header)
    whole_amount(value.expr, pool, at, header)
    return value.expr


def check_units(expr: ir.Expr, pool: Resource, at: Place, header: Scope, *, must_fit: bool = True) -> None:
    """Refuse a constant that is negative or can never fit, and note what is checked at the end.

    A request that takes more than there is waits for ever (`must_fit` off); a hold that asks for it is refused.
    """

    if isinstance(expr, ir.Num):
        units = expr.value
        if not units >= 0:
            raise fail("value", f"a negative amount of {pool.name!r}", at)
        if pool.block is not None and math.isfinite(units):
            units = pool.block * math.ceil(units / pool.block)
        if must_fit and units > pool.cap:
            message = f"{units:g} units of {pool.name!r} never fit: its cap is {pool.cap:g}"
            raise fail("value", message, at)
    header.build.headers.append((expr, f"the amount of {pool.name!r}", at))
    header.build.decisions.append((expr, f"the amount of {pool.name!r}", at))


def _kept(
    value: Value, pools: list[Resource], header: Scope | None, at: Place, build_scope: Scope | None = None
) -> ir.Expr:
    scope = header or build_scope
    assert scope is not None
    for pool in pools:
        whole_amount(value.expr, pool, at, scope)
    if isinstance(value.expr, ir.Num) and not value.expr.value >= 0:
        raise fail("value", f"a negative amount of {pools[0].name!r}", at)
    if header is not None:
        scope.build.headers.append((value.expr, "'reuse'", at))
        scope.build.decisions.append((value.expr, "'reuse'", at))
    return value.expr


def lower_chain(
    segments: tuple[tuple[tree.Expression, tree.Expression], ...], scope: Scope
) -> tuple[tuple[tuple[ir.Expr, ir.Expr], ...], int | None]:
    """The segments of a prefix, and the position of the first one that is the session's own."""
    private: int | None = None
    chain = []
    header = scope.to("admission")
    for position, (key, length) in enumerate(segments):
        own = isinstance(key, tree.Path) and key.plain == "serial"
        if own and private is None:
            private = position
        name = ir.Attr(scope.build.slots["serial"]) if own else lower_number(key, header, "a key")
        units = lower_number(length, header, "a length")
        scope.build.amounts.append(Amount(units, "the length of a prefix segment", length.at))
        for expr, at in ((name, key.at), (units, length.at)):
            scope.build.headers.append((expr, "the prefix", at))
            scope.build.decisions.append((expr, "the prefix", at))
        chain.append((name, units))
    if len(chain) == 1 and private == 0 and chain[0][1] == ir.Num(math.inf):
        message = "'serial: inf' alone is what a hold without 'prefix' does"
        raise fail("structure", message, segments[0][0].at)
    return tuple(chain), private


def _lease(statement: tree.HoldStatement, pools: list[Resource], scope: Scope) -> ir.Lease | None:
    if statement.lease is None:
        return None
    path, expr = statement.lease
    pool, ref = resolve(path, scope, "pool")
    if pool not in pools:
        raise fail("structure", f"a lease keeps one of the hold's pools; {pool.name!r} is none", path.at)
    time = lower_number(expr, scope, "the time of a lease")
    if isinstance(time, ir.Num) and not time.value >= 0:
        raise fail("value", "a lease lasts no negative time", expr.at)
    scope.build.leased.add(pool.name)
    return ir.Lease(ref, time)


def whole_amount(expr: ir.Expr, pool: Resource, at: Place, scope: Scope) -> None:
    """Ask for an amount of tokens to be whole (split edition)."""
    if not scope.build.single_file:
        scope.build.amounts.append(Amount(expr, f"an amount of {pool.name!r}", at, pool))
