"""The types of the split edition: a number, or a cost of one or several resources (section 8 of the language)."""

from __future__ import annotations

from collections.abc import Sequence

from serq.errors import Place, fail
from serq.lowering.build import Cost, Resource, Scope, Value
from serq.syntax import tree

__all__ = ["combine", "cost_call", "cost_name", "number", "scale", "spend"]


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


def cost_call(call: tree.CallExpr, scope: Scope) -> Value:
    """`cost(resource, ..., amount)`."""
    from serq.lowering.expressions import lower
    from serq.lowering.refs import find_resource

    if scope.build.seed:
        hint = "the single-file edition has plain numbers: write the amount alone"
        raise fail("call", "unknown function 'cost'", call.at, hint=hint)
    if len(call.args) < 2:
        raise fail("call", "'cost' takes the resources and an amount", call.at, hint="write 'cost(stage, amount)'")
    names = []
    for arg in call.args[:-1]:
        found = find_resource(arg, scope) if isinstance(arg, tree.Path) else None
        if found is None:
            raise fail("name", "no pool or stage has this name", arg.at)
        names.append(found[0].name)
    amount = number(lower(call.args[-1], scope), call.args[-1].at, "the amount")
    return Value(amount.expr, frozenset(names))


def spend(value: Value, resources: Sequence[Resource], scope: Scope, at: Place) -> None:
    """Check that an amount may be spent on all the resources."""
    if scope.build.seed:
        return
    names = ", ".join(resource.name for resource in resources)
    if value.cost is None:
        hint = f"write 'cost({names}, …)'"
        raise fail("cost", f"an amount of {names} is a cost, not a plain number", at, hint=hint)
    missing = [resource.name for resource in resources if resource.name not in value.cost]
    if missing:
        raise fail("cost", f"{cost_name(value.cost)} cannot be spent on {missing[0]!r}", at)
