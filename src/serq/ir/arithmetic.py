"""The numbers of the language: doubles, tests that yield 1 or 0, and no operation that fails."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce

__all__ = ["FUNCTIONS", "apply_binary", "apply_function", "divide", "power", "total"]


def total(values: Iterable[float]) -> float:
    """The sum from left to right, each partial sum rounded: `sum` itself differs between versions of Python."""
    return reduce(operator.add, values, 0.0)


def divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        odd = b == math.floor(b) and b % 2 == 1
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        return math.inf if a == 0 else math.nan


def _whole(round_: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(round_(x)) if math.isfinite(x) else x


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _ln(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan


def _least(a: float, b: float) -> float:
    """The smaller number; of a number and NaN, the number."""
    return a if a < b or b != b else b


def _largest(a: float, b: float) -> float:
    return a if a > b or b != b else b


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


_BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
    "^": power,
    "<": lambda a, b: float(a < b),
    "<=": lambda a, b: float(a <= b),
    ">": lambda a, b: float(a > b),
    ">=": lambda a, b: float(a >= b),
    "==": lambda a, b: float(a == b),
    "!=": lambda a, b: float(a != b),
    "&&": lambda a, b: float(a != 0 and b != 0),
    "||": lambda a, b: float(a != 0 or b != 0),
}

FUNCTIONS: dict[str, tuple[int, Callable[..., float]]] = {
    "min": (2, _least),
    "max": (2, _largest),
    "abs": (1, abs),
    "floor": (1, _whole(math.floor)),
    "ceil": (1, _whole(math.ceil)),
    "sqrt": (1, _sqrt),
    "exp": (1, _exp),
    "ln": (1, _ln),
}
"""Every function of numbers: how many arguments it takes and what it does."""


def apply_binary(op: str, left: float, right: float) -> float:
    """The value of `left op right`; division by zero gives an infinity or NaN."""
    return _BINARY[op](left, right)


def apply_function(name: str, args: tuple[float, ...]) -> float:
    """The value of a function of numbers; NaN outside its domain."""
    return FUNCTIONS[name][1](*args)
