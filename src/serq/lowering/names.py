"""What a name in an expression means, and whether this place and moment may read it."""

from __future__ import annotations

from collections.abc import Callable

from serq import ir
from serq.errors import Place, closest, fail
from serq.ir.moments import CONTEXT_WORDS
from serq.ir.words import BUILTINS, RETIRED_WORDS, TRACE_ATTRIBUTES
from serq.lowering.build import Macro, Scope, Value
from serq.syntax import tree

__all__ = ["assign", "attribute_slot", "lower_path", "readable_names"]

_Lower = Callable[[tree.Expression, Scope], Value]
_REQUEST_WORDS = ("input", "output", "known", "hit", "loaded", "preempted", "finished")
_RESULTS = ("admitted", "first", "reused", "prefill", "loaded", "saved", "load_done")


def lower_path(path: tree.Path, scope: Scope, lower: _Lower) -> Value:
    """The value of a name or dotted name."""
    first = path.parts[0]
    bound = scope.names.get(first.name)
    if isinstance(bound, Macro) and len(path.parts) == 1:
        return lower(bound.expr, bound.scope)
    if isinstance(bound, Value) and len(path.parts) == 1 and first.index is None:
        return bound
    if len(path.parts) > 1:
        return _dotted(path, scope)
    if first.index is not None:
        raise fail("name", f"{first.name!r} with an index is not a value", path.at)
    return _word(first.name, path.at, scope)


def _word(name: str, at: Place, scope: Scope) -> Value:
    build = scope.build
    if name == "inf":
        return Value(ir.Num(float("inf")))
    if name == "now":
        if not scope.moment.now:
            raise fail("moment", f"'now' cannot be read in {scope.moment.name}", at)
        return Value(ir.Ctx("now"))
    if name == "self" and scope.queue is not None:
        return Value(scope.member if scope.member is not None else ir.Num(0.0))
    lets = build.lets_of(scope.side)
    if name in lets:
        return Value(ir.Num(lets[name]))
    if name in CONTEXT_WORDS:
        if name not in scope.moment.words:
            raise fail("moment", f"{name!r} does not exist in {scope.moment.name}", at)
        return Value(ir.Ctx(name))
    register = _register(name, scope)
    if register is not None:
        if not scope.moment.registers:
            raise fail("moment", f"the register {name!r} cannot be read in {scope.moment.name}", at)
        return Value(ir.Reg(register))
    return _attribute(name, at, scope)


def _register(name: str, scope: Scope) -> int | None:
    if scope.engine is not None:
        return scope.engine.registers.get(name)
    if scope.moment.name not in ("a gauge", "an end claim", "an iteration claim"):
        return None
    return next((e.registers[name] for e in scope.build.engines.values() if name in e.registers), None)


# --- attributes -------------------------------------------------------------------------------------------------------


def readable_names(scope: Scope) -> set[str]:
    """The attributes this side may read, by the names it writes."""
    build = scope.build
    if scope.side in ("single", "everywhere"):
        return set(build.slots)
    if scope.side == "server":
        return build.sides["server"] | {"serial", "cached", "computed"}
    if scope.side == "client":
        return build.sides["client"] | set(BUILTINS)
    hidden = {name for name, slot in build.params.items() if slot in build.hidden}
    names = {"cached", "computed"} | hidden
    if scope.queue is not None:
        names |= scope.queue.names
        if "gateway" in scope.queue.decl.roles:
            names |= build.sides["server"] | {"serial"}
    return names


def attribute_slot(name: str, scope: Scope) -> int:
    """The slot a name has on this side; inside an entry its own names belong to the queue."""
    build = scope.build
    if scope.side == "entry" and scope.queue is not None and name in scope.queue.names:
        return build.slot(f"{scope.queue.name}.{name}")
    if scope.side in ("server", "entry", "everywhere") and name in build.params:
        return build.params[name]
    return build.slot(name)


def _attribute(name: str, at: Place, scope: Scope) -> Value:
    build = scope.build
    readable = readable_names(scope)
    if name not in readable:
        raise _unreadable(name, at, scope, readable)
    if not scope.moment.attributes:
        raise fail("moment", f"the attribute {name!r} cannot be read in {scope.moment.name}", at)
    slot = attribute_slot(name, scope)
    if name == "cached" and scope.moment.hidden and scope.holds and not scope.holds[-1].cache:
        pools = " and ".join(sorted(scope.holds[-1].pools))
        hint = "give the hold a 'cache (units)' clause"
        raise fail("structure", f"'cached' is read inside a hold of {pools} that has no 'cache' clause", at, hint=hint)
    return Value(ir.Attr(slot), build.costs.get(slot))


def _unreadable(name: str, at: Place, scope: Scope, readable: set[str]) -> Exception:
    build = scope.build
    if scope.side == "server" and (name in build.sides["client"] or name in TRACE_ATTRIBUTES):
        hint = f"send it: add it to 'send (…)' and to 'server (…, {name})'"
        return fail("signature", f"{name!r} belongs to the workload; the server does not see it", at, hint=hint)
    if scope.side == "client" and name in build.sides["server"]:
        hint = f"reply it: 'server … reply ({name})', then read 'reply.{name}' after a turn"
        return fail("signature", f"{name!r} belongs to the server; the workload does not see it", at, hint=hint)
    if name in build.resources or name in build.queues:
        return fail("name", f"{name!r} names a resource, not a value", at)
    if name in build.defs_of(scope.side):
        return fail("call", f"{name!r} is a definition: call it with its arguments", at)
    if name in RETIRED_WORDS:
        return fail("name", f"{name!r} is retired", at, hint=f"write {RETIRED_WORDS[name]!r}")
    known = readable | set(build.lets_of(scope.side)) | set(scope.names) | set(scope.moment.words)
    return fail("name", f"nothing is called {name!r} here", at, hint=closest(name, known))


# --- dotted names -----------------------------------------------------------------------------------------------------


def _dotted(path: tree.Path, scope: Scope) -> Value:
    build, first, text = scope.build, path.parts[0].name, path.text
    if first in ("running", "waiting", "batch") and len(path.parts) == 2:
        if text not in scope.moment.dotted:
            known = closest(text, scope.moment.dotted)
            raise fail("moment", f"{text!r} does not exist in {scope.moment.name}", path.at, hint=known)
        return Value(ir.Ctx(scope.moment.dotted[text]))
    if first == "request" and len(path.parts) == 2:
        return _request(path, scope)
    if first == "reply":
        return _reply(path, scope)
    if text in build.slots and build.slots[text] in build.costs and scope.side != "entry":
        return _mark(path, scope)
    if first in build.queues or first in build.engines:
        return _mark(path, scope)
    hint = closest(first, [*build.queues, *build.engines])
    raise fail("name", f"nothing is called {text!r} here", path.at, hint=hint)


def _request(path: tree.Path, scope: Scope) -> Value:
    word = path.parts[1].name
    if word in scope.request:
        return Value(scope.request[word])
    if word in _REQUEST_WORDS:
        raise fail("moment", f"'request.{word}' cannot be read here", path.at)
    raise fail("name", f"a request has no {word!r}", path.at, hint=closest(word, _REQUEST_WORDS))


def _reply(path: tree.Path, scope: Scope) -> Value:
    build, name = scope.build, path.parts[-1].name
    if scope.side != "client" or len(path.parts) != 2:
        raise fail("signature", "'reply' is read by the workload after a turn", path.at)
    if name not in build.replies:
        raise fail("signature", f"the server does not reply {name!r}", path.at, hint=closest(name, build.replies))
    if not scope.moment.attributes:
        raise fail("moment", f"{path.text!r} cannot be read in {scope.moment.name}", path.at)
    return Value(ir.Attr(build.params.get(name, build.slot(name))))


def _mark(path: tree.Path, scope: Scope) -> Value:
    build, name = scope.build, path.text
    queue = build.queues.get(path.parts[0].name)
    engine = build.engines.get(path.parts[0].name)
    if scope.side == "client":
        raise fail("signature", f"{name!r} belongs to the deployment", path.at)
    if not scope.moment.attributes:
        raise fail("moment", f"{name!r} cannot be read in {scope.moment.name}", path.at)
    word = path.parts[-1].name
    known = set(queue.names) if queue else set()
    if engine is not None:
        known |= set(_RESULTS)
    if name in build.slots and build.slots[name] in build.costs:
        known.add(word)
    if word not in known or len(path.parts) != 2:
        message = f"{path.parts[0].name!r} leaves no value called {word!r}"
        raise fail("name", message, path.at, hint=closest(word, known))
    slot = build.slot(name)
    return Value(ir.Attr(slot), build.costs.get(slot))


def assign(name: str, at: Place, scope: Scope) -> int:
    """The slot a statement may assign under a name on this side."""
    build = scope.build
    if name == "serial":
        raise fail("structure", "'serial' cannot be assigned", at, code="E-reserved-word")
    if name in scope.names:
        raise fail("call", f"{name!r} is a parameter of the definition and cannot be assigned", at)
    if scope.side == "server" and name in build.params:
        raise fail("cost", f"{name!r} is a size the client sends; the server cannot assign it", at)
    if scope.side == "client" and name in build.sides["server"] and name not in build.sides["client"]:
        raise fail("signature", f"{name!r} belongs to the server; the workload cannot assign it", at)
    if scope.side == "server" and name in build.sides["client"]:
        raise fail("signature", f"{name!r} belongs to the workload; the server cannot assign it", at)
    return attribute_slot(name, scope)
