"""Amounts of tokens must be provably whole.  Source: docs/language.md, "Sizes, costs, whole numbers"."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from serq import ir
from serq.errors import Place, fail
from serq.ir.fold import reads
from serq.ir.walk import assignments, reachable
from serq.lowering.build import Amount

__all__ = ["check_whole", "is_whole"]

_WHOLE_FUNCTIONS = frozenset({"floor", "ceil", "used", "free", "cachedin", "allocated", "holders", "queued"}) | {
    "queue",
    "busy",
    "budget_left",
}
_FRACTIONAL_WORDS = frozenset({"now", "waited", "age", "last", "attention"})


def is_whole(expr: ir.Expr, fractional: frozenset[int]) -> bool:
    """Can the expression only be a whole number (or infinite), given the slots that may be fractional?"""
    match expr:
        case ir.Num():
            return expr.value % 1 == 0 or abs(expr.value) == float("inf")
        case ir.Attr():
            return expr.slot not in fractional
        case ir.Ctx():
            return expr.name not in _FRACTIONAL_WORDS
        case ir.Sample():
            return expr.kind == "bernoulli" or (expr.kind == "det" and is_whole(expr.args[0], fractional))
        case ir.Call():
            named = expr.name in ("min", "max", "abs") and all(is_whole(arg, fractional) for arg in expr.args)
            return expr.name in _WHOLE_FUNCTIONS or named
        case ir.Unary():
            return expr.op == "!" or is_whole(expr.operand, fractional)
        case ir.Binary(op="+" | "-" | "*"):
            return is_whole(expr.left, fractional) and is_whole(expr.right, fractional)
        case ir.Binary():
            return expr.op not in ("/", "^")
        case ir.Cond():
            return is_whole(expr.then, fractional) and is_whole(expr.otherwise, fractional)
        case _:
            return True


def _fractional(program: ir.Program, starts: Iterable[int]) -> frozenset[int]:
    slots = dict(program.builtins)
    found = frozenset({slots["think"], slots["forced"]})
    pairs = [pair for start in starts for pair in assignments(reachable(program, start))]
    while True:
        more = found | {slot for slot, value in pairs if not is_whole(value, found)}
        if more == found:
            return found
        found = more


def check_whole(
    program: ir.Program, starts: Iterable[int], amounts: Iterable[Amount], place: Callable[[ir.Stmt], Place | None]
) -> None:
    """Raises `whole` for the first amount that may be fractional, where the fraction comes from."""
    starts = tuple(starts)
    fractional = _fractional(program, starts)
    for amount in amounts:
        if not is_whole(amount.expr, fractional):
            origin = _origin(program, starts, amount.expr, fractional)
            at = amount.at if origin is None else place(origin) or amount.at
            hint = "round it: write 'floor(…)' or 'ceil(…)'"
            raise fail("whole", f"{amount.what} may be fractional", at, hint=hint)


def _origin(program: ir.Program, starts: Iterable[int], expr: ir.Expr, fractional: frozenset[int]) -> ir.Stmt | None:
    """The statement that makes an attribute of the expression fractional, if the fraction is not in itself."""
    statements = [stmt for start in starts for stmt in reachable(program, start) if isinstance(stmt, ir.Set)]
    found: ir.Stmt | None = None
    seen: frozenset[int] = frozenset()
    while is_whole(expr, frozenset()):
        slots = sorted((reads(expr) & fractional) - seen)
        step = next((stmt for stmt in statements if stmt.slot in slots and not is_whole(stmt.value, fractional)), None)
        if step is None:
            return found
        found, expr, seen = step, step.value, seen | {step.slot}
    return found
