"""`castq lookup`: one operator, or a file of them, against one database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tensor_cast.errors import InvalidValueError

if TYPE_CHECKING:
    from castq.ask import Answer
    from tensor_cast.leaf import LeafOp

__all__ = ["EXAMPLE", "lookup"]

EXAMPLE: Final = (
    "Example: castq lookup -d demo --op aten.mm.default --input 100,5120:bf16 --input 5120,768:bf16 --explain"
)
_MISSED: Final = 3
_OUTCOME: Final = ("source", "confidence", "code", "shape_match", "sub_kernel_shapes", "partial")
_ORDER: Final = ("kernel_type", "interpolation_path", "method", "axes", "target", "axis_boundary", "candidate_count")


def lookup(
    database: Annotated[
        str, typer.Option("--database", "-d", metavar="WHERE", help="Folder or name of the profiling database.")
    ],
    op: Annotated[str | None, typer.Option(help="Operator, such as aten.mm.default.")] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SHAPE:DTYPE[:FORMAT][@ROLE]", help="An input tensor; repeat in order."),
    ] = None,
    output: Annotated[
        list[str] | None, typer.Option(metavar="SHAPE:DTYPE[:FORMAT]", help="An output tensor; repeat in order.")
    ] = None,
    attr: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A non-tensor argument.")] = None,
    query_lens: Annotated[
        str | None, typer.Option(metavar="LENGTHS", help="New tokens per request: 1,1,1 or 3x1.")
    ] = None,
    kv_lens: Annotated[
        str | None, typer.Option(metavar="LENGTHS", help="Context per request, new tokens included: 8x4096.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="prefill, decode or mixed; derived from the lengths if left out.")
    ] = None,
    block_table: Annotated[
        str | None, typer.Option(metavar="SHAPE", help="Shape of the block table: requests,blocks.")
    ] = None,
    operator: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON of one operator or a list of them; - reads standard input.")
    ] = None,
    ep_size: Annotated[int | None, typer.Option(help="Expert-parallel size.")] = None,
    tp_size: Annotated[int, typer.Option(help="Tensor-parallel size.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="Device profile; by default the one the database declares.")
    ] = None,
    disable_profiling_interpolation: Annotated[
        bool, typer.Option("--disable-profiling-interpolation", help="Measured rows only.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the evidence, or every attempt of a miss.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Look one operator up in a profiling database: a measured or interpolated latency, or the reason for none.

    Exit code 0 if answered, 3 if any operator is missed, 2 for a wrong call.
    """
    from castq.ask import Setting, ask
    from castq.operator_text import build_operator, read_operators

    described = (op, input_, output, attr, query_lens, kv_lens, phase, block_table)
    if operator is not None:
        if any(value is not None for value in described):
            raise InvalidValueError("--operator holds the whole operator: leave out --op and the options describing it")
        leaves, many = read_operators(operator)
    elif op is not None:
        lengths = {"query_lens": query_lens, "kv_lens": kv_lens, "phase": phase, "block_table": block_table}
        leaves, many = [build_operator(op, input_ or (), output or (), attr or (), **lengths)], False
    else:
        raise InvalidValueError("name an operator with --op, or a JSON file of operators with --operator")
    setting = Setting(not disable_profiling_interpolation, device, tp_size, ep_size)
    answers = list(ask(database, leaves, setting))
    _show(answers, many, explain, json_)
    if not all(answer.answered for answer in answers):
        raise typer.Exit(_MISSED)


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
        typer.echo(answers[0].line)


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
    facts: dict[str, Any] = {"database": _database(answer), "operator": document.pop("operator")}
    facts |= {key: document[key] for key in _OUTCOME if key in document}
    facts |= {key: details.pop(key) for key in _ORDER if key in details}
    rows = details.pop("matched_row_meta", None)
    if rows:
        facts["matched rows"] = [_row(row) for row in rows]
    return facts | details


def _database(answer: Answer) -> str:
    return f"{answer.database} (synthetic)" if answer.synthetic else answer.database


def _row(row: Mapping[str, Any]) -> str:
    place = f"{row.get('file', '?')}:{row.get('line', row.get('row', '?'))}"
    rest = {key: value for key, value in row.items() if key not in ("file", "line", "row", "row_index")}
    return f"{place}  " + ", ".join(f"{key}={value}" for key, value in rest.items())
