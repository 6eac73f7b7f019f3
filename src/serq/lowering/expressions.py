"""Expressions to the interchange form: names resolved, definitions expanded, constants folded, moments checked."""

from __future__ import annotations

from collections.abc import Iterator

from serq import ir
from serq.errors import Place, closest, fail
from serq.ir.arithmetic import FUNCTIONS
from serq.ir.fold import binary, call, conditional, unary
from serq.ir.moments import POOL_QUERIES, STAGE_QUERIES
from serq.ir.words import AGGREGATES, DISTRIBUTIONS
from serq.lowering.build import Engine, Macro, Resource, Scope, Value
from serq.lowering.costs import combine, number, scale
from serq.lowering.expansion import check_size, inside
from serq.lowering.names import lower_path
from serq.lowering.refs import check_side, find_resource, indexed, no_resource, unfold
from serq.syntax import tree

__all__ = ["constant", "expression_names", "lower", "lower_keys", "lower_number", "resolve"]

_MOST_TERMS = 4096


def lower(expr: tree.Expression, scope: Scope) -> Value:
    """The lowered expression with its type."""
    match expr:
        case tree.Number():
            return Value(ir.Num(expr.value))
        case tree.Path():
            return lower_path(expr, scope, lower)
        case tree.BinaryOp():
            return _binary(expr, scope)
        case tree.UnaryOp():
            operand = lower(expr.operand, scope)
            if expr.op == "!":
                number(operand, expr.at, "the operand of '!'")
            return Value(unary(expr.op, operand.expr), operand.cost)
        case tree.Conditional():
            return _conditional(expr, scope)
        case tree.CallExpr():
            return _call(expr, scope)
        case tree.Draw():
            return _draw(expr, scope)
        case tree.Aggregate():
            return _aggregate(expr, scope)
        case tree.Text():
            raise fail("call", "text stands only in 'args.number'", expr.at)


def lower_number(expr: tree.Expression, scope: Scope, what: str = "this") -> ir.Expr:
    """The lowered expression, which must be a plain number."""
    return number(lower(expr, scope), expr.at, what).expr


def lower_keys(keys: tree.Keys, scope: Scope) -> tuple[ir.Expr, ...]:
    return tuple(lower_number(key, scope) for key in keys)


def constant(expr: tree.Expression, scope: Scope, what: str) -> float:
    """The value of a constant expression."""
    value = lower_number(expr, scope.to("constant"), what)
    if not isinstance(value, ir.Num):
        raise fail("moment", f"{what} must be a constant", expr.at)
    return value.value


def _binary(expr: tree.BinaryOp, scope: Scope) -> Value:
    chain = [expr]
    while isinstance(chain[-1].left, tree.BinaryOp):
        chain.append(chain[-1].left)
    left = lower(chain[-1].left, scope)
    for one in reversed(chain):
        left = _apply(one, left, lower(one.right, scope))
    return left


def _apply(expr: tree.BinaryOp, left: Value, right: Value) -> Value:
    cost = None
    if expr.op in ("+", "-"):
        cost = combine(left, right, expr.op, expr.at)
    elif expr.op in ("*", "/"):
        cost = scale(left, right, expr.op, expr.at)
    elif expr.op in ("^", "&&", "||"):
        number(left, expr.at, f"the left side of {expr.op!r}")
        number(right, expr.at, f"the right side of {expr.op!r}")
    else:
        combine(left, right, expr.op, expr.at)
    return Value(binary(expr.op, left.expr, right.expr), cost)


def _conditional(expr: tree.Conditional, scope: Scope) -> Value:
    chain = [expr]
    while isinstance(chain[-1].otherwise, tree.Conditional):
        chain.append(chain[-1].otherwise)
    value = lower(chain[-1].otherwise, scope)
    for one in reversed(chain):
        test = lower_number(one.test, scope, "the test")
        then = lower(one.then, scope)
        cost = combine(then, value, "?:", one.at)
        value = Value(conditional(test, then.expr, value.expr), cost)
    return value


def _draw(expr: tree.Draw, scope: Scope) -> Value:
    arity = DISTRIBUTIONS.get(expr.name)
    if arity is None:
        nearest = closest(expr.name, DISTRIBUTIONS) or f"the distributions are {', '.join(DISTRIBUTIONS)}"
        raise fail("call", f"no distribution is called {expr.name!r}", expr.at, hint=nearest)
    if not scope.moment.draws:
        hint = "draw before, into an attribute: 'set x = ~…;'" if scope.moment.attributes else None
        raise fail("draw", f"{scope.moment.name} may not draw", expr.at, hint=hint)
    if len(expr.args) != arity:
        raise _arity(expr.name, arity, len(expr.args), expr.at)
    return Value(ir.Sample(expr.name, tuple(lower_number(arg, scope) for arg in expr.args)))


def _arity(name: str, wanted: int, found: int, at: Place) -> Exception:
    return fail("call", f"{name!r} takes {wanted} argument{'s' * (wanted != 1)}, not {found}", at)


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(expr: tree.CallExpr, scope: Scope) -> Value:
    name, build = expr.name, scope.build
    if name == "cost":
        return _cost_call(expr, scope)
    if name in build.defs_of(scope.side):
        return _expand(expr, scope)
    if scope.engine is not None and name in scope.engine.rates and scope.moment.name == "a step cost":
        return _rate(expr, scope, scope.engine)
    if name == "blocksize":
        return _blocksize(expr, scope)
    if name in POOL_QUERIES or name in STAGE_QUERIES:
        return _query(expr, scope)
    if name in AGGREGATES and scope.moment.name == "an end claim":
        return _observed(expr, scope)
    if name == "pow" and build.single_file:
        if len(expr.args) != 2:
            raise _arity(name, 2, len(expr.args), expr.at)
        return Value(binary("^", lower_number(expr.args[0], scope), lower_number(expr.args[1], scope)))
    if name == "floor" and len(expr.args) == 2 and not build.single_file:
        return _floor_to(expr, scope)
    if name in FUNCTIONS:
        return _function(expr, scope)
    raise _unknown(expr, scope)


def _unknown(expr: tree.CallExpr, scope: Scope) -> Exception:
    known = {*FUNCTIONS, *POOL_QUERIES, *STAGE_QUERIES, *scope.build.defs_of(scope.side), "blocksize"}
    hint: str | None = "write 'x ^ y'" if expr.name == "pow" else closest(expr.name, known)
    if any(expr.name in engine.rates for engine in scope.build.engines.values()):
        message = f"{expr.name!r} is a time of a device: only the 'worker' of an engine on it reads it"
        return fail("moment", message, expr.at)
    if expr.name in AGGREGATES:
        return fail("moment", f"{expr.name!r} reads an observation only in a claim 'at end'", expr.at)
    if expr.name == "args.number":
        return fail("call", "'args.number' is the whole value of a 'let'", expr.at)
    return fail("call", f"no function or definition is called {expr.name!r}", expr.at, hint=hint)


def _function(expr: tree.CallExpr, scope: Scope) -> Value:
    arity = FUNCTIONS[expr.name][0]
    if len(expr.args) != arity:
        raise _arity(expr.name, arity, len(expr.args), expr.at)
    values = [lower(arg, scope) for arg in expr.args]
    cost = None
    if expr.name in ("min", "max"):
        cost = combine(values[0], values[1], expr.name, expr.at)
    else:
        number(values[0], expr.at, f"the argument of {expr.name!r}")
    return Value(call(expr.name, *(value.expr for value in values)), cost)


def _floor_to(expr: tree.CallExpr, scope: Scope) -> Value:
    value, step = (lower_number(arg, scope) for arg in expr.args)
    return Value(binary("*", call("floor", binary("/", value, step)), step))


def _pool_argument(expr: tree.CallExpr, count: int) -> tree.Path:
    if len(expr.args) != count:
        raise _arity(expr.name, count, len(expr.args), expr.at)
    first = expr.args[0]
    if not isinstance(first, tree.Path):
        raise fail("call", f"{expr.name!r} takes the name of a pool or stage", first.at)
    return first


def _blocksize(expr: tree.CallExpr, scope: Scope) -> Value:
    path = _pool_argument(expr, 1)
    if scope.moment.name == "a constant":
        raise fail("moment", "'blocksize' is not read in a constant", expr.at)
    pool, _ = resolve(path, scope, "pool", whole=True)
    return Value(ir.Num(pool.block if pool.block is not None else 1.0))


def _query(expr: tree.CallExpr, scope: Scope) -> Value:
    name = expr.name
    path = _pool_argument(expr, 3 if name == "price" else 1)
    if name not in scope.moment.queries:
        raise fail("moment", f"{name!r} cannot be read in {scope.moment.name}", expr.at)
    if name == "allocated" and scope.build.single_file:
        raise fail("call", "'allocated' belongs to the split edition", expr.at)
    stage, ref = resolve(path, scope, "pool" if name in POOL_QUERIES else "stage")
    if name == "budget_left":
        if stage.engine is None:
            raise fail("call", f"'budget_left' reads a step engine; {stage.name!r} is none", path.at)
        if scope.moment.name == "a guard" and stage.engine is scope.engine:
            raise fail("moment", "a scheduler does not read its own 'budget_left'", expr.at)
    return Value(ir.Call(name, tuple(lower_number(arg, scope) for arg in expr.args[1:]), ref))


def _observed(expr: tree.CallExpr, scope: Scope) -> Value:
    path = _pool_argument(expr, 1)
    if path.text not in scope.build.observes:
        hint = closest(path.text, scope.build.observes)
        raise fail("name", f"no observation is called {path.text!r}", path.at, hint=hint)
    return Value(ir.Agg(expr.name, scope.build.observes.index(path.text)))


# --- definitions ------------------------------------------------------------------------------------------------------


def expression_names(expr: tree.Expression) -> Iterator[tree.Expression]:
    """The expression and everything written inside it."""
    waiting: list[tree.Expression] = [expr]
    while waiting:
        one = waiting.pop()
        yield one
        match one:
            case tree.BinaryOp():
                waiting += [one.left, one.right]
            case tree.UnaryOp():
                waiting.append(one.operand)
            case tree.Conditional():
                waiting += [one.test, one.then, one.otherwise]
            case tree.CallExpr() | tree.Draw():
                waiting += one.args
            case tree.Aggregate():
                waiting += [one.count, one.body]
            case tree.Path():
                waiting += [part.index for part in one.parts if part.index is not None]


def _uses(body: tree.Expression, name: str) -> int:
    return sum(1 for one in expression_names(body) if isinstance(one, tree.Path) and one.parts[0].name == name)


def _expand(expr: tree.CallExpr, scope: Scope) -> Value:
    decl = scope.build.defs_of(scope.side)[expr.name].decl
    if decl.value is None:
        raise fail("call", f"{expr.name!r} is a definition of statements, not of a value", expr.at)
    if len(expr.args) != len(decl.params):
        raise _arity(expr.name, len(decl.params), len(expr.args), expr.at)
    names: dict[str, Macro | Value] = {}
    for param, arg in zip(decl.params, expr.args, strict=True):
        if any(isinstance(one, tree.Draw) for one in expression_names(arg)) and _uses(decl.value, param) > 1:
            raise fail("draw", f"{expr.name!r} uses {param!r} more than once, so its argument may not draw", arg.at)
        names[param] = _argument(arg, scope)
    value = lower(decl.value, inside(expr.name, expr.at, scope).but(names=names))
    check_size(value.expr, expr.name, expr.at, scope)
    return value


def _argument(arg: tree.Expression, scope: Scope) -> Macro | Value:
    """A pool or stage stays a name; anything else is lowered where it is written."""
    if isinstance(arg, tree.Path) and find_resource(arg, scope) is not None:
        return Macro(arg, scope)
    return lower(arg, scope)


def _rate(expr: tree.CallExpr, scope: Scope, engine: Engine) -> Value:
    decl = engine.rates[expr.name]
    if len(expr.args) != len(decl.params):
        raise _arity(expr.name, len(decl.params), len(expr.args), expr.at)
    pairs = zip(decl.params, expr.args, strict=True)
    names = {param: Value(lower_number(arg, scope)) for param, arg in pairs}
    assert decl.value is not None
    return lower(decl.value, scope.but(names=names))


def _aggregate(expr: tree.Aggregate, scope: Scope) -> Value:
    count = constant(expr.count, scope, "the number of members")
    if not (count >= 1 and count % 1 == 0):
        raise fail("value", f"the number of members must be whole and at least 1, not {count:g}", expr.count.at)
    if count * max(1, scope.depth) > _MOST_TERMS:
        raise fail("value", f"an aggregate of more than {_MOST_TERMS} terms", expr.at)
    if expr.var in scope.build.taken or expr.var in scope.names:
        raise fail("structure", f"{expr.var!r} already has a meaning", expr.at, hint="choose a fresh name")
    depth = int(count) * max(1, scope.depth)
    total: ir.Expr | None = None
    for index in range(int(count)):
        inner = scope.but(names={**scope.names, expr.var: Value(ir.Num(float(index)))}, depth=depth)
        term = lower_number(expr.body, inner)
        total = term if total is None else _fold(expr.op, total, term)
    assert total is not None
    return Value(total)


def _fold(op: str, total: ir.Expr, term: ir.Expr) -> ir.Expr:
    return binary("+", total, term) if op == "sum" else call(op, total, term)


def _cost_call(call: tree.CallExpr, scope: Scope) -> Value:
    """`cost(resource, ..., amount)`."""
    if scope.build.single_file:
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


def resolve(path: tree.Path, scope: Scope, kind: str, *, whole: bool = False) -> tuple[Resource, ir.Ref]:
    """The resource of a kind a path names, with its index; `whole` accepts a family without an index."""
    found = find_resource(path, scope, kind)
    if found is None or found[0].kind != kind:
        written, _, _ = unfold(path, scope)
        raise no_resource(kind, tree.Path(path.at, written.parts), scope)
    resource, own, _ = found
    written, _, inner = unfold(path, scope)
    check_side(resource, path, scope)
    index = next((part.index for part in written.parts if part.index is not None), None)
    if index is None:
        if resource.family and own is None and not whole:
            raise fail(
                "reference",
                f"{resource.name!r} is a family of {resource.count}: it needs an index",
                path.at,
                hint=f"write {indexed(written)}",
            )
        return resource, resource.ref(own)
    return resource, resource.ref(_index(resource, index, inner, path.at))


def _index(resource: Resource, written: tree.Expression, scope: Scope, at: Place) -> ir.Expr | None:
    index = lower_number(written, scope)
    if not resource.family:
        if index == ir.Num(0.0):
            return None
        raise fail("reference", f"{resource.name!r} is not a family and takes no index", at)
    if isinstance(index, ir.Num) and not (index.value >= 0 and index.value < resource.count and index.value % 1 == 0):
        raise fail(
            "reference",
            f"index {index.value:g} is outside {resource.name!r}, whose members are 0 to {resource.count - 1}",
            at,
        )
    return index
