"""`castq rfc`: the RFC's operator tables, each row put to the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from castq.exit_codes import ExitCode

if TYPE_CHECKING:
    from castq.rfc.conformance import RfcReport, RowReport

__all__ = ["EXAMPLE", "rfc"]

EXAMPLE: Final = "Example: castq rfc --database h200_sxm/vllm/0.24.0"
_COLUMNS: Final = ("operator", "versions", "path", "axes", "ceiling", "reachable", "synthetic", "own", "real")

Databases = Annotated[
    list[str] | None,
    typer.Option("--database", "-d", metavar="GPU_NAME", help="GPU database to ask as well; repeat for several."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def rfc(database: Databases = None, as_json: AsJson = False) -> None:
    """Ask every operator of the RFC's tables 3.4.1 and 3.4.2 and compare the answers with what its row states.

    Synthetic answers come from a demo database of each version, written to a temporary folder; those under `own` from a
    few rows written for an operator that the demo has none for; real ones from GPU tables, where they hold it.
    Exit code 0 if every row behaves as stated, 1 if one does not, 2 for a wrong call.  What needs SciPy where it is not
    installed is no departure: a note says how to install it.
    """
    from castq.commands import show
    from castq.rfc.conformance import check_rfc

    with show.progress("asking") as progress:
        report = check_rfc(database or None, progress)
    if as_json:
        show.print_json(report.to_json())
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def _show(report: RfcReport) -> None:
    from castq.commands import show

    for table in dict.fromkeys(row.row.table for row in report.rows):
        show.say(f"RFC {table}")
        show.print_table(_COLUMNS, [_cells(row) for row in report.rows if row.row.table == table], fold=False)
    departed = [row for row in report.rows if row.problems]
    for row in departed:
        for problem in row.problems:
            show.say(f"departs from the RFC: {row.row.operator}, {problem}")
    for note in report.notes:
        show.say(note)
    whole = [row for row in report.rows if not row.unasked]
    behaving = len([row for row in whole if not row.problems])
    show.say(f"{behaving} of {len(whole)} rows behave as the RFC states; synthetic answers are no measurements")


def _cells(report: RowReport) -> tuple[str, ...]:
    from castq.rfc.rows import grouped

    row = report.row
    reachable = {version: "yes" if reached else "NO" for version, reached in report.reachable.items()}
    return (
        row.operator,
        ", ".join(row.claims),
        row.text(lambda claim: claim.path),
        row.text(lambda claim: claim.axes_text),
        row.text(lambda claim: claim.ceiling),
        grouped(reachable),
        report.synthetic_text,
        report.own_text,
        report.real_text,
    )
