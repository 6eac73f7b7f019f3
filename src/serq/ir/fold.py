"""Builders of expressions of the interchange form that compute what is already known."""

from __future__ import annotations

from collections.abc import Iterator

from serq import ir
from serq.ir.arithmetic import apply_binary, apply_function

__all__ = ["binary", "call", "conditional", "parts", "reads", "unary"]


def binary(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """`left op right`, a number when both are."""
    if isinstance(left, ir.Num):
        if isinstance(right, ir.Num):
            return ir.Num(apply_binary(op, left.value, right.value))
        if op == "&&" and left.value == 0:
            return ir.Num(0.0)
        if op == "||" and left.value != 0:
            return ir.Num(1.0)
    return ir.Binary(op, left, right)


def unary(op: str, operand: ir.Expr) -> ir.Expr:
    """`-operand` or `!operand`."""
    if isinstance(operand, ir.Num):
        return ir.Num(-operand.value if op == "-" else float(operand.value == 0))
    return ir.Unary(op, operand)


def conditional(test: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
    """`test ? then : otherwise`, one of the two when the test is a number."""
    if isinstance(test, ir.Num):
        return then if test.value != 0 else otherwise
    return ir.Cond(test, then, otherwise)


def call(name: str, *args: ir.Expr) -> ir.Expr:
    """A function of numbers."""
    values = [arg.value for arg in args if isinstance(arg, ir.Num)]
    if len(values) == len(args):
        return ir.Num(apply_function(name, tuple(values)))
    return ir.Call(name, args)


def _children(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    match expr:
        case ir.Binary():
            return expr.left, expr.right
        case ir.Unary():
            return (expr.operand,)
        case ir.Cond():
            return expr.test, expr.then, expr.otherwise
        case ir.Sample():
            return expr.args
        case ir.Call():
            index = expr.ref.index if expr.ref else None
            return expr.args if index is None else (*expr.args, index)
        case _:
            return ()


def parts(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The expression and everything inside it, without recursion."""
    waiting = [expr]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(_children(one))


def reads(expr: ir.Expr) -> frozenset[int]:
    """The slots an expression reads."""
    return frozenset(one.slot for one in parts(expr) if isinstance(one, ir.Attr))
