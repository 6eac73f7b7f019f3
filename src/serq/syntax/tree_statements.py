"""The syntax tree of expressions and statements, with where each stands (`at`), before any name has a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from serq.errors import Place

__all__ = [
    "Aggregate",
    "AmountStatement",
    "BinaryOp",
    "Body",
    "CallExpr",
    "CallStatement",
    "ChooseStatement",
    "Conditional",
    "CostRecord",
    "Draw",
    "EntryCall",
    "Expression",
    "ForkStatement",
    "HoldPart",
    "HoldStatement",
    "IfStatement",
    "Keys",
    "NameStatement",
    "Number",
    "Part",
    "Path",
    "RunStatement",
    "SetStatement",
    "Statement",
    "Text",
    "TransferStatement",
    "UnaryOp",
    "WhileStatement",
    "WordStatement",
]


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    at: Place
    value: float
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string; only `args.number` takes one."""

    at: Place
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One name of a dotted path with its index."""

    at: Place
    name: str
    index: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class CallExpr:
    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """`max j in N (e)`."""

    at: Place
    op: str
    var: str
    count: Expression
    body: Expression


@dataclass(frozen=True, slots=True, eq=False)
class UnaryOp:
    at: Place
    op: str
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class BinaryOp:
    at: Place
    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    at: Place
    test: Expression
    then: Expression
    otherwise: Expression


Expression = Number | Text | Path | CallExpr | Draw | Aggregate | UnaryOp | BinaryOp | Conditional
Keys = tuple[Expression, ...]


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SetStatement:
    """`set`, `Size`, `Cost` or `observe` (the `word`) of one name."""

    at: Place
    word: str
    name: str
    name_at: Place
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class CostRecord:
    """`Cost both = { m: e, s: e };`."""

    at: Place
    name: str
    name_at: Place
    fields: tuple[tuple[Path, Expression], ...]


@dataclass(frozen=True, slots=True, eq=False)
class WordStatement:
    """`turn`, `request`, `end` or `join`."""

    at: Place
    word: str


@dataclass(frozen=True, slots=True, eq=False)
class NameStatement:
    """`mark NAME;`."""

    at: Place
    word: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class HoldPart:
    pool: Path
    units: Expression
    reserve: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HoldStatement:
    at: Place
    parts: tuple[HoldPart, ...]
    body: Body
    prefix: tuple[tuple[Expression, Expression], ...] = ()
    reuse: Expression | None = None
    bindings: tuple[tuple[str, Place, Expression], ...] = ()
    cache: Expression | None = None
    lease: tuple[Path, Expression] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AmountStatement:
    """`grow`, `shrink` or `load` with an amount; `drop` and `release` without."""

    at: Place
    word: str
    pool: Path
    amount: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class TransferStatement:
    at: Place
    stages: tuple[Path, ...]
    amount: Expression
    source: Path
    target: Path
    load: Expression
    member: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IfStatement:
    """`if`/`branch`; `chance` for `branch with (p)`."""

    at: Place
    test: Expression
    then: Body
    otherwise: Body
    chance: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WhileStatement:
    """`while (e)`, or `loop` when there is no test."""

    at: Place
    test: Expression | None
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class ForkStatement:
    at: Place
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class ChooseStatement:
    at: Place
    name: str
    name_at: Place
    count: Expression
    keys: Keys


@dataclass(frozen=True, slots=True, eq=False)
class CallStatement:
    """A statement definition, or a request to an engine."""

    at: Place
    name: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
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
