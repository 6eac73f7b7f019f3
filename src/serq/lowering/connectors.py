"""Connectors of an engine: copies from another queue, and a second tier.

Source: docs/language.md, "Transfers and connectors".
"""

from __future__ import annotations

from dataclasses import dataclass

from serq import ir
from serq.errors import Place, fail
from serq.ir.fold import binary, call
from serq.lowering.build import Amount, Engine, Queue, Resource, Scope
from serq.lowering.expressions import lower_number
from serq.syntax import tree

__all__ = ["Connector", "check_flow_stage", "copy_run", "find_connector", "leased_pool", "loading", "saving"]


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector of the engine being requested; `copy` is the transfer declaration it serves, None for a tier."""

    decl: tree.ConnectorDecl
    queue: Queue
    engine: Engine
    copy: tree.TransferDecl | None = None

    def load(self, scope: Scope) -> ir.Expr:
        """How many tokens are loaded, read in a scope that knows the request's hit."""
        if self.decl.load is None:
            return ir.Num(0.0)
        amount = lower_number(self.decl.load, scope, "the amount loaded")
        scope.build.amounts.append(Amount(amount, f"what the connector of {self.engine.name!r} loads", self.engine.at))
        return amount


def find_connector(engine: Engine, scope: Scope, at: Place) -> Connector | None:
    """The connector a request of this engine goes through, if any."""
    build, decl = scope.build, engine.decl
    if decl is None or not decl.connectors:
        return None
    connector = decl.connectors[0]
    queue = build.queues.get(connector.name)
    if queue is None or engine.memory is None:
        raise fail("structure", f"the connector {connector.name!r} of {engine.name!r} joins nothing", at)
    copy = build.copies.get(engine.name)
    return Connector(connector, queue, engine, None if "l2" in queue.decl.roles else copy)


def leased_pool(queue: Queue, at: Place) -> Resource:
    """The pool every `prefill` entry of a source leaves leased: what a copy reads."""
    from serq.syntax.walk import nested

    entry = queue.entries.get("prefill")
    leases = [] if entry is None else [one.lease for one in nested(entry.body) if isinstance(one, tree.HoldStatement)]
    names = {lease[0].text for lease in leases if lease is not None}
    pools = [queue.locals[name] for name in sorted(names) if name in queue.locals]
    if len(pools) != 1:
        message = f"'from {queue.name}' needs one pool leased by the 'prefill' entry of {queue.name!r}"
        raise fail("structure", message, at, code="E-call-from")
    return pools[0]


def loading(
    connector: Connector, scope: Scope, loaded: ir.Attr, done: ir.Attr, memory: ir.Ref | None, advance: ir.Expr
) -> list[ir.Stmt]:
    """What happens between the admission and the prefill: tokens arrive, and `advance` of them count as computed."""
    build = scope.build
    run = copy_run(connector.copy, loaded, scope) if connector.copy else _tier_run(connector, loaded, scope)
    arrive: list[ir.Stmt] = [run]
    if memory is not None:
        arrive.append(ir.Load(memory, loaded, advance))
    arrive.append(ir.Set(done.slot, ir.Ctx("now")))
    if connector.copy and scope.source is not None:
        _, pool, index = scope.source
        arrive.append(ir.Release(pool.ref(index)))
    return [ir.Branch(binary("!=", loaded, ir.Num(0.0)), build.block(arrive), build.block([]))]


def check_flow_stage(stage: Resource, at: Place) -> None:
    """A flow moves over stages whose capacity is known."""
    if not stage.constant_rate:
        message = f"a flow needs 'ps' stages of a constant capacity above 0; {stage.name!r} is none"
        raise fail("structure", message, at)


def copy_run(copy: tree.TransferDecl, amount: ir.Expr, scope: Scope) -> ir.Stmt:
    """The flow of a declared copy over the networks of the source and of the reader whose entry this is."""
    build, reader = scope.build, scope.queue
    source = build.queues[copy.source].nic
    assert reader is not None
    assert reader.nic is not None
    assert source is not None
    if scope.source is None:
        message = f"a copy from {copy.source!r} needs an entry declared 'from {copy.source}'"
        raise fail("structure", message, copy.at, code="E-copy-no-entry")
    latency = None if copy.latency is None else lower_number(copy.latency, scope.but(names={}), "a latency")
    if isinstance(latency, ir.Num) and not latency.value >= 0:
        raise fail("structure", "the latency of a copy is not negative", copy.at, code="E-copy-latency")
    for nic in (source, reader.nic):
        check_flow_stage(nic, copy.at)
        nic.ran = True
    target = reader.nic.ref(scope.member if reader.nic.family else None)
    build.share = build.share or copy.share
    return ir.Run((source.ref(scope.source[2]), target), amount, share=copy.share, latency=latency)


def _tier_run(connector: Connector, amount: ir.Expr, scope: Scope) -> ir.Stmt:
    stage = scope.build.resources[connector.queue.name]
    stage.ran = True
    return ir.Run((stage.ref(),), binary("*", amount, _rate(connector, scope)), latency=stage.latency)


def _rate(connector: Connector, scope: Scope) -> ir.Expr:
    if connector.decl.per_token is None:
        raise fail("structure", f"the connector {connector.decl.name!r} has no 'per_token'", connector.decl.at)
    return lower_number(connector.decl.per_token, scope.but(names={}), "'per_token'")


def saving(connector: Connector, scope: Scope, saved: ir.Attr) -> list[ir.Stmt]:
    """What happens after the last token: the tier gets what it does not have yet."""
    if connector.copy is not None or connector.decl.save is None:
        return []
    build = scope.build
    amount = lower_number(connector.decl.save, scope, "the amount saved")
    pool = next(local for local in connector.queue.locals.values() if local.kind == "pool")
    missing = call("max", ir.Num(0.0), binary("-", saved, ir.Attr(build.slots["cached"])))
    fresh = ir.Attr(build.slot(f"{connector.engine.name}.request.missing"))
    body = build.block([ir.Set(fresh.slot, missing), ir.Grow(pool.ref(), fresh), _tier_run(connector, fresh, scope)])
    part = ir.HoldPool(pool.ref(), ir.Call("cachedin", (), pool.ref()))
    return [ir.Set(saved.slot, amount), ir.Hold((part,), body, cache=saved)]
