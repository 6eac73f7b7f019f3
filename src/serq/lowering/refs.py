"""References: a written path to a pool or stage and its index."""

from __future__ import annotations

from serq import ir
from serq.errors import closest, fail
from serq.lowering.build import Macro, Resource, Scope
from serq.syntax import tree

__all__ = ["check_side", "find_resource", "indexed", "no_resource", "unfold"]


def unfold(path: tree.Path, scope: Scope) -> tuple[tree.Path, Scope, Scope]:
    """The path with a definition's parameter replaced by the path it stands for.

    Also the scope its names are read in, and the scope its index is read in: an index written beside the parameter
    belongs to the body, one written in the argument to the call.
    """
    index_scope: Scope | None = None
    while isinstance(bound := scope.names.get(path.parts[0].name), Macro):
        if not isinstance(bound.expr, tree.Path):
            break
        if index_scope is None and any(part.index is not None for part in path.parts):
            index_scope = scope
        first, rest = path.parts[0], path.parts[1:]
        inner = bound.expr.parts
        if first.index is not None:
            if inner[-1].index is not None:
                raise fail("reference", f"{first.name!r} already carries an index", first.at)
            inner = (*inner[:-1], tree.Part(first.at, inner[-1].name, first.index))
        path, scope = tree.Path(path.at, (*inner, *rest)), bound.scope
    return path, scope, index_scope or scope


def find_resource(
    path: tree.Path, scope: Scope, kind: str | None = None
) -> tuple[Resource, ir.Expr | None, Scope] | None:
    """The pool or stage a path means, the implied member of a queue's own resource, and the scope of its index."""
    path, scope, _ = unfold(path, scope)
    build, first = scope.build, path.parts[0].name
    if scope.queue is not None:
        local = scope.queue.locals.get(path.text)
        if local is not None and _fits(local, kind):
            own = scope.member if local.family else None
            return local, own, scope
    if scope.source and scope.source[0] == first and len(path.parts) == 1 and kind == "pool":
        return scope.source[1], scope.source[2], scope
    found = build.resources.get(path.text)
    if found is None:
        return None
    own = scope.member if scope.queue is not None and scope.queue.name == first and found.family else None
    return found, own, scope


def _fits(resource: Resource, kind: str | None) -> bool:
    return kind is None or resource.kind == kind


def no_resource(what: str, path: tree.Path, scope: Scope) -> Exception:
    """The error for a name that is no such resource."""
    names = [resource.name for resource in scope.build.resources.values() if resource.kind == what]
    if scope.queue is not None:
        names += [name for name, local in scope.queue.locals.items() if local.kind == what]
    return fail("name", f"no {what} is called {path.text!r}", path.at, hint=closest(path.text, names))


def check_side(resource: Resource, path: tree.Path, scope: Scope) -> None:
    if scope.side in ("client", "server", "entry") and (resource.side == "client") != (scope.side == "client"):
        owner = "workload" if resource.side == "client" else "deployment"
        raise fail("signature", f"{resource.name!r} belongs to the {owner}", path.at)


def indexed(path: tree.Path) -> str:
    rest = "".join(f".{part.name}" for part in path.parts[1:])
    return f"'{path.parts[0].name}[0]{rest}'"
