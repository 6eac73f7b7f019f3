"""Expressions to Python functions of a session's attributes.

The source text is made from checked nodes only (numbers, slots, known names), so a program cannot run host code.  Long
folds become statements of a helper, so that no nesting limit of the host is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from serq import ir
from serq.errors import RunError
from serq.ir.arithmetic import FUNCTIONS, divide, power
from serq.sim.context import Context

__all__ = ["ExprCompiler", "Function", "constant", "reads_live_state"]

Function = Callable[[list[float]], float]

_COMPARE: Final = ("==", "!=", "<", "<=", ">", ">=")
_STAGE_QUERIES: Final = ("queue", "busy", "work", "budget_left", "est_lambda", "est_rho", "est_wait", "price")
_POOL_QUERIES: Final = ("used", "free", "cachedin", "allocated", "holders", "queued")
_CHAIN: Final = 16
_DEPTH: Final = 40


def _member(members: Sequence[Any], index: float) -> Any:
    if not (index == index and 0 <= index < len(members)) or index != int(index):
        allowed = f"the index is a whole number from 0 to {len(members) - 1}"
        raise RunError("run-index", f"{members[0].name}[{index:g}] is not there: {allowed}")
    return members[int(index)]


_FUNCTIONS: Final[dict[str, Any]] = {
    "_div": divide,
    "_pow": power,
    **{f"_{name}": function for name, (_, function) in FUNCTIONS.items()},
    "_member": _member,
    "inf": math.inf,
    "nan": math.nan,
}


def constant(expr: ir.Expr) -> float | None:
    """The value of a literal number, or None."""
    return expr.value if isinstance(expr, ir.Num) else None


def reads_live_state(expr: ir.Expr, tainted: frozenset[int] = frozenset()) -> bool:
    """Whether a value may change while its session waits: it reads a query, a context word or a tainted attribute."""
    match expr:
        case ir.Num():
            return False
        case ir.Attr(slot):
            return slot in tainted
        case ir.Unary(_, operand):
            return reads_live_state(operand, tainted)
        case ir.Binary(_, left, right):
            return reads_live_state(left, tainted) or reads_live_state(right, tainted)
        case ir.Cond(test, then, otherwise):
            return any(reads_live_state(part, tainted) for part in (test, then, otherwise))
        case ir.Call(_, args, None):
            return any(reads_live_state(arg, tainted) for arg in args)
        case _:
            return True


class ExprCompiler:
    """Compiles against one run's pools, stages, registers and context."""

    def __init__(self, ctx: Context, pools: Sequence[Any], stages: Sequence[Any], registers: list[float]) -> None:
        self._space: dict[str, Any] = {**_FUNCTIONS, "c": ctx, "R": registers, "P": pools, "S": stages}
        self._helpers = 0

    def function(self, expr: ir.Expr) -> Function:
        """The expression as a function of the attribute list."""
        if isinstance(expr, ir.Num):
            value = expr.value
            return lambda a: value
        if isinstance(expr, ir.Attr):
            slot = expr.slot
            return lambda a: a[slot]
        text = self._text(expr, 0)
        found: Function = eval(f"lambda a: {text}", self._space)
        return found

    def optional(self, expr: ir.Expr | None) -> Function | None:
        return None if expr is None else self.function(expr)

    def keys(self, exprs: Sequence[ir.Expr]) -> tuple[Function, ...]:
        return tuple(self.function(expr) for expr in exprs)

    def reference(self, ref: ir.Ref, members: Sequence[Any]) -> Callable[[list[float]], Any]:
        """The pool or stage a reference means, as a function of the attributes."""
        if ref.index is None:
            fixed = members[ref.base]
            return lambda a: fixed
        family = tuple(members[ref.base : ref.base + ref.count])
        index = self.function(ref.index)
        return lambda a: _member(family, index(a))

    def _text(self, expr: ir.Expr, depth: int) -> str:
        if depth > _DEPTH:
            return self._helper(f"return {self._text(expr, 0)}")
        chain = self._chain(expr)
        if chain is not None:
            return chain
        match expr:
            case ir.Num(value):
                return repr(float(value))
            case ir.Attr(slot):
                return f"a[{slot}]"
            case ir.Ctx(name):
                return f"c.{name}"
            case ir.Reg(index):
                return f"R[{index}]"
            case ir.Unary(op, operand):
                inner = self._text(operand, depth + 1)
                return f"(-{inner})" if op == "-" else f"(0.0 if {inner} else 1.0)"
            case ir.Cond(test, then, otherwise):
                parts = [self._text(part, depth + 1) for part in (then, test, otherwise)]
                return f"({parts[0]} if {parts[1]} else {parts[2]})"
            case ir.Binary(op, left, right):
                return _binary(op, self._text(left, depth + 1), self._text(right, depth + 1))
            case ir.Sample(kind, args):
                return f"c.rng.{kind}({self._args(args, depth)})"
            case ir.Call():
                return self._call(expr, depth)
        raise RunError("run-amount", f"{type(expr).__name__} cannot be evaluated here")

    def _args(self, args: Sequence[ir.Expr], depth: int) -> str:
        return ", ".join(self._text(arg, depth + 1) for arg in args)

    def _call(self, expr: ir.Call, depth: int) -> str:
        if expr.ref is None:
            return f"_{expr.name}({self._args(expr.args, depth)})"
        letter = "P" if expr.name in _POOL_QUERIES else "S"
        target = f"{letter}[{expr.ref.base}]"
        if expr.ref.index is not None:
            stop = expr.ref.base + expr.ref.count
            target = f"_member({letter}[{expr.ref.base}:{stop}], {self._text(expr.ref.index, depth + 1)})"
        if expr.name == "cachedin" or expr.name == "allocated":
            return f"{target}.q_{expr.name}(a[-1])"
        return f"{target}.q_{expr.name}({self._args(expr.args, depth)})"

    def _chain(self, expr: ir.Expr) -> str | None:
        """A long left fold (`a + b + c ...`, `max(max(a, b), c) ...`) as the statements of a helper."""
        terms: list[ir.Expr] = []
        node = expr
        while True:
            if (
                isinstance(node, ir.Binary)
                and isinstance(expr, ir.Binary)
                and node.op == expr.op
                and node.op not in _COMPARE
            ):
                terms.append(node.right)
                node = node.left
            elif (
                isinstance(node, ir.Call)
                and isinstance(expr, ir.Call)
                and node.ref is None
                and node.name == expr.name
                and len(node.args) == 2
            ):
                terms.append(node.args[1])
                node = node.args[0]
            else:
                break
        if len(terms) < _CHAIN:
            return None
        lines = [f"t = {self._text(node, 0)}"]
        for term in reversed(terms):
            right = self._text(term, 0)
            combined = _binary(expr.op, "t", right) if isinstance(expr, ir.Binary) else f"_{expr.name}(t, {right})"  # type: ignore[union-attr]
            lines.append(f"t = {combined}")
        return self._helper("\n    ".join([*lines, "return t"]))

    def _helper(self, body: str) -> str:
        self._helpers += 1
        name = f"h{self._helpers}"
        exec(f"def {name}(a):\n    {body}", self._space)
        return f"{name}(a)"


def _binary(op: str, left: str, right: str) -> str:
    if op in _COMPARE:
        return f"(1.0 if {left} {op} {right} else 0.0)"
    if op in ("&&", "||"):
        word = "and" if op == "&&" else "or"
        return f"(1.0 if ({left} {word} {right}) else 0.0)"
    if op == "/":
        return f"_div({left}, {right})"
    if op == "^":
        return f"_pow({left}, {right})"
    return f"({left} {op} {right})"
