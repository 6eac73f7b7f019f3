"""Does everything a program in the interchange form points at exist?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from serq import ir
from serq.errors import SerqError
from serq.ir.arithmetic import FUNCTIONS
from serq.ir.check_moments import check_moments
from serq.ir.check_values import check_values
from serq.ir.moments import CONTEXT_WORDS, MOMENTS, POOL_QUERIES, STAGE_QUERIES
from serq.ir.walk import inner_blocks
from serq.ir.words import BUILTINS, DISTRIBUTIONS

__all__ = ["BINARY_OPERATORS", "check_program"]

_WORDS = CONTEXT_WORDS | {"now"} | {name for moment in MOMENTS.values() for name in moment.dotted.values()}
BINARY_OPERATORS = frozenset({"||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "^"})
_KINDS: dict[type, tuple[str, frozenset[str]]] = {
    ir.Agg: ("kind", frozenset({"count", "total", "largest", "smallest", "prefix_total"})),
    ir.Unary: ("op", frozenset({"-", "!"})),
    ir.Binary: ("op", BINARY_OPERATORS),
    ir.Sample: ("kind", frozenset(DISTRIBUTIONS)),
    ir.Ctx: ("name", frozenset(_WORDS)),
    ir.Call: ("name", POOL_QUERIES | STAGE_QUERIES | frozenset(FUNCTIONS)),
    ir.Stage: ("kind", frozenset({"fifo", "ps", "delay", "step"})),
    ir.Arrival: ("kind", frozenset({"none", "poisson", "renewal", "closed", "batch"})),
    ir.Claim: ("kind", frozenset({"every_iteration", "some_iteration", "at_end"})),
    ir.Preempt: ("kind", frozenset({"none", "by", "leases"})),
    ir.Iteration: ("kind", frozenset({"serve", "admit", "branch", "set"})),
    ir.Run: ("mode", frozenset({"plain", "prefill", "decode"})),
    ir.End: ("what", frozenset({"session", "turn"})),
}


def check_program(program: ir.Program) -> None:
    """Raises `SerqError` of kind `interchange` for a word or reference that means nothing."""
    names = dict(program.builtins)
    if set(names) != set(BUILTINS):
        raise _refuse(f"'builtins' gives the slots of {', '.join(BUILTINS)}")
    for slot in (*names.values(), *program.hidden):
        _inside(slot, len(program.attrs), "attribute")
    starts = (program.session, program.init, program.turn)
    for start in starts:
        if start is not None:
            _inside(start, len(program.blocks), "block")
    for block in program.blocks:
        for statement in block:
            for inner in inner_blocks(statement):
                _inside(inner, len(program.blocks), "block")
    _no_cycle(program)
    for node in _nodes(program):
        _check(node, program)
    check_values(program, _nodes(program))
    check_moments(program)


def _refuse(message: str) -> SerqError:
    return SerqError("interchange", message)


def _inside(position: int, count: int, what: str) -> None:
    if not 0 <= position < count:
        raise _refuse(f"there is no {what} {position}: the program has {count}")


def _no_cycle(program: ir.Program) -> None:
    """Blocks hold one another like boxes; a block inside itself would never end."""
    done: set[int] = set()
    for start in range(len(program.blocks)):
        path: list[tuple[int, Iterator[int]]] = [(start, _held(program, start))] if start not in done else []
        open_: set[int] = {start}
        while path:
            block, rest = path[-1]
            inner = next(rest, None)
            if inner is None:
                done.add(block)
                open_.discard(block)
                path.pop()
            elif inner in open_:
                raise _refuse(f"the block {inner} holds itself")
            elif inner not in done:
                open_.add(inner)
                path.append((inner, _held(program, inner)))


def _held(program: ir.Program, block: int) -> Iterator[int]:
    return iter([inner for statement in program.blocks[block] for inner in inner_blocks(statement)])


def _nodes(root: object) -> Iterator[Any]:
    waiting: list[Any] = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif is_dataclass(one):
            yield one
            waiting.extend(getattr(one, field.name) for field in fields(one) if not field.metadata.get("local"))


def _check(node: Any, program: ir.Program) -> None:
    if type(node) in _KINDS:
        name, allowed = _KINDS[type(node)]
        if getattr(node, name) not in allowed:
            raise _refuse(f"a {type(node).__name__} has no {name} {getattr(node, name)!r}")
    match node:
        case ir.Attr() | ir.Set() | ir.Choose():
            _inside(node.slot, len(program.attrs), "attribute")
        case ir.Reg():
            _inside(node.index, len(program.registers), "register")
        case ir.Agg():
            _inside(node.observe, len(program.observes), "observation")
        case ir.Observe():
            _inside(node.index, len(program.observes), "observation")
        case ir.Call():
            _check_call(node, program)
        case ir.Sample():
            _arity(node.kind, len(node.args), DISTRIBUTIONS[node.kind])
        case ir.HoldPool() | ir.Lease() | ir.Grow() | ir.Shrink() | ir.Load() | ir.Drop() | ir.Release():
            _reference(node.pool, len(program.pools), "pool")
        case ir.Hold():
            for slot, _ in node.bindings:
                _inside(slot, len(program.attrs), "attribute")
            if node.cached_of is not None:
                _reference(node.cached_of, len(program.pools), "pool")
        case ir.Run():
            _check_run(node, program)
        case _:
            _check_declaration(node, program)


def _check_run(node: ir.Run, program: ir.Program) -> None:
    if not node.stages:
        raise _refuse("a Run names at least one stage")
    for ref in node.stages:
        _reference(ref, len(program.stages), "stage")
    if node.growing is not None:
        _reference(node.growing, len(program.pools), "pool")


def _check_declaration(node: Any, program: ir.Program) -> None:
    match node:
        case ir.Pool(admit_via=int() as stage) | ir.Claim(stage=int() as stage) | ir.Register(stage=stage):
            _inside(stage, len(program.stages), "stage")
        case ir.Step(memory=int() as pool):
            _inside(pool, len(program.pools), "pool")
        case ir.Spill():
            _reference(node.tier, len(program.pools), "pool")
            _reference(node.via, len(program.stages), "stage")
        case ir.Iteration(kind="set"):
            if node.register is None or node.value is None:
                raise _refuse("an Iteration 'set' has a register and a value")
            _inside(node.register, len(program.registers), "register")
        case ir.Stage(kind="step", step=None) | ir.Stage(kind="ps", capacity=None):
            raise _refuse(f"the stage {node.name!r} lacks what its kind needs")
        case _:
            pass


def _check_call(node: ir.Call, program: ir.Program) -> None:
    if node.name in FUNCTIONS:
        _arity(node.name, len(node.args), FUNCTIONS[node.name][0])
        return
    if node.ref is None:
        raise _refuse(f"{node.name!r} names no pool or stage")
    _arity(node.name, len(node.args), 2 if node.name == "price" else 0)
    if node.name in POOL_QUERIES:
        _reference(node.ref, len(program.pools), "pool")
    else:
        _reference(node.ref, len(program.stages), "stage")


def _arity(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise _refuse(f"{name!r} takes {wanted} arguments, not {found}")


def _reference(ref: ir.Ref, count: int, what: str) -> None:
    if ref.count < 1 or not 0 <= ref.base <= count - ref.count:
        raise _refuse(f"there is no {what} {ref.base} to {ref.base + ref.count - 1}: the program has {count}")
