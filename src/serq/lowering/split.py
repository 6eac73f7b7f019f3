"""A deployment with its workload file to the interchange form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serq import ir
from serq.errors import Place, fail
from serq.ir.moments import MOMENTS
from serq.ir.words import BUILTINS
from serq.lowering.build import Build, Scope
from serq.lowering.claims import lower_claim, lower_gauge
from serq.lowering.declarations import (
    Inputs,
    Number,
    add_definitions,
    add_lets,
    assigned_names,
    check_definition_order,
    observed_names,
)
from serq.lowering.engine import add_registers, engine_scope, lower_engine
from serq.lowering.expressions import lower, lower_number
from serq.lowering.pools import lower_pool, lower_stage
from serq.lowering.settings import Settings
from serq.lowering.split_declare import Declared, declare_items
from serq.lowering.split_signature import (
    check_connectors,
    check_copies,
    check_stages,
    one_server,
    one_workload,
    sent_fields,
)
from serq.lowering.statements import lower_block, lower_body
from serq.lowering.workload import lower_arrival, lower_trace, needs_tool
from serq.syntax import tree
from serq.syntax.walk import nested

__all__ = ["lower_split"]

_LIBRARY = ("std/args", "std/kvt", "std/share")


class _Split:
    """One deployment and its workload on their way to the interchange form."""

    def __init__(self, deployment: tree.Deployment, workload: tree.WorkloadFile) -> None:
        self.items: tuple[tree.Item, ...] = (*deployment.outer, *deployment.items)
        self.client_items = workload.items
        self.build = Build(single_file=False)
        self.declared = Declared()
        self.server = one_server(deployment)
        self.workload = one_workload(workload)
        self.session = self.workload.session
        self.body: tree.Body = self.session.body if self.session else (tree.WordStatement(self.workload.at, "turn"),)
        self.stage_rows: dict[int, list[ir.Stage]] = {}
        self.pool_rows: list[ir.Pool] = []
        self.gauges: list[ir.Gauge] = []
        self.claims: list[ir.Claim] = []

    def scope(self, side: str) -> Scope:
        return Scope(self.build, MOMENTS["statement"], side)

    def constants(self, sets: Mapping[str, Number], defs: Mapping[str, str]) -> None:
        build, inputs = self.build, Inputs(sets)
        for items, side in ((self.items, "server"), (self.client_items, "client")):
            build.uses = set()
            for item in items:
                if isinstance(item, tree.UseDecl):
                    with build.keeping():
                        _use(item, build)
            add_definitions(items, build, defs, side)
            check_definition_order(build, side)
            add_lets(items, build, inputs, side)
        build.uses = {item.path for item in self.items if isinstance(item, tree.UseDecl)}
        with build.keeping():
            inputs.finish()
        for name in defs:
            if name not in build.defs and name not in build.client_defs:
                raise fail("override", f"the program has no definition called {name!r}", None)
        build.stop()

    def names(self) -> None:
        """Attributes by side, parameters, replies and observations, in the order of the text."""
        build = self.build
        server, client = build.sides["server"], build.sides["client"]
        bodies = [part.body for part in (self.workload.init, self.workload.turn) if part]
        for body in (*bodies, self.body, *_definition_bodies(self.client_items)):
            self._assigned(body, client)
        self._parameters()
        for body in (self.server.body, *_definition_bodies(self.items)):
            self._assigned(body, server)
        for name, at in self.server.reply:
            self._attribute(name, at, server)
            build.replies.add(name)
            slot = build.params.get(name, build.slot(name))
            build.reply_slots.append((slot, name, at))
        for body in _observing(self.items, self.server.body):
            self._observed(body)
        for body in (*_definition_bodies(self.client_items), *bodies, self.body):
            self._observed(body)

    def _assigned(self, body: tree.Body, side: set[str]) -> None:
        for name, at in assigned_names(body):
            with self.build.keeping():
                self._attribute(name, at, side)

    def _attribute(self, name: str, at: Place, side: set[str]) -> None:
        if name not in self.build.slots:
            self.build.declare("attribute", name, at)
            self.build.slot(name)
        side.add(name)

    def _observed(self, body: tree.Body) -> None:
        for name, at in observed_names(body):
            with self.build.keeping():
                self.build.declare("observation", name, at)
            self.build.observe(name)

    def _parameters(self) -> None:
        """A parameter sent as the attribute of its name is that attribute; any other has a slot of its own."""
        build = self.build
        fields = sent_fields(self.server, self.workload)
        for name, hidden, at in self.server.params:
            build.sides["server"].add(name)
            shared = fields[name].value is None
            if not shared and (name in build.sides["client"] or name in BUILTINS):
                slot = build.slot(f"server.{name}")
            else:
                if name not in build.slots and not shared:
                    build.declare("attribute", name, at)
                slot = build.slot(name)
            build.params[name] = slot
            if hidden:
                build.hidden.add(slot)

    # --- lowering -----------------------------------------------------------------------------------------------------

    def resources(self) -> None:
        build = self.build
        for engine in self.declared.engines:
            with build.keeping():
                add_registers(engine, self.scope("server"))
        for resource, decl, queue in self.declared.stages:
            scope = self.scope(resource.side).but(queue=queue)
            with build.keeping():
                self.stage_rows[resource.base] = lower_stage(resource, decl, scope)
        for engine in self.declared.engines:
            scope = self.scope("server")
            with build.keeping():
                self.stage_rows[engine.stage.base] = lower_engine(engine, scope)
        for pool, pool_decl, queue, side in self.declared.pools:
            scope = self.scope(side).but(queue=queue)
            if pool.admitted_by is not None and pool.admitted_by.engine is not None:
                scope = engine_scope(pool.admitted_by.engine, scope)
            with build.keeping():
                self.pool_rows.extend(lower_pool(pool, pool_decl.options, scope))

    def blocks(self) -> tuple[int | None, int | None, int]:
        """The init, turn and session blocks; the server's block is made first."""
        build, client = self.build, self.scope("client")
        sends = self._sends()
        build.sends = len(sends)
        build.server_block = build.block([*sends, *lower_body(self.server.body, self.scope("server"))])
        for part in (self.workload.init, self.workload.turn):
            if part is not None:
                with build.keeping():
                    _check_preparation(part)
        init = lower_block(self.workload.init.body, client) if self.workload.init else None
        turn = lower_block(self.workload.turn.body, client) if self.workload.turn else None
        if not any(isinstance(one, tree.WordStatement) and one.word == "turn" for one in nested(self._everything())):
            at = self.session.at if self.session else self.workload.at
            build.errors.append(fail("structure", "the session never takes a turn", at, hint="add 'turn;'"))
        return init, turn, lower_block(self.body, client)

    def _everything(self) -> tree.Body:
        return (*self.body, *(one for body in _definition_bodies(self.client_items) for one in body))

    def _sends(self) -> list[ir.Stmt]:
        build, client = self.build, self.scope("client")
        found: list[ir.Stmt] = []
        for field in self.workload.send:
            if field.name not in build.params:
                continue
            if field.value is None:
                path = tree.Path(field.at, (tree.Part(field.at, field.name),))
                with build.keeping():
                    _readable(path, client)
            else:
                slot = build.params[field.name]
                with build.keeping():
                    found.append(ir.Set(slot, lower_number(field.value, client)))
        return found

    def measures(self) -> None:
        build, scope = self.build, self.scope("server")
        for item in self.items:
            if isinstance(item, tree.GaugeDecl):
                with build.keeping():
                    self._gauge(item, scope)
            elif isinstance(item, tree.ClaimDecl):
                with build.keeping():
                    self._claim(item, scope)

    def _gauge(self, decl: tree.GaugeDecl, scope: Scope) -> None:
        self.build.declare("gauge", decl.name, decl.name_at)
        self.gauges.append(lower_gauge(decl, scope))

    def _claim(self, decl: tree.ClaimDecl, scope: Scope) -> None:
        self.build.declare("claim", decl.name, decl.name_at)
        self.claims.append(lower_claim(decl, scope))

    def stages(self) -> tuple[ir.Stage, ...]:
        return tuple(row for base in sorted(self.stage_rows) for row in self.stage_rows[base])


def lower_split(
    deployment: tree.Deployment,
    workload: tree.WorkloadFile,
    settings: Settings,
    sets: Mapping[str, Number],
    defs: Mapping[str, str],
) -> tuple[ir.Program, Build, Settings]:
    """The program, not yet checked as a whole, what was noted of it, and its settings; raises the first error found."""
    split = _Split(deployment, workload)
    build = split.build
    split.constants(sets, defs)
    declare_items(split.items, build, split.declared, "server")
    declare_items(split.client_items, build, split.declared, "client")
    _supply_tool(split)
    split.names()
    build.stop()
    for item in split.items:
        if isinstance(item, tree.TransferDecl):
            with build.keeping():
                check_copies(item, build)
    with build.keeping():
        check_connectors(build)
    split.resources()
    init, turn, session = split.blocks()
    split.measures()
    arrival = lower_arrival(split.workload.arrive, split.scope("client"))
    check_stages(split.declared, build)
    build.stop()
    program = ir.Program(
        attrs=tuple(build.attrs),
        builtins=tuple((name, build.slots[name]) for name in BUILTINS),
        observes=tuple(build.observes),
        pools=tuple(split.pool_rows),
        stages=split.stages(),
        blocks=tuple(build.blocks),
        session=session,
        arrival=arrival,
        trace=lower_trace(split.workload, settings),
        init=init,
        turn=turn,
        gauges=tuple(split.gauges),
        claims=tuple(split.claims),
        registers=tuple(build.registers),
        hidden=tuple(sorted(build.hidden)),
        share=build.share,
        client=True,
        places=build.all_places(),
    )
    return program, build, settings


def _supply_tool(split: _Split) -> None:
    """A `delay` named `tool` when the session needs one and declares none."""
    at = needs_tool(split._everything())
    if at is not None and "tool" not in split.build.resources:
        decl = tree.StageDecl(at, "tool", at, None, "delay")
        declare_items((decl,), split.build, split.declared, "client")


def _use(item: tree.UseDecl, build: Build) -> None:
    if item.path not in _LIBRARY:
        hint = f"the split edition reads {', '.join(_LIBRARY)}"
        raise fail("structure", f"nothing is called {item.path!r} to use", item.at, hint=hint)
    build.uses.add(item.path)


def _definition_bodies(items: Iterable[tree.Item]) -> list[tree.Body]:
    return [item.body for item in items if isinstance(item, tree.DefDecl)]


def _observing(items: tuple[tree.Item, ...], server: tree.Body) -> Iterable[tree.Body]:
    """The bodies of a deployment that record observations, in the order of the text."""
    for item in items:
        if isinstance(item, tree.DefDecl):
            yield item.body
        elif isinstance(item, tree.QueueDecl):
            yield from (entry.body for entry in item.items if isinstance(entry, tree.EntryDecl))
        elif isinstance(item, tree.ServerDecl):
            yield server


def _readable(path: tree.Path, scope: Scope) -> None:
    lower(path, scope)


def _check_preparation(part: tree.SessionDecl) -> None:
    for one in part.body:
        if not isinstance(one, tree.SetStatement):
            raise fail("structure", "'init' and 'turn' hold only 'set', 'Size' and 'observe'", one.at)
