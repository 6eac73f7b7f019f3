"""Step stages of the single-file edition.  Source: docs/language.md, "Step stages"."""

from __future__ import annotations

from serq import ir
from serq.errors import Place, fail
from serq.lowering.build import Resource, Scope
from serq.lowering.expressions import lower_keys, lower_number, resolve
from serq.lowering.pools import member_of
from serq.syntax import tree

__all__ = ["DECODE_FIRST", "NOBODY_PREEMPTED", "check_budget", "link_memory", "lower_step"]

DECODE_FIRST = (ir.Cond(ir.Ctx("decoding"), ir.Num(0.0), ir.Num(1.0)),)
NOBODY_PREEMPTED = ir.Binary("==", ir.Ctx("running_preempted"), ir.Num(0.0))


def link_memory(stage: Resource, decl: tree.StageDecl, scope: Scope) -> None:
    """Remember which pool a step stage calls its memory."""
    for option in decl.options:
        if option.word == "memory" and stage.engine is not None:
            assert isinstance(option.value, tree.Path)
            stage.engine.memory, _ = resolve(option.value, scope, "pool", whole=True)
            memory = stage.engine.memory
            if memory.family and (not stage.family or memory.count != stage.count):
                message = f"{memory.name!r} has {memory.count} members, {stage.name!r} has {stage.count}"
                raise fail("structure", message, option.value.at)


def lower_step(stage: Resource, decl: tree.StageDecl, scope: Scope) -> list[ir.Stage]:
    """The rows of a step stage, one for each member."""
    found: dict[str, tree.StepOption] = {option.word: option for option in decl.options}
    if "cost" not in found:
        hint = "write 'cost e;', the duration of an iteration"
        raise fail("structure", f"the step stage {decl.name!r} has no 'cost'", decl.name_at, hint=hint)
    budget = _option(found, "budget", scope, "budget", ir.Num(float("inf")))
    check_budget(budget, found["budget"].at if "budget" in found else decl.at)
    chunk = _option(found, "chunk", scope, "chunk", ir.Num(0.0))
    cost = _option(found, "cost", scope, "step cost", ir.Num(0.0))
    order = found["serve"].order if "serve" in found else None
    iteration, exclusive = _schedule(order or tree.Order(), scope)
    rows = []
    memory = stage.engine.memory if stage.engine else None
    for index in range(stage.count):
        place = None
        if memory is not None:
            place = member_of(memory, index, stage.count, decl.at) if memory.family else memory.base
        step = ir.Step(budget, cost, chunk, None, exclusive, iteration, place)
        rows.append(ir.Stage(stage.name, "step", index if stage.family else None, step=step))
    return rows


def _option(found: dict[str, tree.StepOption], word: str, scope: Scope, moment: str, default: ir.Expr) -> ir.Expr:
    if word not in found:
        return default
    value = found[word].value
    assert value is not None
    return lower_number(value, scope.to(moment), f"'{word}'")


def check_budget(budget: ir.Expr, at: Place) -> None:
    """A constant budget is above 0."""
    if isinstance(budget, ir.Num) and not budget.value > 0:
        raise fail("value", f"a budget of {budget.value:g} tokens never moves anything", at)


def _schedule(order: tree.Order, scope: Scope) -> tuple[tuple[ir.Iteration, ...], bool]:
    if order.kind == "exclusive":
        return (), True
    moment = scope.to("order")
    keys = DECODE_FIRST if order.kind == "decode_first" else lower_keys(order.keys, moment)
    only = None if order.only is None else lower_number(order.only, moment, "'only'")
    written = [*order.keys, *((order.only,) if order.only is not None else ())]
    lowered = [*(keys if order.keys else ()), *((only,) if only is not None else ())]
    for expr, place in zip(lowered, written, strict=True):
        scope.build.decisions.append((expr, "an order", place.at))
    serve = ir.Iteration("serve", only=only, keys=keys)
    return (serve, ir.Iteration("admit", only=only, gate=NOBODY_PREEMPTED)), False
