"""The interchange form: a compiled program as plain, closed, versioned values.

Definitions are expanded, constants folded, names resolved to slots.  A program and its interchange form give identical
results.  `to_json` writes it; `from_json` (both in `json_form`) reads it back and refuses unknown versions and nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from serq.errors import Place

__all__ = [
    "IR_VERSION",
    "Agg",
    "Arrival",
    "Attr",
    "Binary",
    "Block",
    "Branch",
    "Call",
    "Choose",
    "Claim",
    "Cond",
    "Ctx",
    "Drop",
    "End",
    "Expr",
    "Fork",
    "Gauge",
    "Grow",
    "Hold",
    "HoldPool",
    "Iteration",
    "Join",
    "Lease",
    "Load",
    "Num",
    "Observe",
    "Pool",
    "Preempt",
    "Program",
    "Ref",
    "Reg",
    "Register",
    "Release",
    "Run",
    "Sample",
    "Set",
    "Shrink",
    "Spill",
    "Stage",
    "Step",
    "Stmt",
    "Trace",
    "Turn",
    "Unary",
    "While",
]

IR_VERSION = 1


# --- expressions: every value is a double; tests are 1.0 or 0.0 ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    value: float


@dataclass(frozen=True, slots=True)
class Attr:
    """A session attribute."""

    slot: int


@dataclass(frozen=True, slots=True)
class Ctx:
    """A context word of the moment: `now`, `waited`, `tokens`, `running_count`, ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Reg:
    """A scheduler register."""

    index: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A pool or stage: the first member's position, the family size, and the index expression of a family."""

    base: int
    count: int = 1
    index: Expr | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A draw: `exp det uniform erlang h2 bernoulli`."""

    kind: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of numbers (`min max abs floor ceil sqrt exp ln`) or a query of a pool or stage.

    Queries of a stage: `queue busy work budget_left est_lambda est_rho est_wait price`; of a pool: `used free cachedin
    allocated holders queued`.  `price` takes two more numbers in `args`.
    """

    name: str
    args: tuple[Expr, ...] = ()
    ref: Ref | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """`-` or `!`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """`|| && == != < <= > >= + - * / ^`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Cond:
    test: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Agg:
    """`count total largest smallest prefix_total` of an observation, in an `at end` claim."""

    kind: str
    observe: int


Expr = Num | Attr | Ctx | Reg | Sample | Call | Unary | Binary | Cond | Agg


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Set:
    """Assign an attribute; a value below `least`, or none at all, ends the run."""

    slot: int
    value: Expr
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Observe:
    index: int
    value: Expr


@dataclass(frozen=True, slots=True)
class Turn:
    """Next turn: load the trace row, run the turn block; with `body`, submit it and run the server until its end."""

    body: int | None = None


@dataclass(frozen=True, slots=True)
class End:
    """`session` leaves; `turn` finishes the server's work on this turn."""

    what: str


@dataclass(frozen=True, slots=True)
class HoldPool:
    pool: Ref
    units: Expr
    reserve: Expr | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    pool: Ref
    time: Expr


@dataclass(frozen=True, slots=True)
class Hold:
    """Take units for the length of a block (docs/language.md, "Holds and admission").

    `bindings` are the `at admission` values, evaluated anew at every attempt before the amounts and kept as attributes.
    `prefix` is the chain of (key, length); `private_from` the first segment whose key is the session itself, None when
    all are shared.  `on_preempt` runs when the hold is preempted, before it queues again.  `cached` tells the prefix
    that was consumed in `cached_of`, without one the largest over the pools.
    """

    pools: tuple[HoldPool, ...]
    body: int
    reuse: Expr | None = None
    cache: Expr | None = None
    bindings: tuple[tuple[int, Expr], ...] = ()
    prefix: tuple[tuple[Expr, Expr], ...] = ()
    private_from: int | None = None
    lease: Lease | None = None
    on_preempt: int | None = None
    cached_of: Ref | None = None


@dataclass(frozen=True, slots=True)
class Grow:
    pool: Ref
    amount: Expr


@dataclass(frozen=True, slots=True)
class Shrink:
    pool: Ref
    amount: Expr


@dataclass(frozen=True, slots=True)
class Load:
    """`amount` tokens arrive and must fit the allocation; all of them, or `counted`, then count as computed."""

    pool: Ref
    amount: Expr
    counted: Expr | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    pool: Ref


@dataclass(frozen=True, slots=True)
class Release:
    pool: Ref


@dataclass(frozen=True, slots=True)
class Run:
    """A job on one stage, or a flow on several.  `mode` is `plain`, `prefill` or `decode`; `share` a flow's policy."""

    stages: tuple[Ref, ...]
    work: Expr
    mode: str = "plain"
    growing: Ref | None = None
    share: str | None = None
    latency: Expr | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    test: Expr
    then: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class While:
    test: Expr
    body: int


@dataclass(frozen=True, slots=True)
class Fork:
    body: int


@dataclass(frozen=True, slots=True)
class Join:
    pass


@dataclass(frozen=True, slots=True)
class Choose:
    slot: int
    count: Expr
    keys: tuple[Expr, ...]


Stmt = (
    Set
    | Observe
    | Turn
    | End
    | Hold
    | Grow
    | Shrink
    | Load
    | Drop
    | Release
    | Run
    | Branch
    | While
    | Fork
    | Join
    | Choose
)
Block = tuple[Stmt, ...]


# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preempt:
    """What a growth that does not fit does: `none` waits, `by` preempts the least keys, `leases` ends leases."""

    kind: str = "none"
    keys: tuple[Expr, ...] = ()
    requeue_tail: bool = False
    every: float | None = None
    suspend: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Spill:
    tier: Ref
    via: Ref
    work: Expr
    when: Expr


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool, or one member of a family (`index`).  `evict` and `queue` are keys; empty means lru and fifo."""

    name: str
    index: int | None = None
    cap: float = float("inf")
    block: float | None = None
    evict: tuple[Expr, ...] = ()
    preempt: Preempt = Preempt()
    queue: tuple[Expr, ...] = ()
    queue_every: float | None = None
    admit_via: int | None = None
    reserve_held: bool = False
    spill: Spill | None = None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One scheduler statement: `serve` (`only`, `keys`), `admit` (`only`, `gate`), `branch` or `set`."""

    kind: str
    only: Expr | None = None
    keys: tuple[Expr, ...] = ()
    gate: Expr | None = None
    test: Expr | None = None
    then: tuple[Iteration, ...] = ()
    otherwise: tuple[Iteration, ...] = ()
    register: int | None = None
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step engine.  `chunk` <= 0 is no cap; `exclusive` replaces `iteration` by phase isolation.

    `budget` and `chunk` read the totals over the residents, and `waiting_count`, before the iteration.
    """

    budget: Expr
    cost: Expr
    chunk: Expr = Num(0.0)
    granule: float | None = None
    exclusive: bool = False
    iteration: tuple[Iteration, ...] = ()
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, or one member of a family.  `kind` is `fifo` (`servers`), `ps` (`capacity`), `delay` or `step`."""

    name: str
    kind: str
    index: int | None = None
    servers: int = 1
    capacity: Expr | None = None
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """`none`, `poisson` (rate), `renewal` (gap expression), `closed` or `batch` (count)."""

    kind: str = "none"
    value: float = 0.0
    gap: Expr | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file and whether session i replays its session i mod N; `sessions` when the rows are carried along.

    `folder` is where a relative path is read from on this machine; the interchange form leaves it out.
    """

    path: str
    ordered: bool = False
    sessions: tuple[tuple[tuple[float, float, float, float], ...], ...] | None = None
    folder: str = field(default="", compare=False, metadata={"local": True})


@dataclass(frozen=True, slots=True)
class Gauge:
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Claim:
    """`every_iteration` or `some_iteration` of `stage`, or `at_end`; limited to sessions with `given`."""

    name: str
    kind: str
    test: Expr
    stage: int | None = None
    given: Expr | None = None


@dataclass(frozen=True, slots=True)
class Register:
    name: str
    stage: int
    initial: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where the statements of every block and the stages were written; None where that is not known."""

    blocks: tuple[tuple[Place | None, ...], ...]
    stages: tuple[Place | None, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program with its settings.

    `builtins` gives the slots of `cached serial turn_no new out think more forced computed`; `share` is the policy of
    the flow fabric; `client` tells whether turns are submitted to a server, so that client figures exist.
    """

    attrs: tuple[str, ...]
    builtins: tuple[tuple[str, int], ...]
    observes: tuple[str, ...]
    pools: tuple[Pool, ...]
    stages: tuple[Stage, ...]
    blocks: tuple[Block, ...]
    session: int
    arrival: Arrival = Arrival()
    trace: Trace | None = None
    init: int | None = None
    turn: int | None = None
    gauges: tuple[Gauge, ...] = ()
    claims: tuple[Claim, ...] = ()
    registers: tuple[Register, ...] = ()
    hidden: tuple[int, ...] = ()
    share: str | None = None
    horizon: float | None = None
    warmup: float = 0.0
    seed: int = 1
    arrivals: int | None = None
    client: bool = False
    notes: tuple[tuple[str, str], ...] = field(default=())
    places: Places | None = field(default=None, compare=False, repr=False, metadata={"local": True})
