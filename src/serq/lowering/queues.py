"""Calls of queue entries, written out where they are called.  Source: docs/language.md, "Queues and entries"."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serq import ir
from serq.errors import Place, closest, fail
from serq.lowering.build import Queue, Resource, Scope, Value
from serq.lowering.connectors import leased_pool
from serq.lowering.expansion import inside
from serq.lowering.expressions import lower_number
from serq.lowering.runs import copy_content
from serq.syntax import tree

__all__ = ["ENTRY_PARAMETERS", "call_entry"]

_Body = Callable[[tree.Body, Scope], Sequence[ir.Stmt]]
ENTRY_PARAMETERS = {"route": 0, "prefill": 1, "decode": 1, "transfer": 1}
"""How many parameters each kind of entry has."""


def call_entry(statement: tree.EntryCall, scope: Scope, body: _Body) -> Sequence[ir.Stmt]:
    """The statements of the entry, with what its parameters need set before; `body` lowers its text."""
    queue, index = _queue(statement.queue, scope)
    entry = queue.entries.get(statement.verb)
    if entry is None and not (statement.verb == "transfer" and "link" in queue.decl.roles):
        hint = closest(statement.verb, queue.entries)
        raise fail("name", f"{queue.name!r} has no entry {statement.verb!r}", statement.at, hint=hint)
    wanted = ENTRY_PARAMETERS[statement.verb]
    if len(statement.args) != wanted:
        message = f"'{queue.name}.{statement.verb}' takes {wanted} argument{'s' * (wanted != 1)}"
        raise fail("call", f"{message}, not {len(statement.args)}", statement.at)
    steps: list[ir.Stmt] = []
    member = _kept(index, f"{queue.name}.self", steps, scope) if queue.family else None
    inner = _inside(statement, queue, entry, member, steps, scope)
    if entry is None:
        steps.append(_service(statement, queue, member, scope))
    else:
        steps += body(entry.body, inner)
    if statement.target is not None and statement.source is not None and statement.load is not None:
        steps += copy_content(statement.source, statement.target, statement.load, scope)
    return steps


def _queue(path: tree.Path, scope: Scope) -> tuple[Queue, ir.Expr | None]:
    build, first = scope.build, path.parts[0]
    queue = build.queues.get(first.name)
    if queue is None or len(path.parts) > 1:
        raise fail("name", f"no queue is called {path.text!r}", path.at, hint=closest(path.text, build.queues))
    if first.index is None:
        if queue.family and scope.queue is queue:
            return queue, scope.member
        if queue.family:
            message = f"{queue.name!r} is a family of {queue.count}: it needs an index"
            raise fail("reference", message, path.at, hint=f"write '{queue.name}[0]'")
        return queue, None
    index = lower_number(first.index, scope, "an index")
    if isinstance(index, ir.Num) and not (0 <= index.value < queue.count and index.value % 1 == 0):
        message = f"index {index.value:g} is outside {queue.name!r}, whose members are 0 to {queue.count - 1}"
        raise fail("reference", message, path.at)
    if not queue.family and index != ir.Num(0.0):
        raise fail("reference", f"{queue.name!r} is not a family and takes no index", path.at)
    return queue, index if queue.family else None


def _kept(value: ir.Expr | None, name: str, steps: list[ir.Stmt], scope: Scope) -> ir.Expr:
    """The value as it is at the call: a number, or an attribute that holds it from then on."""
    assert value is not None
    if isinstance(value, ir.Num):
        return value
    slot = scope.build.slot(name)
    if value != ir.Attr(slot):
        steps.append(ir.Set(slot, value))
    return ir.Attr(slot)


def _inside(
    statement: tree.EntryCall,
    queue: Queue,
    entry: tree.EntryDecl | None,
    member: ir.Expr | None,
    steps: list[ir.Stmt],
    scope: Scope,
) -> Scope:
    name = f"{queue.name}.{statement.verb}"
    if name in scope.calls:
        raise fail("structure", f"{name!r} calls itself", statement.at)
    params = entry.params if entry is not None else ()
    names: dict[str, Value] = {}
    for param, arg in zip(params, statement.args, strict=False):
        value = lower_number(arg, scope, f"the argument {param!r}")
        names[param] = Value(_kept(value, f"{queue.name}.{statement.verb}.{param}", steps, scope))
    source = _source(statement, queue, entry, steps, scope) if entry is not None else None
    return inside(name, statement.at, scope.to("statement")).but(
        side="entry",
        names=names,
        queue=queue,
        member=member,
        source=source,
        engine=None,
        request={},
        calls=(*scope.calls, name),
    )


def _source(
    statement: tree.EntryCall, queue: Queue, entry: tree.EntryDecl, steps: list[ir.Stmt], scope: Scope
) -> tuple[str, Resource, ir.Expr | None] | None:
    at: Place = statement.at
    if statement.target is not None:
        return None
    if entry.source is None:
        if statement.source is not None:
            message = f"'{queue.name}.{statement.verb}' is not declared 'from' a queue"
            raise fail("structure", message, statement.source.at, code="E-call-from")
        return None
    if statement.source is None:
        message = f"'{queue.name}.{statement.verb}' is called 'from {entry.source}'"
        raise fail("structure", message, at, code="E-call-from")
    origin, index = _queue(statement.source, scope)
    if origin.name != entry.source:
        message = f"'{queue.name}.{statement.verb}' reads from {entry.source!r}, not from {origin.name!r}"
        raise fail("structure", message, statement.source.at, code="E-call-from")
    pool = leased_pool(origin, statement.source.at)
    kept = _kept(index, f"{queue.name}.from", steps, scope) if origin.family else None
    return entry.source, pool, kept


def _service(statement: tree.EntryCall, queue: Queue, member: ir.Expr | None, scope: Scope) -> ir.Stmt:
    """A link without an entry runs its service stage."""
    stage = queue.locals.get(queue.name)
    if stage is None:
        raise fail("structure", f"the link {queue.name!r} has no 'serve' stage", statement.at)
    stage.ran = True
    work = lower_number(statement.args[0], scope, "the work of a transfer")
    return ir.Run((stage.ref(member if stage.family else None),), work, latency=stage.latency)
