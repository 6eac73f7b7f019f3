"""The syntax tree: what was written, with where it stands (`at`), before any name has a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from serq.errors import Place

__all__ = [
    "Aggregate",
    "AmountStatement",
    "ArriveItem",
    "BinaryOp",
    "CallExpr",
    "CallStatement",
    "ChooseStatement",
    "ClaimDecl",
    "Conditional",
    "ConnectorDecl",
    "CostRecord",
    "DefDecl",
    "Deployment",
    "DeviceDecl",
    "Draw",
    "EngineDecl",
    "EntryCall",
    "EntryDecl",
    "Expression",
    "ForkStatement",
    "GaugeDecl",
    "HoldPart",
    "HoldStatement",
    "IfStatement",
    "Item",
    "LetDecl",
    "NameStatement",
    "Number",
    "Order",
    "Part",
    "Path",
    "PoolDecl",
    "PoolOption",
    "QueueDecl",
    "RunDecl",
    "RunStatement",
    "SchedulerStatement",
    "SeedProgram",
    "SendField",
    "ServerDecl",
    "SessionDecl",
    "SetStatement",
    "ShareDecl",
    "StageDecl",
    "Statement",
    "StepOption",
    "Taking",
    "Text",
    "TransferDecl",
    "TransferStatement",
    "UnaryOp",
    "UseDecl",
    "WhileStatement",
    "WordStatement",
    "WorkloadDecl",
    "WorkloadFile",
]


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    at: Place
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string; only `args.number` takes one."""

    at: Place
    value: str


@dataclass(frozen=True, slots=True)
class Part:
    """One name of a dotted path with its index."""

    at: Place
    name: str
    index: Expression | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """`name`, `name[index]`, `queue[index].member`."""

    at: Place
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return ".".join(part.name for part in self.parts)

    @property
    def plain(self) -> str | None:
        """The name when the path is one name without an index."""
        return self.parts[0].name if len(self.parts) == 1 and self.parts[0].index is None else None


@dataclass(frozen=True, slots=True)
class CallExpr:
    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`max j in N (e)`."""

    at: Place
    op: str
    var: str
    count: Expression
    body: Expression


@dataclass(frozen=True, slots=True)
class UnaryOp:
    at: Place
    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class BinaryOp:
    at: Place
    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional:
    at: Place
    test: Expression
    then: Expression
    otherwise: Expression


Expression = Number | Text | Path | CallExpr | Draw | Aggregate | UnaryOp | BinaryOp | Conditional
Keys = tuple[Expression, ...]


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetStatement:
    """`set`, `Size`, `Cost` or `observe` (the `word`) of one name."""

    at: Place
    word: str
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True)
class CostRecord:
    """`Cost both = { m: e, s: e };`."""

    at: Place
    name: str
    name_at: Place
    fields: tuple[tuple[Path, Expression], ...]


@dataclass(frozen=True, slots=True)
class WordStatement:
    """`turn`, `request`, `end` or `join`."""

    at: Place
    word: str


@dataclass(frozen=True, slots=True)
class NameStatement:
    """`mark NAME;`."""

    at: Place
    word: str
    name: str


@dataclass(frozen=True, slots=True)
class HoldPart:
    pool: Path
    units: Expression
    reserve: Expression | None = None


@dataclass(frozen=True, slots=True)
class HoldStatement:
    at: Place
    parts: tuple[HoldPart, ...]
    body: Body
    prefix: tuple[tuple[Expression, Expression], ...] = ()
    reuse: Expression | None = None
    bindings: tuple[tuple[str, Place, Expression], ...] = ()
    cache: Expression | None = None
    lease: tuple[Path, Expression] | None = None


@dataclass(frozen=True, slots=True)
class AmountStatement:
    """`grow`, `shrink` or `load` with an amount; `drop` and `release` without."""

    at: Place
    word: str
    pool: Path
    amount: Expression | None = None


@dataclass(frozen=True, slots=True)
class RunStatement:
    """`run`, `prefill`, `decode` and `tool`.

    `stages` may be empty (the stage the word implies); `member` is the index of `tool[e]`.
    """

    at: Place
    word: str
    stages: tuple[Path, ...]
    amount: Expression
    mode: str = "plain"
    member: Expression | None = None
    growing: Path | None = None
    latency: Expression | None = None
    share: str | None = None


@dataclass(frozen=True, slots=True)
class TransferStatement:
    at: Place
    stages: tuple[Path, ...]
    amount: Expression
    source: Path
    target: Path
    load: Expression
    member: Expression | None = None


@dataclass(frozen=True, slots=True)
class IfStatement:
    """`if`/`branch`; `chance` for `branch with (p)`."""

    at: Place
    test: Expression
    then: Body
    otherwise: Body
    chance: bool = False


@dataclass(frozen=True, slots=True)
class WhileStatement:
    """`while (e)`, or `loop` when there is no test."""

    at: Place
    test: Expression | None
    body: Body


@dataclass(frozen=True, slots=True)
class ForkStatement:
    at: Place
    body: Body


@dataclass(frozen=True, slots=True)
class ChooseStatement:
    at: Place
    name: str
    name_at: Place
    count: Expression
    keys: Keys


@dataclass(frozen=True, slots=True)
class CallStatement:
    """A statement definition, or a request to an engine."""

    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class EntryCall:
    """`Q[i].verb (args) [from P [to pool (n)]];`."""

    at: Place
    queue: Path
    verb: str
    args: tuple[Expression, ...]
    source: Path | None = None
    target: Path | None = None
    load: Expression | None = None


Statement = (
    SetStatement
    | CostRecord
    | WordStatement
    | NameStatement
    | HoldStatement
    | AmountStatement
    | RunStatement
    | TransferStatement
    | IfStatement
    | WhileStatement
    | ForkStatement
    | ChooseStatement
    | CallStatement
    | EntryCall
)
Body = tuple[Statement, ...]


# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UseDecl:
    at: Place
    path: str


@dataclass(frozen=True, slots=True)
class LetDecl:
    at: Place
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True)
class DefDecl:
    """A definition: `value` for an expression body, `body` for statements; `braced` as it was written."""

    at: Place
    name: str
    params: tuple[str, ...]
    value: Expression | None
    body: Body
    braced: bool


@dataclass(frozen=True, slots=True)
class StepOption:
    """One option of a step stage: `budget chunk cost memory` with a value, or `serve` with an order."""

    at: Place
    word: str
    value: Expression | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """`kind` is `admission`, `by` (keys), `decode_first` or `exclusive`; `only` limits who is served."""

    kind: str = "admission"
    keys: Keys = ()
    only: Expression | None = None


@dataclass(frozen=True, slots=True)
class StageDecl:
    """`kind` is `fifo`, `ps`, `delay` or `step`; `value` the argument of `fifo` and `ps`."""

    at: Place
    name: str
    name_at: Place
    size: Expression | None
    kind: str
    value: Expression | None = None
    options: tuple[StepOption, ...] = ()
    latency: Expression | None = None


@dataclass(frozen=True, slots=True)
class PoolOption:
    """One pool option; which fields are used depends on `word`."""

    at: Place
    word: str
    kind: str = ""
    value: Expression | None = None
    keys: Keys = ()
    every: Expression | None = None
    suspend: Keys = ()
    names: tuple[Path, ...] = ()
    when: Expression | None = None


@dataclass(frozen=True, slots=True)
class PoolDecl:
    at: Place
    name: str
    name_at: Place
    size: Expression | None
    options: tuple[PoolOption, ...]
    on: Path | None = None


@dataclass(frozen=True, slots=True)
class DeviceDecl:
    """`rates` are time resources (name, parameters, duration), `caps` capacities."""

    at: Place
    name: str
    rates: tuple[DefDecl, ...]
    caps: tuple[LetDecl, ...]


@dataclass(frozen=True, slots=True)
class ConnectorDecl:
    at: Place
    name: str
    per_token: Expression | None
    load: Expression | None
    save: Expression | None


@dataclass(frozen=True, slots=True)
class Taking:
    at: Place
    parts: tuple[HoldPart, ...]
    reuse: Expression | None = None
    prefix: tuple[tuple[Expression, Expression], ...] = ()
    cache: Expression | None = None


@dataclass(frozen=True, slots=True)
class SchedulerStatement:
    """`advance`, `admit`, `exclusive`, `if` or `set`."""

    at: Place
    word: str
    order: Order | None = None
    gate: Expression | None = None
    at_most: Expression | None = None
    taking: Taking | None = None
    then: tuple[SchedulerStatement, ...] = ()
    otherwise: tuple[SchedulerStatement, ...] = ()
    name: str = ""
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class EngineDecl:
    """An engine; `name` is empty inside a queue.  `scheduler` and `forward` are None when they were left out."""

    at: Place
    name: str
    name_at: Place
    device: str
    device_at: Place
    caps: tuple[LetDecl, ...]
    tokens: Expression | None
    granule: Expression | None
    states: tuple[LetDecl, ...]
    connectors: tuple[ConnectorDecl, ...]
    lets: tuple[LetDecl, ...]
    scheduler: tuple[SchedulerStatement, ...] | None
    scheduler_at: Place | None
    forward: Expression | None


@dataclass(frozen=True, slots=True)
class EntryDecl:
    at: Place
    verb: str
    params: tuple[str, ...]
    source: str | None
    body: Body


@dataclass(frozen=True, slots=True)
class QueueDecl:
    at: Place
    name: str
    name_at: Place
    size: Expression | None
    roles: tuple[str, ...]
    items: tuple[PoolDecl | DeviceDecl | EngineDecl | StageDecl | EntryDecl, ...]


@dataclass(frozen=True, slots=True)
class TransferDecl:
    """`kvt.nixl_pull (SRC, READER, ...)`."""

    at: Place
    kind: str
    source: str
    reader: str
    latency: Expression | None
    share: str


@dataclass(frozen=True, slots=True)
class ServerDecl:
    """`params` are (name, hidden, place), `reply` (name, place)."""

    at: Place
    params: tuple[tuple[str, bool, Place], ...]
    reply: tuple[tuple[str, Place], ...]
    body: Body


@dataclass(frozen=True, slots=True)
class SessionDecl:
    at: Place
    body: Body


@dataclass(frozen=True, slots=True)
class GaugeDecl:
    at: Place
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True)
class ClaimDecl:
    at: Place
    name: str
    name_at: Place
    kind: str
    stage: Path | None
    test: Expression
    given: Expression | None = None


@dataclass(frozen=True, slots=True)
class ArriveItem:
    at: Place
    kind: str
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class SendField:
    at: Place
    name: str
    value: Expression | None


@dataclass(frozen=True, slots=True)
class WorkloadDecl:
    at: Place
    arrive: ArriveItem | None = None
    trace: tuple[str, bool, Place] | None = None
    init: SessionDecl | None = None
    turn: SessionDecl | None = None
    session: SessionDecl | None = None
    send: tuple[SendField, ...] = ()
    hidden: tuple[tuple[str, Place], ...] = ()


@dataclass(frozen=True, slots=True)
class ShareDecl:
    at: Place
    policy: str


@dataclass(frozen=True, slots=True)
class RunDecl:
    at: Place
    settings: tuple[tuple[str, Expression], ...]


Item = (
    UseDecl
    | LetDecl
    | DefDecl
    | StageDecl
    | PoolDecl
    | DeviceDecl
    | EngineDecl
    | QueueDecl
    | TransferDecl
    | ServerDecl
    | SessionDecl
    | GaugeDecl
    | ClaimDecl
    | WorkloadDecl
    | ShareDecl
    | RunDecl
)


@dataclass(frozen=True, slots=True)
class SeedProgram:
    """A program of the single-file edition."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of the split edition: what stands before `fn main`, and what stands inside."""

    at: Place
    outer: tuple[Item, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    items: tuple[Item, ...]
