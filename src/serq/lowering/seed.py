"""A program of the single-file edition to the interchange form."""

from __future__ import annotations

from collections.abc import Mapping

from serq import ir
from serq.errors import Place, SerqError, fail
from serq.ir.moments import MOMENTS
from serq.lowering.build import Build, Engine, Resource, Scope
from serq.lowering.claims import lower_claim, lower_gauge
from serq.lowering.declarations import (
    Inputs,
    Number,
    add_definitions,
    add_lets,
    assigned_names,
    check_definition_order,
    constant_scope,
    observed_names,
)
from serq.lowering.expressions import resolve
from serq.lowering.pools import declare_size, lower_pool, lower_stage, read_capacity
from serq.lowering.settings import Settings, written_settings
from serq.lowering.statements import lower_block
from serq.lowering.step import link_memory, lower_step
from serq.lowering.workload import lower_arrival, lower_trace
from serq.syntax import tree

__all__ = ["lower_single_file"]


class _SingleFile:
    """One single-file program on its way to the interchange form."""

    def __init__(self, items: tuple[tree.Item, ...], inputs: Inputs) -> None:
        self.items = items
        self.inputs = inputs
        self.build = Build(single_file=True)
        self.scope = Scope(self.build, MOMENTS["statement"])
        self.pools: list[tuple[Resource, tree.PoolDecl]] = []
        self.stages: list[tuple[Resource, tree.StageDecl]] = []
        self.pool_rows: list[ir.Pool] = []
        self.stage_rows: list[ir.Stage] = []
        self.gauges: list[ir.Gauge] = []
        self.claims: list[ir.Claim] = []

    def one(self, kind: type, what: str) -> tree.Item | None:
        found = [item for item in self.items if isinstance(item, kind)]
        if len(found) > 1:
            code = {"server": "E-one-server", "workload": "E-one-workload"}.get(what)
            raise fail("structure", f"a second {what!r}", found[1].at, code=code)
        return found[0] if found else None

    def declare(self, defs: Mapping[str, str]) -> None:
        build = self.build
        add_definitions(self.items, build, defs, "single")
        check_definition_order(build, "single")
        add_lets(self.items, build, self.inputs, "single")
        self.inputs.finish()
        for name in defs:
            if name not in build.defs:
                raise fail("override", f"the program has no definition called {name!r}", None)
        for item in self.items:
            if isinstance(item, tree.PoolDecl):
                with build.keeping():
                    self.pool(item)
            elif isinstance(item, tree.StageDecl):
                with build.keeping():
                    self.stage(item)
            elif isinstance(item, tree.ShareDecl):
                build.share = item.policy

    def pool(self, decl: tree.PoolDecl) -> None:
        scope = constant_scope(self.build)
        self.build.declare("pool", decl.name, decl.name_at)
        resource = self.build.add_resource("pool", decl.name, declare_size(decl.size, scope), decl.name_at)
        self.pools.append((resource, decl))
        read_capacity(resource, decl.options, scope)

    def stage(self, decl: tree.StageDecl) -> None:
        size = declare_size(decl.size, constant_scope(self.build))
        self.build.declare("stage", decl.name, decl.name_at)
        resource = self.build.add_resource("stage", decl.name, size, decl.name_at)
        self.stages.append((resource, decl))
        if decl.kind == "step":
            resource.engine = Engine(decl.name, decl.name_at, resource)
            self.build.engines[decl.name] = resource.engine

    def supply_tool(self, bodies: list[tree.Body]) -> None:
        """A `delay` named `tool` when a statement needs one and none is declared."""
        from serq.lowering.workload import needs_tool

        at = next((place for body in bodies if (place := needs_tool(body))), None)
        if at is not None and "tool" not in self.build.resources:
            name = tree.StageDecl(at, "tool", at, None, "delay")
            self.stage(name)

    def link(self) -> None:
        """Which stage admits which queue, and which pool is whose memory."""
        scope = constant_scope(self.build)
        for resource, decl in self.pools:
            for option in decl.options:
                if option.word == "admit":
                    stage, _ = resolve(option.names[0], scope, "stage", whole=True)
                    if stage.engine is None:
                        raise fail("structure", f"{stage.name!r} is no step stage and admits nobody", option.at)
                    resource.admitted_by = stage
        for resource, stage_decl in self.stages:
            link_memory(resource, stage_decl, scope)

    def attributes(self, bodies: list[tree.Body]) -> None:
        build = self.build
        for body in bodies:
            for name, at in assigned_names(body):
                with build.keeping():
                    self._attribute(name, at)
        for body in bodies:
            for name, at in observed_names(body):
                with build.keeping():
                    build.declare("observation", name, at)
                build.observe(name)

    def _attribute(self, name: str, at: Place) -> None:
        if name not in self.build.slots:
            self.build.declare("attribute", name, at)
        self.build.slot(name)

    def rows(self) -> None:
        build = self.build
        for resource, decl in self.stages:
            with build.keeping():
                self.stage_rows.extend(self._stage_rows(resource, decl))
        for pool, pool_decl in self.pools:
            with build.keeping():
                self.pool_rows.extend(lower_pool(pool, pool_decl.options, self.scope))

    def _stage_rows(self, resource: Resource, decl: tree.StageDecl) -> list[ir.Stage]:
        return (
            lower_step(resource, decl, self.scope) if decl.kind == "step" else lower_stage(resource, decl, self.scope)
        )

    def measures(self) -> None:
        build = self.build
        for item in self.items:
            if isinstance(item, tree.GaugeDecl):
                with build.keeping():
                    self._gauge(item)
            elif isinstance(item, tree.ClaimDecl):
                with build.keeping():
                    self._claim(item)

    def _gauge(self, decl: tree.GaugeDecl) -> None:
        self.build.declare("gauge", decl.name, decl.name_at)
        self.gauges.append(lower_gauge(decl, self.scope))

    def _claim(self, decl: tree.ClaimDecl) -> None:
        self.build.declare("claim", decl.name, decl.name_at)
        self.claims.append(lower_claim(decl, self.scope))


def lower_single_file(
    items: tuple[tree.Item, ...], settings: Settings, sets: Mapping[str, Number], defs: Mapping[str, str]
) -> tuple[ir.Program, Build, Settings]:
    """The program, not yet checked as a whole, what was noted of it, and its settings; raises the first error found."""
    single = _SingleFile(items, Inputs(sets))
    build = single.build
    single.declare(defs)
    build.stop()
    workload, session, server = _parts(single)
    build.server = server.body if server else ()
    bodies = _bodies(items)
    single.supply_tool(bodies)
    with build.keeping():
        single.link()
    single.attributes(bodies)
    with build.keeping():
        _hide(workload, build)
    build.stop()
    single.rows()
    init, turn = _preparation(workload.init, single.scope), _preparation(workload.turn, single.scope)
    main = lower_block(session.body, single.scope)
    single.measures()
    settings = written_settings(single.one(tree.RunDecl, "run"), build, settings)
    arrival = lower_arrival(workload.arrive, single.scope)
    build.stop()
    program = ir.Program(
        attrs=tuple(build.attrs),
        builtins=tuple((name, slot) for name, slot in list(build.slots.items())[:9]),
        observes=tuple(build.observes),
        pools=tuple(single.pool_rows),
        stages=tuple(single.stage_rows),
        blocks=tuple(build.blocks),
        session=main,
        arrival=arrival,
        trace=lower_trace(workload, settings),
        init=init,
        turn=turn,
        gauges=tuple(single.gauges),
        claims=tuple(single.claims),
        hidden=tuple(sorted(build.hidden)),
        share=build.share,
        places=build.all_places(),
    )
    return program, build, settings


def _parts(single: _SingleFile) -> tuple[tree.WorkloadDecl, tree.SessionDecl, tree.ServerDecl | None]:
    workload = single.one(tree.WorkloadDecl, "workload")
    if workload is None:
        empty = not single.items
        hint = "write 'workload { arrive batch(1); }'"
        hint = f"{hint}; a deployment is 'fn main() {{ … }}' and a workload file" if empty else hint
        message = "the program is empty" if empty else "the program has no workload"
        raise SerqError("structure", message, hint=hint, code="E-one-workload")
    assert isinstance(workload, tree.WorkloadDecl)
    session = single.one(tree.SessionDecl, "session")
    if workload.session is not None and session is not None:
        raise fail("structure", "a second 'session'", session.at)
    chosen = workload.session or session
    if chosen is None:
        raise fail("structure", "the program has no 'session { … }'", workload.at)
    server = single.one(tree.ServerDecl, "server")
    assert isinstance(chosen, tree.SessionDecl)
    assert server is None or isinstance(server, tree.ServerDecl)
    return workload, chosen, server


def _bodies(items: tuple[tree.Item, ...]) -> list[tree.Body]:
    """Every body of statements, in the order of the text."""
    found: list[tree.Body] = []
    for item in items:
        if isinstance(item, tree.DefDecl | tree.SessionDecl | tree.ServerDecl):
            found.append(item.body)
        elif isinstance(item, tree.WorkloadDecl):
            found += [part.body for part in (item.init, item.turn, item.session) if part]
    return found


def _preparation(part: tree.SessionDecl | None, scope: Scope) -> int | None:
    """The block of `init` or `turn`, which takes no time."""
    if part is None:
        return None
    block = lower_block(part.body, scope)
    if not all(isinstance(stmt, ir.Set | ir.Observe) for stmt in scope.build.blocks[block]):
        raise fail("structure", "'init' and 'turn' hold only 'set' and 'observe'", part.at)
    return block


def _hide(workload: tree.WorkloadDecl, build: Build) -> None:
    for name, at in workload.hidden:
        if name not in build.slots:
            raise fail("name", f"the hidden value {name!r} is never assigned", at)
        build.hidden.add(build.slots[name])
