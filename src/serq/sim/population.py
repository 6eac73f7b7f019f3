"""Sessions come, take turns, fork legs, run jobs and leave.

A session that is ready is resumed in the order of becoming ready.
Source: docs/language.md, "Workload", "Session, server, turn", "Forks".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from serq import ir
from serq.errors import RunError
from serq.ir.fold import parts
from serq.sim.chacha import stream_seed
from serq.sim.pools import PoolState
from serq.sim.rng import Rng, StreamBank
from serq.sim.samples import SampleList
from serq.sim.sessions import (
    Ops,
    RejectedError,
    Session,
    SessionEndError,
    StatementCompiler,
    TurnRecord,
    run_at_once,
    run_ops,
)
from serq.sim.stages import Job
from serq.sim.stats import TimeAverage

if TYPE_CHECKING:
    from serq.sim.kernel import Kernel

__all__ = ["Population", "Rows"]

_TRACE = 0x6A09E667F3BCC908
_WAKEUPS = 1001

Rows = Sequence[tuple[float, float, float, float]]


class Population:
    """The sessions of one run."""

    def __init__(self, kernel: Kernel, trace: Sequence[Rows], *, keep: bool) -> None:
        self._kernel = kernel
        self.trace = trace
        program = kernel.program
        self._trace_rng = Rng(program.seed ^ _TRACE)
        self._sessions, self._turns = StreamBank(program.seed, 2), StreamBank(program.seed, 1)
        slots = dict(program.builtins)
        self.slot_serial, self.slot_turn = slots["serial"], slots["turn_no"]
        self._row_slots = [slots[name] for name in ("new", "out", "think", "forced")]
        self._slot_more = slots["more"]
        self.client: dict[str, SampleList] = {
            name: SampleList(name, keep=keep) for name in ("ttft", "tpot", "response")
        }
        self.arrivals = 0
        self.ended = 0
        self.turns = 0
        self.live = TimeAverage()
        self.count = 0
        self.present: dict[int, Session] = {}
        self.ready: deque[Session] = deque()
        self.running: Session | None = None
        self._wakeup_at = -1.0
        self._woken: dict[Session, int] = {}

    def compile(self, compiler: StatementCompiler) -> None:
        program = self._kernel.program
        self._init, self._turn_block = compiler.block(program.init), compiler.block(program.turn)
        self._session_block = compiler.block(program.session)
        self._init_draws, self._turn_draws = _draws(program, program.init), _draws(program, program.turn)

    def make_ready(self, s: Session) -> None:
        s.ready = True
        s.waiting_in = None
        self.ready.append(s)

    def start(self) -> None:
        serial = self.arrivals
        self.arrivals += 1
        self.count += 1
        self.live.set(float(self.count), self._kernel.ctx.now)
        attrs = [0.0] * len(self._kernel.program.attrs)
        attrs[self.slot_serial] = float(serial)
        s = Session(self._kernel, serial, attrs, self._sessions.stream(serial, 0))
        self.present[serial] = s
        if self.trace:
            ordered = self._kernel.program.trace is not None and self._kernel.program.trace.ordered
            pick = serial % len(self.trace) if ordered else self._trace_rng.range_u32(0, len(self.trace) - 1)
            s.rows = self.trace[pick]
        if self._init:
            self.immediate(self._init, s, self._turns.stream(serial, 0) if self._init_draws else s.rng)
        self._kernel.claims.admit(serial, attrs)
        s.gen = self._life(s)
        self.make_ready(s)

    def immediate(self, ops: Ops, s: Session, rng: Rng) -> None:
        """Run statements that cannot wait, on a stream of their own."""
        ctx = self._kernel.ctx
        before, ctx.rng = ctx.rng, rng
        run_at_once(ops, s)
        ctx.rng = before

    def _life(self, s: Session) -> Any:
        try:
            yield from run_ops(self._session_block, s)
        except RejectedError:
            s.legs = 0  # they go on without it
        except SessionEndError:
            pass
        self._end_session(s)

    def _end_session(self, s: Session) -> None:
        if s.legs:
            raise RunError("run-cycle", f"session {s.serial} ends while {s.legs} of its legs run")
        self.unended(s.turn)
        for lease in list(s.leases):
            self._kernel.leases.end(lease)
        self.count -= 1
        self.live.set(float(self.count), self._kernel.ctx.now)
        if self._kernel.ctx.now >= self._kernel.program.warmup:
            self.ended += 1
        del self.present[s.serial]
        for pool in self._kernel.pools:
            pool.chains.forget(s)
        if self._kernel.program.arrival.kind == "closed":
            self.start()
        elif not self.count and self.arrivals == self._kernel.program.arrivals:
            self._kernel.stopped_at = self._kernel.ctx.now

    def fork(self, s: Session, body: Ops) -> None:
        """A leg: a copy of the attributes runs the block, starting behind the sessions already ready."""
        index = s.root.legs_started
        s.root.legs_started += 1
        s.legs += 1
        leg = Session(
            self._kernel,
            s.serial,
            s.attrs[:-1],
            Rng(stream_seed(self._kernel.program.seed, s.serial, index, 3)),
            s.root,
        )
        leg.turn = s.turn
        leg.gen = self._leg(leg, s, body)
        self.make_ready(leg)

    def _leg(self, leg: Session, parent: Session, body: Ops) -> Any:
        try:
            yield from run_ops(body, leg)
        except RejectedError:
            self._reject(leg)
        for lease in list(leg.leases):
            if leg.root.serial not in self.present:
                self._kernel.leases.end(lease)
                continue
            lease.pool.reassign(lease, parent)
            parent.leases.append(lease)
        leg.leases = []
        parent.legs -= 1
        if parent.joining and not parent.legs:
            parent.joining = False
            self.make_ready(parent)

    def _reject(self, leg: Session) -> None:
        """A leg asks for more than there is: its session leaves wherever it stands; other legs go on without it."""
        root = leg.root
        if root.serial not in self.present:
            return
        root.legs, root.joining = 0, False
        self._kernel.growth.detach(root)
        if root.gen is not None:
            with suppress(SessionEndError, StopIteration):
                root.gen.throw(SessionEndError)
        root.gen = None

    def begin_turn(self, s: Session) -> None:
        if self._kernel.ctx.now >= self._kernel.program.warmup:
            self.turns += 1
        attrs = s.attrs
        attrs[self.slot_turn] += 1
        s.last_token, s.decodes, s.preempted = None, False, False
        if s.row < len(s.rows):
            for slot, value in zip(self._row_slots, s.rows[s.row], strict=True):
                attrs[slot] = value
            s.row += 1
            attrs[self._slot_more] = 1.0 if s.row < len(s.rows) else 0.0
        elif s.rows:
            attrs[self._slot_more] = 0.0
        if self._turn_block:
            draws = self._turns.stream(s.serial, int(attrs[self.slot_turn])) if self._turn_draws else s.rng
            self.immediate(self._turn_block, s, draws)

    def end_turn(self, s: Session) -> None:
        turn, now = s.turn, self._kernel.ctx.now
        if turn is None:
            return
        self.first_token(turn)
        if now >= self._kernel.program.warmup:
            self.client["response"].add(now - turn.submitted, now, turn.session, turn.number)
            if turn.tokens >= 2 and turn.first is not None:
                self.client["tpot"].add((now - turn.first) / (turn.tokens - 1), now, turn.session, turn.number)
        s.turn = None

    def first_token(self, turn: TurnRecord) -> None:
        """Note the time to a turn's first token, whether or not the turn came to its end."""
        if turn.first is not None and turn.first >= self._kernel.program.warmup:
            self.client["ttft"].add(turn.first - turn.submitted, turn.first, turn.session, turn.number)

    def unended(self, turn: TurnRecord | None) -> None:
        """Note the first token of a turn that does not come to its end, once a decode has begun and so settled it."""
        if turn is not None and turn.settled:
            self.first_token(turn)

    def resume(self, s: Session) -> None:
        """Let a session run until it waits or ends."""
        ctx = self._kernel.ctx
        before = ctx.rng, self.running
        ctx.rng, self.running = s.rng, s
        s.ready = False
        if ctx.now != self._wakeup_at:
            self._wakeup_at = ctx.now
            self._woken = {}
        count = self._woken.get(s, 0) + 1
        self._woken[s] = count
        if count > _WAKEUPS:
            raise RunError("run-progress", f"session {s.serial} woke more than {_WAKEUPS} times at {ctx.now:g}")
        try:
            if s.gen is not None:
                next(s.gen)
        except StopIteration:
            s.gen = None
        finally:
            ctx.rng, self.running = before

    def fail(self, s: Session, error: RunError) -> NoReturn:
        """Raise an error where the session waits, whose statement is at fault."""
        if s.gen is not None and s is not self.running:
            s.gen.throw(error)
        raise error.located(session=s.serial)

    def run_now(self, s: Session) -> None:
        """Resume a ready session at once, through runs of zero work too, until it really waits or ends."""
        while s.ready:
            self.ready.remove(s)
            self.resume(s)

    def start_job(
        self, s: Session, stages: list[Any], work: float, mode: str, growing: PoolState | None, latency: float
    ) -> None:
        job = Job(s, stages, work, mode, self._kernel.ctx.now, growing=growing, latency=latency)
        s.job = job
        if latency > 0:
            for stage in stages:
                stage.delayed += 1
                stage.changed()
            self._kernel.schedule(self._kernel.ctx.now + latency, self._latency_over, job)
        else:
            stages[0].join(job)

    def _latency_over(self, job: Job) -> None:
        if job.gone:
            return
        for stage in job.stages:
            stage.delayed -= 1
            stage.changed()
        if job.work == 0:
            job.started = self._kernel.ctx.now
            for other in job.stages[1:]:
                other.count(job)
            job.stages[0].finish(job)
            return
        job.stages[0].join(job)

    def job_done(self, job: Job) -> None:
        if job.session is not None:
            job.session.job = None
            self.make_ready(job.session)


def _draws(program: ir.Program, block: int | None) -> bool:
    """Whether statements that cannot wait draw random numbers; if not, they need no stream of their own."""
    for stmt in () if block is None else program.blocks[block]:
        match stmt:
            case ir.Set(value=value) | ir.Observe(value=value):
                if any(isinstance(part, ir.Sample) for part in parts(value)):
                    return True
            case _:
                return True
    return False
