"""The types of the split edition: a number, or a cost of one or several resources.

Source: docs/language.md, "Sizes, costs, whole numbers".
"""

from __future__ import annotations

from collections.abc import Sequence

from serq.errors import Place, fail
from serq.lowering.build import Cost, Resource, Scope, Value

__all__ = ["combine", "cost_name", "number", "scale", "spend"]


def cost_name(cost: Cost) -> str:
    return "a cost of " + " and ".join(repr(name) for name in sorted(cost))


def number(value: Value, at: Place, what: str = "this") -> Value:
    """The value, which must be a plain number."""
    if value.cost is not None:
        raise fail("cost", f"{what} is {cost_name(value.cost)}, where a plain number is needed", at)
    return value


def combine(left: Value, right: Value, op: str, at: Place) -> Cost | None:
    """The type of a sum, difference, comparison or choice: both sides of one type."""
    if left.cost == right.cost:
        return left.cost
    if left.cost is not None and right.cost is not None:
        message = f"{op!r} mixes {cost_name(left.cost)} with {cost_name(right.cost)}"
    else:
        message = f"{op!r} mixes {cost_name(left.cost or right.cost or frozenset())} with a plain number"
    raise fail("cost", message, at)


def scale(left: Value, right: Value, op: str, at: Place) -> Cost | None:
    """The type of a product or quotient: a cost may be multiplied or divided by a number."""
    if right.cost is None:
        return left.cost
    if op == "*" and left.cost is None:
        return right.cost
    raise fail("cost", f"{op!r} of two costs has no meaning", at, hint="multiply or divide a cost by a plain number")


def spend(value: Value, resources: Sequence[Resource], scope: Scope, at: Place) -> None:
    """Check that an amount may be spent on all the resources."""
    if scope.build.single_file:
        return
    names = ", ".join(resource.name for resource in resources)
    if value.cost is None:
        hint = f"write 'cost({names}, …)'"
        raise fail("cost", f"an amount of {names} is a cost, not a plain number", at, hint=hint)
    missing = [resource.name for resource in resources if resource.name not in value.cost]
    if missing:
        raise fail("cost", f"{cost_name(value.cost)} cannot be spent on {missing[0]!r}", at)
