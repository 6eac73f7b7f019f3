"""What a compilation has gathered so far: names, resources, slots, blocks, and the obligations checked at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from serq import ir
from serq.errors import Place, SerqError, fail
from serq.ir.moments import MOMENTS, Moment
from serq.ir.nodes import Places
from serq.ir.words import BUILTINS, KEYWORDS, QUEUE_WORDS, RESERVED, RETIRED_NAMES
from serq.syntax import tree

__all__ = [
    "Amount",
    "Binding",
    "Build",
    "Definition",
    "Engine",
    "Frame",
    "Macro",
    "Queue",
    "Resource",
    "Scope",
    "Value",
]

Cost = frozenset[str]
_ROW = ("new", "out", "think", "more", "forced")
"""Attributes of a trace row; the single-file edition lets a stage or pool bear such a name."""


@dataclass(frozen=True, slots=True)
class Value:
    """A lowered expression and, in the split edition, the resources it is a cost of (None: a plain number)."""

    expr: ir.Expr
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Macro:
    """An argument still to be lowered, where it was written."""

    expr: tree.Expression
    scope: Scope


Binding = Value | Macro


@dataclass(slots=True)
class Resource:
    """A pool or stage by its full name: position of its first member, number of members, whether it is a family."""

    kind: str
    name: str
    base: int
    count: int
    family: bool
    at: Place
    cap: float = float("inf")
    block: float | None = None
    admitted_by: Resource | None = None
    engine: Engine | None = None
    latency: ir.Expr | None = None
    ran: bool = False
    side: str = "server"
    constant_rate: bool = False
    spilled_by: Resource | None = None
    cached: bool = False
    row: ir.Stage | None = None

    def ref(self, index: ir.Expr | None = None) -> ir.Ref:
        return ir.Ref(self.base, self.count, index)


@dataclass(slots=True)
class Engine:
    """An engine of the split edition (`queue` None outside a queue), or a step stage with its memory."""

    name: str
    at: Place
    stage: Resource
    decl: tree.EngineDecl | None = None
    queue: Queue | None = None
    memory: Resource | None = None
    pools: list[Resource] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    rates: dict[str, tree.DefDecl] = field(default_factory=dict)
    taking: tree.Taking | None = None
    slots: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Queue:
    name: str
    decl: tree.QueueDecl
    count: int
    family: bool
    locals: dict[str, Resource] = field(default_factory=dict)
    entries: dict[str, tree.EntryDecl] = field(default_factory=dict)
    engine: Engine | None = None
    nic: Resource | None = None
    names: set[str] = field(default_factory=set)
    scene: object = None


@dataclass(frozen=True, slots=True)
class Definition:
    decl: tree.DefDecl
    order: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One enclosing hold: its pools by name, and whether it keeps a prefix."""

    pools: frozenset[str]
    cache: bool


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount that must be whole, and what to say where when it may not be; of a `pool`, if its units are tokens."""

    expr: ir.Expr
    what: str
    at: Place | None
    pool: Resource | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression or statement stands: its moment, the names of the place, the enclosing holds."""

    build: Build
    moment: Moment
    side: str = "single"
    names: Mapping[str, Binding] = field(default_factory=dict)
    queue: Queue | None = None
    member: ir.Expr | None = None
    source: tuple[str, Resource, ir.Expr | None] | None = None
    engine: Engine | None = None
    request: Mapping[str, ir.Expr] = field(default_factory=dict)
    holds: tuple[Frame, ...] = ()
    leg: bool = False
    depth: int = 0
    calls: tuple[str, ...] = ()
    use: tuple[str, Place] | None = None

    def to(self, moment: str) -> Scope:
        """The same place at another moment."""
        return self.but(moment=MOMENTS[moment])

    def but(self, **changes: object) -> Scope:
        values = {name: getattr(self, name) for name in self.__slots__}
        values.update(changes)
        return Scope(**values)


class Build:
    """The state of one compilation."""

    def __init__(self, single_file: bool) -> None:
        self.single_file = single_file
        self.lets: dict[str, float] = {}
        self.defs: dict[str, Definition] = {}
        self.client_lets: dict[str, float] = {}
        self.client_defs: dict[str, Definition] = {}
        self.resources: dict[str, Resource] = {}
        self.queues: dict[str, Queue] = {}
        self.engines: dict[str, Engine] = {}
        self.pools: list[Resource] = []
        self.stages: list[Resource] = []
        self.pool_rows = 0
        self.stage_rows = 0
        self.slots: dict[str, int] = {name: slot for slot, name in enumerate(BUILTINS)}
        self.attrs: list[str] = list(BUILTINS)
        self.sides: dict[str, set[str]] = {"server": set(), "client": set()}
        self.params: dict[str, int] = {}
        self.replies: set[str] = set()
        self.hidden: set[int] = set()
        self.costs: dict[int, Cost] = {}
        self.observes: list[str] = []
        self.blocks: list[ir.Block] = []
        self.registers: list[ir.Register] = []
        self.taken: dict[str, tuple[str, Place]] = {}
        self.uses: set[str] = set()
        self.amounts: list[Amount] = []
        self.headers: list[tuple[ir.Expr, str, Place | None]] = []
        self.decisions: list[tuple[ir.Expr, str, Place | None]] = []
        self.releases: list[tuple[Resource, Place]] = []
        self.leased: set[str] = set()
        self.fork_at: Place | None = None
        self.joins = False
        self.errors: list[SerqError] = []
        self.server: tree.Body = ()
        self.copies: dict[str, tree.TransferDecl] = {}
        self.share: str | None = None
        self.overridden: set[str] = set()
        self.places: dict[int, tuple[ir.Stmt, Place]] = {}
        self.sends = 0
        self.uses_left = 0
        self.reply_slots: list[tuple[int, str, Place]] = []
        self.server_block: int | None = None
        self.mark_slots: set[int] = set()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """One independent piece of work: an error in it is kept, and what stands after it goes on."""
        try:
            yield
        except SerqError as error:
            if error.fatal:
                raise
            self.errors.append(error)

    def stop(self) -> None:
        """Raise the first error found, which carries them all."""
        if self.errors:
            first = self.errors[0]
            first.errors = tuple(self.errors)
            raise first

    def whole_amounts(self) -> list[Amount]:
        """Amounts of tokens: of a pool with blocks, of an engine's memory, what a `cache` keeps, and of no pool."""
        memories = [engine.memory for engine in self.engines.values()]

        def tokens(pool: Resource | None) -> bool:
            if pool is None:
                return True
            tiers: list[Resource] = []
            while pool is not None and not any(pool is one for one in tiers):
                if pool.block is not None or pool.cached or any(pool is one for one in memories):
                    return True
                tiers.append(pool)
                pool = pool.spilled_by
            return False

        found = [amount for amount in self.amounts if tokens(amount.pool)]
        for pool in self.pools:
            if tokens(pool) and not self.single_file:
                found.append(Amount(ir.Num(pool.cap), f"the capacity of {pool.name!r}", pool.at))
                found.append(Amount(ir.Num(pool.block or 1.0), f"the block of {pool.name!r}", pool.at))
        return found

    def lets_of(self, side: str) -> dict[str, float]:
        """The constants of a side: each file of the split edition has its own."""
        return self.client_lets if side == "client" else self.lets

    def defs_of(self, side: str) -> dict[str, Definition]:
        """The definitions of a side."""
        return self.client_defs if side == "client" else self.defs

    # --- names --------------------------------------------------------------------------------------------------------

    def declare(self, what: str, name: str, at: Place) -> None:
        """Claim a name for one meaning; one word may not mean two things."""
        if name in RESERVED:
            raise fail("structure", f"{name!r} is a word of the language", at, code="E-reserved-word")
        if name in BUILTINS and not (self.single_file and name in _ROW and what in ("stage", "pool")):
            raise fail("structure", f"{name!r} is an attribute every session has", at, code="E-reserved-word")
        retired = not self.single_file and what in ("attribute", "constant", "claim") and name in RETIRED_NAMES
        taken = {"queue": QUEUE_WORDS, "device": KEYWORDS}.get(what, frozenset())
        if retired or name in taken:
            raise fail("structure", f"{name!r} is a word of the language", at, code="E-reserved-word")
        known = self.taken.get(name)
        if known and (known[0] != what or what not in ("constant", "attribute", "observation")):
            (said, since), (_, there) = _told(known, (what, at))
            twice = "twice" if known[0] == what else f"as {_article(known[0])} and as {_article(what)}"
            hint = f"it is {_article(said)} since line {since.line}"
            raise fail("structure", f"{name!r} is declared {twice}", there, hint=hint)
        self.taken.setdefault(name, (what, at))

    def slot(self, name: str) -> int:
        """The slot of an attribute, made when it is new."""
        if name not in self.slots:
            self.slots[name] = len(self.attrs)
            self.attrs.append(name)
        return self.slots[name]

    def observe(self, name: str) -> int:
        """The position of an observation, made when it is new."""
        if name not in self.observes:
            self.observes.append(name)
        return self.observes.index(name)

    # --- resources ----------------------------------------------------------------------------------------------------

    def add_resource(self, kind: str, name: str, size: int | None, at: Place) -> Resource:
        """A pool or stage (or family) at the next positions."""
        count = 1 if size is None else size
        if kind == "pool":
            resource = Resource(kind, name, self.pool_rows, count, size is not None, at)
            self.pool_rows += count
            self.pools.append(resource)
        else:
            resource = Resource(kind, name, self.stage_rows, count, size is not None, at)
            self.stage_rows += count
            self.stages.append(resource)
        self.resources[name] = resource
        return resource

    def place(self, statement: ir.Stmt) -> Place | None:
        """Where a lowered statement was written, when one written statement became it."""
        found = self.places.get(id(statement))
        return found[1] if found is not None and found[0] is statement else None

    def all_places(self) -> Places:
        """Where the statements of the blocks and the stages were written."""
        blocks = tuple(tuple(self.place(statement) for statement in block) for block in self.blocks)
        return Places(blocks, tuple(stage.at for stage in self.stages for _ in range(stage.count)))

    def block(self, statements: list[ir.Stmt]) -> int:
        """The number of a new block."""
        self.blocks.append(tuple(statements))
        return len(self.blocks) - 1


def _told(known: tuple[str, Place], new: tuple[str, Place]) -> tuple[tuple[str, Place], tuple[str, Place]]:
    """Of two meanings of one word, the one that stands and the one to complain of.

    A declaration is complained of before an attribute, otherwise the later of one text.
    """
    if "attribute" in (known[0], new[0]):
        return (known, new) if known[0] == "attribute" else (new, known)
    if known[1].source is new[1].source and (known[1].line, known[1].column) > (new[1].line, new[1].column):
        return new, known
    return known, new


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
