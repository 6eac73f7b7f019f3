"""Expressions over arrays: one value for each record.  Every operation rounds as its scalar form does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from serq import ir
from serq.ir.arithmetic import FUNCTIONS, power

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Columns", "uniforms_of"]

_ONE_BY_ONE: Final = frozenset({"exp", "ln"})
"""Array versions of these differ in the last bit from machine to machine; so does the power."""


class Columns:
    """The columns an expression may read: context words, attributes by slot, and uniform numbers in [0, 1) to draw."""

    def __init__(
        self,
        words: Mapping[str, Any],
        attrs: Mapping[int, Any] | None = None,
        uniform: Callable[[], NDArray[np.float64]] | None = None,
    ) -> None:
        self._words = words
        self._attrs = attrs or {}
        self._uniform = uniform

    def values(self, expr: ir.Expr, length: int) -> NDArray[np.float64]:
        """The expression for `length` records; time is linear in them."""
        import numpy as np

        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(self._value(expr), dtype=float), (length,)).astype(float)

    def _value(self, expr: ir.Expr) -> Any:
        import numpy as np

        match expr:
            case ir.Num(value):
                return value
            case ir.Ctx(name):
                return self._words[name]
            case ir.Attr(slot):
                return self._attrs.get(slot, 0.0)
            case ir.Unary(op, operand):
                inner = self._value(operand)
                return np.negative(inner) if op == "-" else np.where(inner, 0.0, 1.0)
            case ir.Cond(test, then, otherwise):
                return np.where(self._value(test), self._value(then), self._value(otherwise))
            case ir.Binary("^", left, right):
                return _one_by_one(power, self._value(left), self._value(right))
            case ir.Binary(op, left, right):
                return _operators()[op](self._value(left), self._value(right))
            case ir.Call(name, args, None) if name in _ONE_BY_ONE:
                return _one_by_one(FUNCTIONS[name][1], *(self._value(arg) for arg in args))
            case ir.Call(name, args, None):
                return _functions()[name](*(self._value(arg) for arg in args))
            case ir.Sample(kind, args):
                return self._draw(kind, [self._value(arg) for arg in args])
        raise TypeError(f"{type(expr).__name__} has no value over arrays")

    def _draw(self, kind: str, args: list[Any]) -> Any:
        """As the methods of `Rng` draw, from columns of uniform numbers."""
        import numpy as np

        if kind == "det":
            return args[0]
        if kind == "erlang":
            stages = _stages(float(args[0]))
            return sum((self._exp(np.divide(args[1], stages)) for _ in range(stages)), np.zeros(1))
        if kind == "exp":
            return self._exp(args[0])
        uniform = self._next()
        if kind == "uniform":
            low, high = args
            return low + np.subtract(high, low) * uniform
        if kind == "bernoulli":
            return np.where(uniform < args[0], 1.0, 0.0)
        mean, v = args[0], np.maximum(args[1], 1.0)
        p = (1.0 + np.sqrt((v - 1.0) / (v + 1.0))) / 2.0
        return self._exp(np.where(uniform < p, mean / (2.0 * p), mean / (2.0 * (1.0 - p))))

    def _exp(self, mean: Any) -> Any:
        import numpy as np

        logarithm = math.log
        return np.negative(mean) * np.array([logarithm(x) for x in (1.0 - self._next()).tolist()])

    def _next(self) -> NDArray[np.float64]:
        if self._uniform is None:
            raise TypeError("nothing is drawn here")
        return self._uniform()


def uniforms_of(expr: ir.Expr) -> int | None:
    """How many uniform numbers an expression draws, the same for every record; None where that depends, or is unknown.

    Also None for what arrays do not hold: queries of pools and stages, registers, aggregates.
    """
    match expr:
        case ir.Num() | ir.Attr() | ir.Ctx():
            return 0
        case ir.Unary(_, operand):
            return uniforms_of(operand)
        case ir.Binary(op, left, right):
            return _added(uniforms_of(left), _none_drawn(right) if op in ("&&", "||") else uniforms_of(right))
        case ir.Cond(test, then, otherwise):
            return _added(uniforms_of(test), _none_drawn(then), _none_drawn(otherwise))
        case ir.Call(_, args, None):
            return _added(*(uniforms_of(arg) for arg in args))
        case ir.Sample("erlang", (ir.Num(k), mean)):
            return _added(_stages(k), uniforms_of(mean))
        case ir.Sample("exp" | "uniform" | "bernoulli", args):
            return _added(1, *(uniforms_of(arg) for arg in args))
        case ir.Sample("h2", args):
            return _added(2, *(uniforms_of(arg) for arg in args))
        case ir.Sample("det", args):
            return _added(*(uniforms_of(arg) for arg in args))
    return None


def _none_drawn(expr: ir.Expr) -> int | None:
    return 0 if uniforms_of(expr) == 0 else None


def _added(*counts: int | None) -> int | None:
    found = 0
    for count in counts:
        if count is None:
            return None
        found += count
    return found


def _stages(k: float) -> int:
    return max(1, math.floor(k)) if math.isfinite(k) else 1


def _one_by_one(function: Callable[..., float], *columns: Any) -> Any:
    import numpy as np

    arrays = np.broadcast_arrays(*columns)
    found = [function(*values) for values in zip(*(array.ravel().tolist() for array in arrays), strict=True)]
    return np.array(found).reshape(arrays[0].shape)


def _operators() -> dict[str, Any]:
    import numpy as np

    return {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.divide,
        "<": _number(np.less),
        "<=": _number(np.less_equal),
        ">": _number(np.greater),
        ">=": _number(np.greater_equal),
        "==": _number(np.equal),
        "!=": _number(np.not_equal),
        "&&": _number(np.logical_and),
        "||": _number(np.logical_or),
    }


def _number(test: Any) -> Callable[[Any, Any], Any]:
    """A test that gives 1.0 or 0.0."""
    return lambda left, right: test(left, right) * 1.0


def _functions() -> dict[str, Any]:
    import numpy as np

    return {
        "min": np.fmin,
        "max": np.fmax,
        "abs": np.abs,
        "floor": np.floor,
        "ceil": np.ceil,
        "sqrt": np.sqrt,
    }
