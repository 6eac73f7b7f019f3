"""A request to an engine, `E (input, output)`, written out as statements.  Source: docs/language.md, "Requests"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serq import ir
from serq.errors import Place, SerqError, fail
from serq.ir.fold import binary, call, conditional, reads
from serq.lowering.build import Amount, Engine, Frame, Resource, Scope
from serq.lowering.connectors import Connector, find_connector, loading, saving
from serq.lowering.engine import engine_scope
from serq.lowering.expressions import expression_names, lower_number, resolve
from serq.lowering.hold import check_units, lower_chain
from serq.syntax import tree

__all__ = ["lower_request", "taking_of"]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What `taking` becomes: the pools, and the memory if it is among them."""

    pools: tuple[ir.HoldPool, ...]
    names: frozenset[str]
    reuse: ir.Expr | None
    prefix: tuple[tuple[ir.Expr, ir.Expr], ...]
    private: int | None


class _Request:
    """One request: its hidden attributes and the expressions over them."""

    def __init__(self, engine: Engine, scope: Scope) -> None:
        self.engine = engine
        self.scope = scope
        self.build = scope.build
        self.input = self.attr("request.input")
        self.output = self.attr("request.output")
        self.known = self.attr("request.known")
        self.preempted = self.attr("request.preempted")
        self.finished = self.attr("request.finished")
        self.begun = self.attr("request.begun")
        self.reused = self.attr("reused")
        self.prefill = self.attr("prefill")
        self.memory: ir.Ref | None = None

    def attr(self, name: str) -> ir.Attr:
        return ir.Attr(self.build.slot(f"{self.engine.name}.{name}"))

    def observe(self, name: str, value: ir.Expr) -> ir.Stmt:
        return ir.Observe(self.build.observe(f"{self.engine.name}.{name}"), value)

    @property
    def done(self) -> ir.Expr:
        """Tokens whose content exists once the request has ended."""
        return binary("+", self.input, self.output)

    def resumed(self) -> ir.Expr:
        """Tokens whose content exists once the position is `computed`."""
        computed = ir.Attr(self.build.slots["computed"])
        below = binary("<", computed, self.input)
        exists = conditional(below, self.input, binary("+", computed, ir.Num(1.0)))
        return call("max", self.known, exists)

    def words(self) -> dict[str, ir.Expr]:
        return {"input": self.input, "output": self.output, "known": self.known, "preempted": self.preempted}

    @property
    def stage(self) -> ir.Ref:
        resource = self.engine.stage
        return resource.ref(self.scope.member if resource.family else None)


def lower_request(statement: tree.CallStatement, engine: Engine, scope: Scope) -> Sequence[ir.Stmt]:
    """The statements of one request."""
    if len(statement.args) != 2:
        raise fail("call", f"{engine.name!r} takes its input and its output, two numbers", statement.at)
    engine.stage.ran = True
    if engine.stage.family and scope.member is None:
        raise fail("reference", f"{engine.name!r} is a family: request a member of its queue", statement.at)
    _check_form(engine, scope, statement.at)
    request = _Request(engine, scope)
    start = _start(statement, request)
    taking = taking_of(engine)
    connector = find_connector(engine, scope, statement.at)
    if taking is None:
        return (*start, *_work(request, None, cached=False))
    if connector is not None:
        start = (*start, ir.Set(request.attr("load_done").slot, ir.Num(0.0)))
    return (*start, _hold(statement, taking, request, connector))


def _check_form(engine: Engine, scope: Scope, at: Place) -> None:
    if engine.queue is not None and scope.queue is not engine.queue:
        raise fail("structure", f"the engine of {engine.name!r} is requested inside its entries", at)


def _start(statement: tree.CallStatement, request: _Request) -> Sequence[ir.Stmt]:
    scope = request.scope
    written_in, written_out = statement.args
    amounts = (
        lower_number(written_in, scope, "the input of a request"),
        lower_number(written_out, scope, "the output of a request"),
    )
    for value, least, what, at in (
        (amounts[0], 0, "input", written_in.at),
        (amounts[1], 1, "output", written_out.at),
    ):
        if isinstance(value, ir.Num) and not value.value >= least:
            raise fail("value", f"the {what} of a request is at least {least}, not {value.value:g}", at)
        scope.build.amounts.append(Amount(value, f"the {what} of a request to {request.engine.name!r}", at))
    _check_hidden(amounts[1], written_out.at, request)
    zero = ir.Num(0.0)
    return (
        ir.Set(request.input.slot, amounts[0], 0.0),
        ir.Set(request.output.slot, amounts[1], 1.0),
        ir.Set(request.known.slot, request.input),
        ir.Set(request.preempted.slot, zero),
        ir.Set(request.finished.slot, zero),
        ir.Set(request.begun.slot, zero),
    )


def _check_hidden(output: ir.Expr, at: Place, request: _Request) -> None:
    """A hidden output may be read by `cache` only."""
    taking = taking_of(request.engine)
    hidden = sorted(reads(output) & request.build.hidden)
    if taking is None or not hidden:
        return
    headers = [part.units for part in taking.parts] + [part.reserve for part in taking.parts if part.reserve]
    headers += [expr for segment in taking.prefix for expr in segment]
    headers += [taking.reuse] if taking.reuse is not None else []
    for header in headers:
        if any(isinstance(one, tree.Path) and one.text == "request.output" for one in expression_names(header)):
            name = request.build.attrs[hidden[0]]
            message = f"'taking' of {request.engine.name!r} reads the output, and {name!r} is hidden from it"
            raise fail("hidden", message, at, hint="only 'cache' may read a hidden 'request.output'")


def taking_of(engine: Engine) -> tree.Taking | None:
    """What the scheduler of an engine lets a request take: its first `taking`."""
    if engine.taking is None and engine.decl is not None:
        found: list[tree.Taking] = []
        waiting = list(engine.decl.scheduler or ())
        while waiting:
            one = waiting.pop(0)
            if one.taking is not None:
                found.append(one.taking)
            waiting = [*one.then, *one.otherwise, *waiting]
        engine.taking = found[0] if found else None
    return engine.taking


# --- the hold ---------------------------------------------------------------------------------------------------------


def _hold(
    statement: tree.CallStatement, taking: tree.Taking, request: _Request, connector: Connector | None
) -> ir.Stmt:
    build, engine = request.build, request.engine
    header = engine_scope(engine, request.scope).to("admission").but(names={}, holds=(), request=request.words())
    cached = taking.cache is not None
    if not cached and (taking.reuse is not None or taking.prefix):
        raise fail("structure", "'reuse' and 'prefix' have no meaning without 'cache'", taking.at)
    taken = _taken(taking, request, header, connector)
    body = build.block(_work(request, connector, cached=cached and request.memory is not None))
    cache = None if taking.cache is None else _cache(taking.cache, request, header)
    again = build.block([ir.Set(request.known.slot, request.resumed()), ir.Set(request.preempted.slot, ir.Num(1.0))])
    prefix, private = taken.prefix, taken.private
    return ir.Hold(taken.pools, body, taken.reuse, cache, (), prefix, private, None, again, request.memory)


def _taken(taking: tree.Taking, request: _Request, header: Scope, connector: Connector | None) -> _Taken:
    engine, cached = request.engine, taking.cache is not None
    resolved = []
    for part in taking.parts:
        pool, ref = _taken_pool(part, engine, header)
        if pool is not engine.memory and pool not in engine.pools:
            raise fail("structure", f"{pool.name!r} belongs neither to {engine.name!r} nor to its device", part.pool.at)
        if pool is engine.memory:
            request.memory = ref
        resolved.append((part, pool, ref))
    reuse = None if taking.reuse is None else lower_number(taking.reuse, header, "'reuse'")
    if reuse is not None:
        _decide(reuse, "'reuse'", request)
    hit: ir.Expr = ir.Num(0.0)
    if cached and request.memory is not None:
        hit = ir.Call("cachedin", (), request.memory)
        hit = hit if reuse is None else call("min", hit, reuse)
    words = {**header.request, "hit": hit}
    if connector is not None:
        words["loaded"] = connector.load(header.but(request=words))
    header = header.but(request=words)
    for _, pool, _ in resolved:
        pool.cached = pool.cached or taking.cache is not None
    pools = tuple(_part(part, pool, ref, header, engine) for part, pool, ref in resolved)
    prefix, private = lower_chain(taking.prefix, header)
    names = frozenset(pool.name for _, pool, _ in resolved)
    if prefix and all(pool.block is None for _, pool, _ in resolved):
        raise fail("structure", "a 'prefix' chain needs a pool with a 'block'", taking.at)
    return _Taken(pools, names, reuse, prefix, private)


def _taken_pool(part: tree.HoldPart, engine: Engine, header: Scope) -> tuple[Resource, ir.Ref]:
    try:
        return resolve(part.pool, header, "pool")
    except SerqError as error:
        own = [pool.name for pool in (*engine.pools, *((engine.memory,) if engine.memory else ()))]
        error.hint = error.hint or f"{engine.name!r} takes {', '.join(dict.fromkeys(own)) or 'no pool'}"
        raise


def _decide(expr: ir.Expr, what: str, request: _Request) -> None:
    build, engine = request.build, request.engine
    build.headers.append((expr, what, engine.at))
    build.decisions.append((expr, what, engine.at))
    build.amounts.append(Amount(expr, f"{what} of {engine.name!r}", engine.at))


def _part(part: tree.HoldPart, pool: Resource, ref: ir.Ref, header: Scope, engine: Engine) -> ir.HoldPool:
    def units(expr: tree.Expression) -> ir.Expr:
        value = lower_number(expr, header, "an amount of 'taking'")
        check_units(value, pool, part.pool.at, header, must_fit=False)
        return value

    taken = units(part.units)
    what = f"the amount of {pool.name!r} that {engine.name!r} takes"
    header.build.amounts.append(Amount(taken, what, engine.at, pool))
    return ir.HoldPool(ref, taken, None if part.reserve is None else units(part.reserve))


def _cache(written: tree.Expression, request: _Request, header: Scope) -> ir.Expr:
    words = {
        "input": request.input,
        "output": request.output,
        "known": conditional(request.finished, request.done, request.resumed()),
        "preempted": request.preempted,
        "finished": request.finished,
    }
    moment = header.to("statement").but(request=words, holds=(Frame(frozenset(), True),))
    value = lower_number(written, moment, "'cache'")
    request.build.amounts.append(Amount(value, f"'cache' of {request.engine.name!r}", request.engine.at))
    return value


# --- the work ---------------------------------------------------------------------------------------------------------


def _work(request: _Request, connector: Connector | None, *, cached: bool) -> list[ir.Stmt]:
    """From the admission to the last token."""
    build, stage, memory = request.build, request.stage, request.memory
    consumed: ir.Expr = ir.Attr(build.slots["cached"]) if cached else ir.Num(0.0)
    left = binary("-", request.known, request.reused)
    steps: list[ir.Stmt] = [
        ir.Set(request.attr("admitted").slot, ir.Ctx("now")),
        ir.Set(request.reused.slot, consumed),
    ]
    if connector is not None:
        loaded = request.attr("loaded")
        load = connector.load(_after(request))
        steps += [ir.Set(loaded.slot, load), request.observe("loaded", loaded)]
        rest = call("max", ir.Num(1.0), binary("-", left, loaded))
        left = conditional(binary("==", request.known, ir.Num(0.0)), binary("-", left, loaded), rest)
    steps += [
        ir.Set(request.prefill.slot, left),
        request.observe("reused", request.reused),
        request.observe("prefill", request.prefill),
    ]
    if connector is not None:
        advance = binary("-", binary("-", request.known, request.prefill), request.reused)
        steps += loading(connector, request.scope, request.attr("loaded"), request.attr("load_done"), memory, advance)
    work: ir.Expr = call("max", ir.Num(0.0), request.prefill) if cached else request.prefill
    first = build.block([ir.Set(request.attr("first").slot, ir.Ctx("now")), ir.Set(request.begun.slot, ir.Num(1.0))])
    decodes = _decodes(request)
    prefill: list[ir.Stmt] = [
        ir.Run((stage,), work, "prefill", memory),
        ir.Branch(binary("==", request.begun, ir.Num(0.0)), first, build.block([])),
    ]
    steps += [
        ir.Branch(binary(">", request.known, ir.Num(0.0)), build.block(prefill), build.block([])),
        ir.Run((stage,), decodes, "decode", memory),
    ]
    if connector is not None:
        steps += saving(connector, _after(request, known=request.done), request.attr("saved"))
    return [*steps, ir.Set(request.finished.slot, ir.Num(1.0))]


def _decodes(request: _Request) -> ir.Expr:
    """The output tokens still to be decoded: none that exist already; all of them where there is nothing to prefill."""
    whole = binary("-", request.output, ir.Num(1.0))
    exist = binary("-", request.known, request.input)
    first = conditional(binary("==", request.known, ir.Num(0.0)), request.output, whole)
    return conditional(binary(">", exist, ir.Num(0.0)), call("max", ir.Num(0.0), binary("-", whole, exist)), first)


def _after(request: _Request, known: ir.Expr | None = None) -> Scope:
    """The scope of a connector's amounts after the admission: the hit is what was consumed."""
    words = {**request.words(), "hit": request.reused}
    if known is not None:
        words["known"] = known
    inside = engine_scope(request.engine, request.scope).to("statement")
    return inside.but(names={}, request=words, holds=(Frame(frozenset(), True),))
