"""`castq trace`: published request traces, made into files that serving programs replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from castq.commands.programs import refusals
from castq.streams import STANDARD, label, read_text, write_text
from tensor_cast.errors import InvalidValueError, nearest

__all__ = ["EXAMPLE", "trace"]

EXAMPLE: Final = "Example: castq trace azure-llm-conv-2023.csv --limit 1000 --out conv.csv"
_UNITS: Final = ("s", "ms")

Source = Annotated[str, typer.Argument(metavar="FILE", help="The published trace; - reads standard input.")]
TraceOut = Annotated[str, typer.Option("--out", metavar="FILE", help="The trace file to write; - prints it.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N requests.")]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        "--time-unit",
        metavar="s|ms",
        help="Unit of numeric times; by default s in CSV, ms in JSON lines, as published.",
    ),
]
BlockSize = Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of one block in hash_ids.")]


def trace(
    source: Source, out: TraceOut, limit: Limit = None, unit: TimeUnit = None, block_size: BlockSize = 512
) -> None:
    """Turn a published request trace into a trace file that serving programs replay: one session a request.

    Reads CSV (Azure LLM inference traces; columns of time, prompt and answer under other common names) and JSON lines
    (Mooncake and its like).  The think time of a session is the time of its arrival, as
    examples/serving/arrivals.sq uses it.  What is put in order or left out is said on standard error.  Exit code 0; 1
    if the trace is refused or the file cannot be written; 2 for a wrong call or a missing file.
    """
    from castq.commands import show
    from serq.traces.published import read_requests, trace_text

    if unit is not None and unit not in _UNITS:
        raise InvalidValueError(f"--time-unit {unit!r}: expected s or ms{nearest(unit, _UNITS)}")
    with refusals():
        found = read_requests(read_text(source), _name(source), limit, unit=unit, block_size=block_size)
    for note in found.notes:
        show.say(f"{_name(source)}: {note}", error=True)
    write_text(out, trace_text(found.requests))
    span = f"{len(found.requests)} requests over {found.requests[-1][0]:.6g} s"
    show.say(f"{'standard output' if out == STANDARD else out}: {span}", error=out == STANDARD)


def _name(source: str) -> str:
    return label(source) if source == STANDARD else Path(source).name
