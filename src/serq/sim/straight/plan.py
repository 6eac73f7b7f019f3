"""Which programs are straight, and what their sessions do, one step after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from serq import ir
from serq.ir.fold import parts
from serq.sim.columns import uniforms_of

__all__ = ["Assign", "Note", "Plan", "Step", "TurnBegins", "TurnEnds", "Visit", "plan"]

_SESSION, _TURN = 2, 1
_MOST_DRAWS: Final = 64
_MOST_SERVERS: Final = 10_000

Stream = tuple[int, int]
"""(turn, kind), as docs/language.md, "Random numbers", tells streams of a session apart."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Set an attribute; draws from column `at` of the uniform numbers on."""

    slot: int
    value: ir.Expr
    at: int


@dataclass(frozen=True, slots=True)
class Note:
    """Take a sample of an observation."""

    observe: int
    value: ir.Expr
    at: int


@dataclass(frozen=True, slots=True)
class Visit:
    """Pass a stage."""

    stage: int
    work: ir.Expr
    at: int


@dataclass(frozen=True, slots=True)
class TurnBegins:
    submitted: bool


@dataclass(frozen=True, slots=True)
class TurnEnds:
    pass


Step = Assign | Note | Visit | TurnBegins | TurnEnds


@dataclass(slots=True)
class Plan:
    """The steps of a session, and the uniform numbers it draws on the way: (stream, position in the stream)."""

    steps: list[Step] = field(default_factory=list)
    draws: list[tuple[Stream, int]] = field(default_factory=list)


def plan(program: ir.Program) -> Plan | None:
    """What every session does, or None where sessions differ, return to a stage, or depend on one another otherwise."""
    plain = program.arrival.kind in ("poisson", "renewal") and (
        program.trace is None and not program.pools and not program.gauges and not program.claims
    )
    if not plain or any(not _passable(stage) for stage in program.stages):
        return None
    gap = program.arrival.gap
    if gap is not None and (uniforms_of(gap) is None or any(isinstance(part, ir.Ctx) for part in parts(gap))):
        return None
    try:
        return _Planner(program).plan
    except _BentError:
        return None


def _passable(stage: ir.Stage) -> bool:
    return stage.kind == "delay" or (stage.kind == "fifo" and stage.servers <= _MOST_SERVERS)


class _BentError(Exception):
    """The program is not straight."""


class _Planner:
    """Follows a session through its blocks."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self.plan = Plan()
        self._used: dict[Stream, int] = {}
        self._turn = 0
        self._seen: set[tuple[str, int]] = set()
        self._immediate(program.init, (0, _TURN))
        self._block(program.session)

    def _block(self, index: int) -> str | None:
        """Follow a block; `turn` or `session` where it ends that."""
        for stmt in self._program.blocks[index]:
            ended = self._statement(stmt, (0, _SESSION))
            if ended is not None:
                return ended
        return None

    def _statement(self, stmt: ir.Stmt, stream: Stream) -> str | None:
        steps = self.plan.steps
        match stmt:
            case ir.Set(slot, value, None):
                steps.append(Assign(slot, value, self._drawn(value, stream)))
            case ir.Observe(index, value):
                self._once("observe", index)
                steps.append(Note(index, value, self._drawn(value, stream)))
            case ir.Run((ir.Ref(stage, 1, None),), work, "plain", None, _, None):
                self._once("stage", stage)
                steps.append(Visit(stage, work, self._drawn(work, stream)))
            case ir.Turn(body):
                return self._turn_of(body)
            case ir.End(what):
                return what
            case _:
                raise _BentError
        return None

    def _turn_of(self, body: int | None) -> str | None:
        self._turn += 1
        self.plan.steps.append(TurnBegins(body is not None))
        self._immediate(self._program.turn, (self._turn, _TURN))
        if body is not None:
            if self._block(body) == "session":
                return "session"
            self.plan.steps.append(TurnEnds())
        return None

    def _immediate(self, block: int | None, stream: Stream) -> None:
        """Statements that cannot wait, on a stream of their own."""
        for stmt in () if block is None else self._program.blocks[block]:
            if not isinstance(stmt, ir.Set | ir.Observe):
                raise _BentError
            self._statement(stmt, stream)

    def _once(self, kind: str, index: int) -> None:
        """What is met twice would be met in another order than that of the steps."""
        if (kind, index) in self._seen:
            raise _BentError
        self._seen.add((kind, index))

    def _drawn(self, value: ir.Expr, stream: Stream) -> int:
        """Reserve the uniform numbers of an expression; where they begin."""
        count = uniforms_of(value)
        words = {part.name for part in parts(value) if isinstance(part, ir.Ctx)}
        used = self._used.get(stream, 0)
        if count is None or used + count > _MOST_DRAWS or not words <= {"now"}:
            raise _BentError
        at = len(self.plan.draws)
        self.plan.draws.extend((stream, used + i) for i in range(count))
        self._used[stream] = used + count
        return at
