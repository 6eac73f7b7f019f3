"""`castq lookup`: one operator, or a file of them, against one database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from castq.exit_codes import ExitCode
from tensor_cast.errors import InvalidValueError
from tensor_cast.files.decimal_text import parse_whole

if TYPE_CHECKING:
    from castq.ask import Answer
    from tensor_cast.operators.leaf import LeafOp

__all__ = ["EXAMPLE", "lookup"]

EXAMPLE: Final = (
    "Example: castq lookup -d demo --op aten.mm.default --input 100,5120:bf16 --input 5120,768:bf16 --explain"
)
_OUTCOME: Final = ("source", "confidence", "code", "shape_match", "sub_kernel_shapes", "partial")
_ORDER: Final = ("kernel_type", "interpolation_path", "method", "axes", "target", "axis_boundary", "candidate_count")


Database = Annotated[
    str, typer.Option("--database", "-d", metavar="WHERE", help="Folder or name of the profiling database.")
]
Operator = Annotated[str | None, typer.Option("--op", metavar="NAME", help="Operator, such as aten.mm.default.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="SHAPE:DTYPE[:FORMAT][@ROLE]", help="An input tensor; repeat in order."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--output", metavar="SHAPE:DTYPE[:FORMAT]", help="An output tensor; repeat in order."),
]
Attributes = Annotated[
    list[str] | None, typer.Option("--attr", metavar="NAME=VALUE", help="A non-tensor argument; repeat for several.")
]
QueryLens = Annotated[
    str | None, typer.Option(metavar="LENGTHS", help="New tokens per request: 1,1,1 or, the same, 3x1.")
]
KvLens = Annotated[
    str | None, typer.Option(metavar="LENGTHS", help="Context per request, new tokens included: 8x4096.")
]
PhaseName = Annotated[
    str | None, typer.Option(metavar="NAME", help="prefill, decode or mixed; derived from the lengths if left out.")
]
BlockTable = Annotated[str | None, typer.Option(metavar="SHAPE", help="Shape of the block table: requests,blocks.")]
OperatorFile = Annotated[
    str | None,
    typer.Option("--operator", metavar="FILE", help="JSON of one operator or a list of them; - reads standard input."),
]
EpSize = Annotated[str | None, typer.Option(metavar="N", help="Expert-parallel size.")]
TpSize = Annotated[str, typer.Option(metavar="N", help="Tensor-parallel size.")]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Device profile; by default the one the database declares.")
]
MeasuredOnly = Annotated[bool, typer.Option("--disable-profiling-interpolation", help="Measured rows only.")]
Strict = Annotated[
    bool | None,
    typer.Option("--strict/--compatible", help="Only the very operator matches, or padded ones too; default: mapping."),
]
MappingFile = Annotated[
    str | None, typer.Option("--mapping", metavar="FILE", help="Mapping to use instead of the database's own.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Read the tables themselves; keep nothing.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the evidence, or every attempt of a miss.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def lookup(
    database: Database,
    op: Operator = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    attrs: Attributes = None,
    query_lens: QueryLens = None,
    kv_lens: KvLens = None,
    phase: PhaseName = None,
    block_table: BlockTable = None,
    operator: OperatorFile = None,
    ep_size: EpSize = None,
    tp_size: TpSize = "1",
    device: Device = None,
    measured_only: MeasuredOnly = False,
    strict: Strict = None,
    mapping: MappingFile = None,
    no_cache: NoCache = False,
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """Look one operator up in a profiling database: a measured or interpolated latency, or the reason for none.

    Exit code 0 if answered, 3 if any operator is missed, 2 for a wrong call or a missing file, 1 if the answer cannot
    be written.
    """
    from castq.ask import Setting, ask
    from castq.operator_text import build_operator, read_operators

    lengths = {"query_lens": query_lens, "kv_lens": kv_lens, "phase": phase, "block_table": block_table}
    if operator is not None:
        if any(value is not None for value in (op, inputs, outputs, attrs, *lengths.values())):
            raise InvalidValueError("--operator holds the whole operator: leave out --op and the options describing it")
        leaves, many = read_operators(operator)
    elif op is not None:
        leaves, many = [build_operator(op, inputs or (), outputs or (), attrs or (), **lengths)], False
    else:
        raise InvalidValueError("name an operator with --op, or a JSON file of operators with --operator")
    sizes = (_size(tp_size, "--tp-size"), None if ep_size is None else _size(ep_size, "--ep-size"))
    setting = Setting(not measured_only, device, *sizes, strict, mapping, not no_cache)
    answers = _asked(ask(database, leaves, setting), len(leaves))
    _show(answers, many, explain, as_json)
    if not all(answer.answered for answer in answers):
        raise typer.Exit(ExitCode.MISSED)


def _asked(answers: Iterable[Answer], total: int) -> list[Answer]:
    """The answers, with a bar where somebody waits for many."""
    from castq.commands import show

    found: list[Answer] = []
    with show.progress("asking") as bar:
        for answer in answers:
            found.append(answer)
            if bar is not None:
                bar(answer.leaf.name, len(found), total)
    return found


def _size(text: str, option: str) -> int:
    """A whole number in ASCII digits; what it may be is for the question to say."""
    from castq.operator_text import shown

    value = parse_whole(text)
    if value is None:
        raise InvalidValueError(f"{option} {shown(text)} is not a whole number")
    return value


def _show(answers: Sequence[Answer], many: bool, explain: bool, as_json: bool) -> None:
    from castq.ask import answers_to_json
    from castq.commands import show

    if as_json:
        documents = answers_to_json(answers)
        show.print_json(documents if many else documents[0])
    elif explain:
        for answer in answers:
            show.print_tree(_title(answer, many), explanation(answer))
    elif many:
        rows = [(i + 1, a.leaf.name, _shapes(a.leaf), _latency(a), a.line) for i, a in enumerate(answers)]
        show.print_table(("#", "operator", "inputs", "us", "answer"), rows, right=("#", "us"))
    else:
        show.say(answers[0].line)


def _title(answer: Answer, many: bool) -> str:
    return f"{answer.leaf.name} {_shapes(answer.leaf)}: {answer.line}" if many else answer.line


def _shapes(leaf: LeafOp) -> str:
    shapes = (",".join(str(dim) for dim in spec.shape) or "()" for spec in leaf.inputs)
    return ";".join(shapes)


def _latency(answer: Answer) -> str:
    return "-" if answer.result is None else f"{answer.result.latency_us:.6g}"


def explanation(answer: Answer) -> dict[str, Any]:
    """What `--explain` shows, from the most telling fact to the least."""
    document = answer.to_json()
    details: dict[str, Any] = document.pop("details")
    shown: dict[str, Any] = {"database": _database(answer), "operator": document.pop("operator")}
    shown |= {key: document[key] for key in _OUTCOME if key in document}
    shown |= {key: details.pop(key) for key in _ORDER if key in details}
    rows = details.pop("matched_row_meta", None)
    if rows:
        shown["matched rows"] = {_place(row): _row_cells(row) for row in rows}
    return shown | details


def _database(answer: Answer) -> str:
    return f"{answer.database} (synthetic)" if answer.synthetic else answer.database


def _place(row: Mapping[str, Any]) -> str:
    return f"{row.get('file', '?')}:{row.get('line', row.get('row', '?'))}"


def _row_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("file", "line", "row", "row_index")}
