"""Sessions and their statements.

A session is a generator over its block: it yields where it waits and is resumed when it is ready.  Statements are
compiled once into plain functions (those that never wait) and generator functions (those that may).  A preemption
unwinds the generator to the hold statement, which then queues again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from serq import ir
from serq.errors import Place, RunError
from serq.ir.arithmetic import total
from serq.sim.expr import Function

if TYPE_CHECKING:
    from serq.sim.chains import Reading
    from serq.sim.kernel import Kernel
    from serq.sim.pools import Lease, PoolState
    from serq.sim.rng import Rng
    from serq.sim.stages import Job

__all__ = [
    "CompiledHold",
    "HoldFrame",
    "Ops",
    "PreemptedError",
    "RejectedError",
    "Session",
    "SessionEndError",
    "StatementCompiler",
    "TurnEndError",
    "TurnRecord",
    "run_at_once",
    "run_ops",
]

Wait = Generator[None, None, None]
Op = tuple[bool, Callable[["Session"], Any], Place | None]
"""A statement: whether it may wait, what it does, where it was written."""
Ops = list[Op]
_NOTHING: Op = (False, lambda s: None, None)


class PreemptedError(Exception):
    """Unwinds a session to the hold it lost."""

    def __init__(self, frame: HoldFrame) -> None:
        self.frame = frame


class SessionEndError(Exception):
    """The session leaves."""


class RejectedError(SessionEndError):
    """The session leaves because it, or a leg of it, asks for more than there is."""


class TurnEndError(Exception):
    """The server has finished the turn."""


@dataclass(slots=True)
class TurnRecord:
    """What the client sees of one turn.

    `settled` once a decode has begun: the first token stays.  `made_by` is the engine of the first token, `resumed_on`
    the same after a preemption there, until the turn has recovered.
    """

    session: int
    number: int
    submitted: float
    first: float | None = None
    tokens: int = 0
    settled: bool = False
    made_by: Any = None
    resumed_on: Any = None


class Session:
    """One client conversation, or a leg of it (`root` is then the session that forked it).

    `attrs` are its values and, last, the session itself: whoever evaluates an expression on them reads as this session.
    """

    __slots__ = (
        "_forked_from",
        "admission",
        "attrs",
        "decodes",
        "gen",
        "holds",
        "job",
        "joining",
        "kernel",
        "last_token",
        "leases",
        "legs",
        "legs_started",
        "preempted",
        "ready",
        "rng",
        "row",
        "rows",
        "serial",
        "stuck",
        "turn",
        "waiting_in",
    )

    def __init__(self, kernel: Kernel, serial: int, attrs: list[float], rng: Rng, root: Session | None = None) -> None:
        self.kernel = kernel
        self.serial = serial
        self.attrs: list[Any] = [*attrs, self]
        self.rng = rng
        self._forked_from = root
        self.gen: Wait | None = None
        self.holds: list[HoldFrame] = []
        self.leases: list[Lease] = []
        self.job: Job | None = None
        self.waiting_in: Any = None
        self.ready = False
        self.joining = False
        self.legs = 0
        self.legs_started = 0
        self.admission = math.inf
        self.turn: TurnRecord | None = None if root is None else root.turn
        self.last_token: float | None = None
        self.rows: Sequence[tuple[float, float, float, float]] = () if root is None else root.rows
        self.row: int = 0 if root is None else root.row
        self.stuck = False
        self.decodes = self.preempted = False

    @property
    def root(self) -> Session:
        """The session itself, or the one that forked this leg."""
        return self if self._forked_from is None else self._forked_from

    @property
    def turn_no(self) -> int:
        return int(self.attrs[self.kernel.slot_turn])

    def innermost(self, pool: PoolState) -> tuple[HoldFrame, int] | None:
        """The innermost hold on a pool that still has it, and the pool's position in the hold."""
        for frame in reversed(self.holds):
            for i, held in enumerate(frame.pools):
                if held is pool and not frame.released[i]:
                    return frame, i
        return None

    def allocated(self, pool: PoolState) -> float:
        """Units of a pool held or leased."""
        units = 0.0
        for frame in self.holds:
            for i, held in enumerate(frame.pools):
                if held is pool and not frame.released[i]:
                    units += frame.alloc[i]
        return units + total(lease.units for lease in self.leases if lease.pool is pool and not lease.suspended)


@dataclass(slots=True, eq=False)
class CompiledHold:
    """A hold statement's functions."""

    refs: list[Callable[[list[float]], Any]]
    units: list[Function]
    reserves: list[Function | None]
    fixed: list[tuple[bool, bool]]
    reuse: Function | None
    cache: Function | None
    bindings: list[tuple[int, Function]]
    prefix: list[tuple[Function, Function]]
    private_from: int | None
    lease_ref: Callable[[list[float]], Any] | None
    lease_time: Function | None
    cached_of: Callable[[list[float]], Any] | None
    body: Ops = field(default_factory=list)
    on_preempt: Ops = field(default_factory=list)


@dataclass(slots=True, eq=False)
class HoldFrame:
    """One hold of one session: what it has of each pool, and how far its content is computed."""

    hold: CompiledHold
    session: Session
    pools: list[PoolState]
    alloc: list[float]
    position: list[float]
    reserved: list[float]
    released: list[bool]
    readings: list[Reading | None]
    distinct: bool
    advanced: bool = False
    admission: float = math.inf
    joined_at: float = 0.0
    order: int = 0
    preempted: bool = False
    requeue_tail: bool = False
    last_position: float = -1.0

    @classmethod
    def of(cls, hold: CompiledHold, session: Session) -> HoldFrame:
        pools = [ref(session.attrs) for ref in hold.refs]
        n = len(pools)
        distinct = len({id(pool) for pool in pools}) == n
        return cls(hold, session, pools, [0.0] * n, [0.0] * n, [0.0] * n, [False] * n, [None] * n, distinct)


def run_ops(ops: Ops, session: Session) -> Wait:
    """Run statements until they end; yields where the session waits."""
    statement: Op = _NOTHING
    try:
        for statement in ops:
            if statement[0]:
                yield from statement[1](session)
            else:
                statement[1](session)
    except RunError as error:
        raise error.located(statement[2], session.serial) from None


def run_at_once(ops: Ops, session: Session) -> None:
    """Run statements that never wait."""
    statement: Op = _NOTHING
    try:
        for statement in ops:
            statement[1](session)
    except RunError as error:
        raise error.located(statement[2], session.serial) from None


class StatementCompiler:
    """Blocks to lists of operations, each block once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._blocks: dict[int, Ops] = {}

    def block(self, index: int | None) -> Ops:
        if index is None:
            return []
        found = self._blocks.get(index)
        if found is None:
            found = []
            self._blocks[index] = found
            stmts = self._kernel.program.blocks[index]
            places = self._kernel.program.places
            written = (None,) * len(stmts) if places is None else places.blocks[index]
            found.extend((*self._statement(stmt), place) for stmt, place in zip(stmts, written, strict=True))
        return found

    def _statement(self, stmt: ir.Stmt) -> tuple[bool, Callable[[Session], Any]]:
        maker = getattr(self, f"_{type(stmt).__name__.lower()}")
        found: tuple[bool, Callable[[Session], Any]] = maker(stmt)
        return found

    def _set(self, stmt: ir.Set) -> tuple[bool, Callable[[Session], Any]]:
        slot, value = stmt.slot, self._kernel.function(stmt.value)

        def op(s: Session) -> None:
            s.attrs[slot] = value(s.attrs)

        least, name = stmt.least, self._kernel.program.attrs[slot]
        if least is None:
            return False, op

        def checked(s: Session) -> None:
            found = value(s.attrs)
            if not found >= least:
                raise RunError("run-amount", f"{name} is at least {least:g}, got {found:g}")
            s.attrs[slot] = found

        return False, checked

    def _observe(self, stmt: ir.Observe) -> tuple[bool, Callable[[Session], Any]]:
        kernel, value = self._kernel, self._kernel.function(stmt.value)
        samples = kernel.samples[stmt.index]

        def op(s: Session) -> None:
            kernel.observe(samples, value(s.attrs), s)

        return False, op

    def _turn(self, stmt: ir.Turn) -> tuple[bool, Callable[[Session], Any]]:
        kernel = self._kernel
        if stmt.body is None:
            return False, kernel.population.begin_turn
        body = self.block(stmt.body)

        def op(s: Session) -> Wait:
            kernel.population.begin_turn(s)
            s.turn = TurnRecord(s.serial, s.turn_no, kernel.ctx.now)
            with suppress(TurnEndError):
                yield from run_ops(body, s)
            kernel.population.end_turn(s)

        return True, op

    def _end(self, stmt: ir.End) -> tuple[bool, Callable[[Session], Any]]:
        kind = SessionEndError if stmt.what == "session" else TurnEndError

        def op(s: Session) -> None:
            raise kind

        return False, op

    def _hold(self, stmt: ir.Hold) -> tuple[bool, Callable[[Session], Any]]:
        kernel = self._kernel
        hold = kernel.holds.compile(stmt)
        hold.body = self.block(stmt.body)
        hold.on_preempt = self.block(stmt.on_preempt)

        def op(s: Session) -> Wait:
            frame = HoldFrame.of(hold, s)
            s.attrs[kernel.slot_computed] = 0.0
            while True:
                if kernel.holds.rejects(frame):
                    raise RejectedError
                kernel.holds.join(frame)
                try:
                    yield
                    yield from run_ops(hold.body, s)
                except PreemptedError as lost:
                    if lost.frame is not frame:
                        raise
                    continue
                except SessionEndError:
                    if frame in s.holds:
                        kernel.holds.end(frame, serve=False)
                    raise
                kernel.holds.end(frame, serve=True)
                return

        return True, op

    def _grow(self, stmt: ir.Grow) -> tuple[bool, Callable[[Session], Any]]:
        kernel, amount = self._kernel, self._kernel.function(stmt.amount)
        pool_of = kernel.pool_ref(stmt.pool)

        def op(s: Session) -> Wait:
            pool: PoolState = pool_of(s.attrs)
            found = s.innermost(pool)
            if found is None:
                raise RunError("run-amount", f"grow {pool.name}: the session holds nothing of it")
            size = kernel.amount(amount(s.attrs), "grow")
            if kernel.growth.grow(found[0], found[1], pool.round_up(size)):
                return
            pool.add_grower(s, found[0], found[1], pool.round_up(size), None)
            yield

        return True, op

    def _shrink(self, stmt: ir.Shrink) -> tuple[bool, Callable[[Session], Any]]:
        kernel, amount, pool_of = self._kernel, self._kernel.function(stmt.amount), self._kernel.pool_ref(stmt.pool)

        def op(s: Session) -> None:
            kernel.holds.shrink(s, pool_of(s.attrs), kernel.amount(amount(s.attrs), "shrink"))

        return False, op

    def _load(self, stmt: ir.Load) -> tuple[bool, Callable[[Session], Any]]:
        kernel, amount, pool_of = self._kernel, self._kernel.function(stmt.amount), self._kernel.pool_ref(stmt.pool)
        counted = kernel.optional(stmt.counted)

        def op(s: Session) -> None:
            arrives = kernel.amount(amount(s.attrs), "load")
            kernel.holds.load(s, pool_of(s.attrs), arrives, arrives if counted is None else counted(s.attrs))

        return False, op

    def _drop(self, stmt: ir.Drop) -> tuple[bool, Callable[[Session], Any]]:
        pool_of = self._kernel.pool_ref(stmt.pool)

        def op(s: Session) -> None:
            pool: PoolState = pool_of(s.attrs)
            pool.drop_last(s.root)

        return False, op

    def _release(self, stmt: ir.Release) -> tuple[bool, Callable[[Session], Any]]:
        kernel, pool_of = self._kernel, self._kernel.pool_ref(stmt.pool)

        def op(s: Session) -> None:
            kernel.holds.release(s, pool_of(s.attrs))

        return False, op

    def _run(self, stmt: ir.Run) -> tuple[bool, Callable[[Session], Any]]:
        kernel = self._kernel
        stages = [kernel.stage_ref(ref) for ref in stmt.stages]
        work = kernel.function(stmt.work)
        growing = None if stmt.growing is None else kernel.pool_ref(stmt.growing)
        latency = None if stmt.latency is None else kernel.function(stmt.latency)
        mode, what = stmt.mode, "run"

        def op(s: Session) -> Wait:
            a = s.attrs
            size = kernel.amount(work(a), what)
            delay = 0.0 if latency is None else kernel.amount(latency(a), "latency")
            where = [stage(a) for stage in stages]
            if size == 0 and delay == 0:
                kernel.population.make_ready(s)
            else:
                kernel.population.start_job(s, where, size, mode, None if growing is None else growing(a), delay)
            yield

        return True, op

    def _branch(self, stmt: ir.Branch) -> tuple[bool, Callable[[Session], Any]]:
        kernel, test = self._kernel, self._kernel.function(stmt.test)
        then, otherwise = self.block(stmt.then), self.block(stmt.otherwise)

        def op(s: Session) -> Wait:
            yield from run_ops(then if kernel.guard(test(s.attrs)) else otherwise, s)

        def immediate(s: Session) -> None:
            run_at_once(then if kernel.guard(test(s.attrs)) else otherwise, s)

        if any(waits for waits, _, _ in (*then, *otherwise)):
            return True, op
        return False, immediate

    def _while(self, stmt: ir.While) -> tuple[bool, Callable[[Session], Any]]:
        kernel, test, body = self._kernel, self._kernel.function(stmt.test), self.block(stmt.body)

        def op(s: Session) -> Wait:
            rounds, at = 0, kernel.ctx.now
            while kernel.guard(test(s.attrs)):
                yield from run_ops(body, s)
                rounds = rounds + 1 if kernel.ctx.now == at else 0
                at = kernel.ctx.now
                if rounds > 1_000_000:
                    raise RunError("run-progress", f"session {s.serial} loops without passing time")

        return True, op

    def _fork(self, stmt: ir.Fork) -> tuple[bool, Callable[[Session], Any]]:
        kernel, body = self._kernel, self.block(stmt.body)

        def op(s: Session) -> None:
            kernel.population.fork(s, body)

        return False, op

    def _join(self, stmt: ir.Join) -> tuple[bool, Callable[[Session], Any]]:
        def op(s: Session) -> Wait:
            if s.legs:
                s.joining = True
                yield

        return True, op

    def _choose(self, stmt: ir.Choose) -> tuple[bool, Callable[[Session], Any]]:
        count = self._kernel.function(stmt.count)
        keys, slot = [self._kernel.function(key) for key in stmt.keys], stmt.slot

        def op(s: Session) -> None:
            a = s.attrs
            n = count(a)
            if not (n >= 0 and n == int(n)):
                raise RunError("run-index", f"choose among {n:g}: the count must be a whole number >= 0")
            best: tuple[tuple[float, ...], int] | None = None
            for j in range(int(n)):
                a[slot] = float(j)
                found = (tuple([key(a) for key in keys]), j)
                if best is None or found < best:
                    best = found
            a[slot] = float(best[1]) if best is not None else 0.0

        return False, op
