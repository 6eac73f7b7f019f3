"""Pools and plain stages to the interchange form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serq import ir
from serq.errors import Place, fail
from serq.lowering.build import Resource, Scope
from serq.lowering.expressions import constant, expression_names, lower_keys, lower_number, resolve
from serq.syntax import tree

__all__ = ["declare_size", "lower_pool", "lower_stage", "member_of", "read_capacity"]

_LIFO = (ir.Unary("-", ir.Ctx("admission")),)


def declare_size(size: tree.Expression | None, scope: Scope) -> int | None:
    """The number of members of a family; None for a single thing."""
    if size is None:
        return None
    for one in expression_names(size):
        if isinstance(one, tree.Path) and one.plain in scope.build.overridden:
            raise fail("override", f"the size of a family depends on {one.plain!r}, which no input may change", size.at)
    count = constant(size, scope, "a family's size")
    if not (count >= 1 and count % 1 == 0 and count <= 1e6):
        raise fail("value", f"a family has a whole number of members, not {count:g}", size.at)
    return int(count)


def read_capacity(resource: Resource, options: Sequence[tree.PoolOption], scope: Scope) -> None:
    """The constant `cap` and `block` of a pool; of repeated options the last counts."""
    for option in options:
        if option.word == "cap":
            assert option.value is not None
            resource.cap = constant(option.value, scope, "'cap'")
            if not resource.cap >= 0:
                raise fail("value", f"the cap of {resource.name!r} is not negative", option.value.at)
        elif option.word == "block":
            assert option.value is not None
            resource.block = constant(option.value, scope, "'block'")
            if not 0 < resource.block < float("inf"):
                raise fail("value", f"the block of {resource.name!r} is above 0 and finite", option.value.at)


def lower_pool(resource: Resource, options: Sequence[tree.PoolOption], scope: Scope) -> list[ir.Pool]:
    """The rows of a pool, one for each member."""
    pool = ir.Pool(resource.name, cap=resource.cap, block=resource.block)
    spill: tree.PoolOption | None = None
    for option in options:
        if option.word == "evict":
            pool = replace(pool, evict=_decided(option.keys, scope.to("eviction key"), "an eviction key"))
        elif option.word == "preempt":
            pool = replace(pool, preempt=_preempt(option, scope.to("victim key")))
        elif option.word == "queue":
            keys = _decided(option.keys, scope.to("queue key"), "a queue key")
            pool = replace(pool, queue=keys, queue_every=_every(option.every, scope))
        elif option.word == "reserve":
            pool = replace(pool, reserve_held=True)
        elif option.word == "spill":
            spill = option
    rows = []
    for index in range(resource.count):
        row = pool if not resource.family else replace(pool, index=index)
        own = scope if not resource.family else scope.but(member=ir.Num(float(index)))
        if spill is not None:
            row = replace(row, spill=_spill(resource, spill, own))
        if resource.admitted_by is not None:
            row = replace(row, admit_via=member_of(resource.admitted_by, index, resource.count, resource.at))
        rows.append(row)
    return rows


def member_of(stage: Resource, index: int, count: int, at: Place) -> int:
    """The position of the member of a family that serves member `index` of another one."""
    if not stage.family:
        return stage.base
    if stage.count != count:
        raise fail("structure", f"{stage.name!r} has {stage.count} members, not {count}", at)
    return stage.base + index


def _decided(keys: tree.Keys, scope: Scope, what: str) -> tuple[ir.Expr, ...]:
    lowered = lower_keys(keys, scope)
    for key, written in zip(lowered, keys, strict=True):
        scope.build.decisions.append((key, what, written.at))
    return lowered


def _every(expr: tree.Expression | None, scope: Scope) -> float | None:
    if expr is None:
        return None
    every = constant(expr, scope, "a period")
    if not 0 < every < float("inf"):
        raise fail("value", "a period is above 0 and finite", expr.at)
    return every


def _preempt(option: tree.PoolOption, scope: Scope) -> ir.Preempt:
    if option.kind == "none":
        return ir.Preempt()
    if option.kind == "lifo":
        return ir.Preempt("by", _LIFO)
    keys = _decided(option.keys, scope, "a victim key")
    if option.kind in ("by", "by_tail"):
        return ir.Preempt("by", keys, option.kind == "by_tail")
    suspend = _decided(option.suspend, scope, "a suspension key")
    return ir.Preempt("leases", keys, every=_every(option.every, scope), suspend=suspend)


def _spill(pool: Resource, option: tree.PoolOption, scope: Scope) -> ir.Spill:
    tier, link = option.names
    moment = scope.to("spill")
    target, tier_ref = resolve(tier, scope, "pool")
    target.spilled_by = pool
    stage, link_ref = resolve(link, scope, "stage")
    stage.ran = True
    assert option.value is not None
    assert option.when is not None
    work, when = lower_number(option.value, moment), lower_number(option.when, moment)
    for expr, at in ((work, option.value.at), (when, option.when.at)):
        scope.build.decisions.append((expr, "a spill", at))
    return ir.Spill(tier_ref, link_ref, work, when)


def lower_stage(resource: Resource, decl: tree.StageDecl, scope: Scope) -> list[ir.Stage]:
    """The rows of a fifo, ps or delay stage, one for each member."""
    stage = ir.Stage(resource.name, decl.kind)
    if decl.kind == "fifo":
        servers = 1.0 if decl.value is None else constant(decl.value, scope, "the number of servers")
        if not (servers >= 1 and servers % 1 == 0):
            assert decl.value is not None
            raise fail("value", f"a stage has a whole number of servers, not {servers:g}", decl.value.at)
        stage = replace(stage, servers=int(min(servers, 10**9)))
    elif decl.kind == "ps":
        assert decl.value is not None
        capacity = lower_number(decl.value, scope.to("capacity"), "a capacity")
        if capacity == ir.Ctx("present"):
            stage = replace(stage, kind="delay")
        else:
            stage = replace(stage, capacity=capacity)
            _check_rate(resource, capacity, decl.value.at)
    if not resource.family:
        return [stage]
    return [replace(stage, index=index) for index in range(resource.count)]


def _check_rate(resource: Resource, capacity: ir.Expr, at: Place) -> None:
    if isinstance(capacity, ir.Num):
        if not capacity.value >= 0:
            raise fail("value", f"the capacity of {resource.name!r} is not negative", at)
        resource.constant_rate = capacity.value > 0
