"""Definitions are written out where they are used; how far that may go."""

from __future__ import annotations

from typing import Final

from serq import ir
from serq.errors import Place, SerqError, fail
from serq.ir.fold import parts
from serq.lowering.build import Scope

__all__ = ["MOST_PARTS", "MOST_USES", "check_size", "inside"]

MOST_USES: Final = 8_192
"""Uses of definitions and entries inside one use of a definition or entry."""
MOST_PARTS: Final = 65_536
"""Numbers, names and operations that one use of a definition, or one argument of it, is written out to."""


def inside(name: str, at: Place, scope: Scope) -> Scope:
    """The scope inside a use of the definition or entry `name`; refuses too many uses inside one."""
    build, use = scope.build, scope.use
    if use is None:
        build.uses_left, use = MOST_USES, (name, at)
    build.uses_left -= 1
    if build.uses_left < 0:
        raise _too_large(*use, f"more than {MOST_USES} uses of definitions and entries")
    return scope.but(use=use)


def check_size(expr: ir.Expr, name: str, at: Place, scope: Scope) -> None:
    """Refuse an expression that a definition has made too large to be written out."""
    for count, _ in enumerate(parts(expr), 1):
        if count > MOST_PARTS:
            raise _too_large(*(scope.use or (name, at)), f"an expression of more than {MOST_PARTS} parts")


def _too_large(name: str, at: Place, what: str) -> SerqError:
    hint = f"every use of a definition is written out; let {name!r} use others, and its parameters, less often"
    error = fail("value", f"{name!r} expands to {what}", at, hint=hint)
    error.fatal = True
    return error
