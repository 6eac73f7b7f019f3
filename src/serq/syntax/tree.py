"""The syntax tree: what was written, with where it stands (`at`), before any name has a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from serq.errors import Place
from serq.syntax.tree_statements import (
    Aggregate,
    AmountStatement,
    BinaryOp,
    Body,
    CallExpr,
    CallStatement,
    ChooseStatement,
    Conditional,
    CostRecord,
    Draw,
    EntryCall,
    Expression,
    ForkStatement,
    HoldPart,
    HoldStatement,
    IfStatement,
    Keys,
    NameStatement,
    Number,
    Part,
    Path,
    RunStatement,
    SetStatement,
    Statement,
    Text,
    TransferStatement,
    UnaryOp,
    WhileStatement,
    WordStatement,
)

__all__ = [
    "Aggregate",
    "AmountStatement",
    "ArriveItem",
    "BinaryOp",
    "Body",
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
    "Keys",
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
    "SendField",
    "ServerDecl",
    "SessionDecl",
    "SetStatement",
    "ShareDecl",
    "SingleFileProgram",
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


# --- declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class UseDecl:
    at: Place
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class LetDecl:
    at: Place
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class DefDecl:
    """A definition: `value` for an expression body, `body` for statements; `braced` as it was written."""

    at: Place
    name: str
    params: tuple[str, ...]
    value: Expression | None
    body: Body
    braced: bool


@dataclass(frozen=True, slots=True, eq=False)
class StepOption:
    """One option of a step stage: `budget chunk cost memory` with a value, or `serve` with an order."""

    at: Place
    word: str
    value: Expression | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """`kind` is `admission`, `by` (keys), `decode_first` or `exclusive`; `only` limits who is served."""

    kind: str = "admission"
    keys: Keys = ()
    only: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class PoolDecl:
    at: Place
    name: str
    name_at: Place
    size: Expression | None
    options: tuple[PoolOption, ...]
    on: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceDecl:
    """`rates` are time resources (name, parameters, duration), `caps` capacities."""

    at: Place
    name: str
    rates: tuple[DefDecl, ...]
    caps: tuple[LetDecl, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ConnectorDecl:
    at: Place
    name: str
    per_token: Expression | None
    load: Expression | None
    save: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Taking:
    at: Place
    parts: tuple[HoldPart, ...]
    reuse: Expression | None = None
    prefix: tuple[tuple[Expression, Expression], ...] = ()
    cache: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class EntryDecl:
    at: Place
    verb: str
    params: tuple[str, ...]
    source: str | None
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class QueueDecl:
    at: Place
    name: str
    name_at: Place
    size: Expression | None
    roles: tuple[str, ...]
    items: tuple[PoolDecl | DeviceDecl | EngineDecl | StageDecl | EntryDecl, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TransferDecl:
    """`kvt.nixl_pull (SRC, READER, ...)`."""

    at: Place
    kind: str
    source: str
    reader: str
    latency: Expression | None
    share: str


@dataclass(frozen=True, slots=True, eq=False)
class ServerDecl:
    """`params` are (name, hidden, place), `reply` (name, place)."""

    at: Place
    params: tuple[tuple[str, bool, Place], ...]
    reply: tuple[tuple[str, Place], ...]
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class SessionDecl:
    at: Place
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class GaugeDecl:
    at: Place
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDecl:
    at: Place
    name: str
    name_at: Place
    kind: str
    stage: Path | None
    test: Expression
    given: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ArriveItem:
    at: Place
    kind: str
    value: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SendField:
    at: Place
    name: str
    value: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadDecl:
    at: Place
    arrive: ArriveItem | None = None
    trace: tuple[str, bool, Place] | None = None
    init: SessionDecl | None = None
    turn: SessionDecl | None = None
    session: SessionDecl | None = None
    send: tuple[SendField, ...] = ()
    hidden: tuple[tuple[str, Place], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ShareDecl:
    at: Place
    policy: str


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class SingleFileProgram:
    """A program of the single-file edition."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """A deployment of the split edition: what stands before `fn main`, and what stands inside."""

    at: Place
    outer: tuple[Item, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadFile:
    items: tuple[Item, ...]
