"""`castq db`: which databases there are, what is in one, and a synthetic one to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from castq.commands.lookup import MappingFile, NoCache
from castq.exit_codes import ExitCode
from tensor_cast.errors import how_to_install

if TYPE_CHECKING:
    from castq.databases import DatabaseCheck
    from castq.repeated_rows import RepeatedRows
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import LoadReport

__all__ = ["app"]

_COLUMNS: Final = ("kernel", "status", "rows", "usable", "merged", "regimes", "points", "rejected")
_NUMBERS: Final = ("rows", "usable", "merged", "regimes", "points", "rejected")
_REPEATS: Final = ("file", "rows", "count", "min us", "median us", "max us", "coordinate")
_SHOWN_REPEATS: Final = 10

JsonFlag = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Profiling databases: list, check, demo.")


@app.command("list", epilog="Example: castq db list demo")
def list_(
    root: Annotated[
        Path | None, typer.Argument(help="Folder to search; the installed GPU data if left out.", readable=False)
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """List the profiling databases under a folder.

    Exit code 0, also where there is none; 2 for a wrong call or a missing folder, 1 if the list cannot be written.
    """
    from castq.commands import show
    from castq.databases import list_databases, listing_to_json

    names = list_databases(root)
    if json_:
        show.print_json(listing_to_json(names))
    elif names:
        show.print_table(("database", "format"), [(name.spelling, name.format) for name in names], fold=False)
    else:
        where = f"under {root}" if root is not None else f"installed ({how_to_install('gpu')} brings GPU data)"
        show.say(f"no database {where}; castq db demo --out DIR writes a synthetic one")


@app.command(epilog="Example: castq db check demo --kernel MatMulV2")
def check(
    where: Annotated[str, typer.Argument(metavar="DIR", help="Folder or name of a database.")],
    kernel: Annotated[str | None, typer.Option(help="This kernel only.")] = None,
    mapping: MappingFile = None,
    no_cache: NoCache = False,
    json_: JsonFlag = False,
) -> None:
    """Load every table of a database and say what is usable, what is rejected and why, and what was measured twice.

    Exit code 0 if every table that is there can be used, 1 if one cannot (a Git-LFS pointer, a missing column), 2 for a
    wrong call or a missing folder.
    """
    from castq.ask import opened
    from castq.commands import show
    from castq.databases import check_database

    database = opened(where, mapping, not no_cache)
    with show.progress("reading tables") as progress:
        found = check_database(database, kernel, progress)
    if json_:
        show.print_json(found.to_json())
    else:
        _show_check(found)
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


@app.command(epilog="Example: castq db demo --out demo --seed 7")
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.", readable=False)],
    seed: Annotated[int, typer.Option(help="Seed of the noise; the same seed gives the same bytes.")] = 0,
    noise: Annotated[float, typer.Option(help="Spread of the noise, 0 for the bare formulas.")] = 0.02,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier demo.")] = False,
    version: Annotated[list[str] | None, typer.Option(help="0.13, 0.15 or 0.18; repeat for several.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Write a synthetic database from stated formulas: no number in it was measured.

    Exit code 0; 1 if it cannot be written; 2 for a wrong call or a folder that holds something already.
    """
    from castq.commands import show
    from tensor_cast.demo import write_demo_database

    report = write_demo_database(out, seed=seed, noise=noise, force=force, versions=tuple(version or ("0.18",)))
    if json_:
        show.print_json(report.to_json())
        return
    for database in report.databases:
        show.say(f"{database.path}: {len(database.rows)} tables, {sum(database.rows.values())} rows, SYNTHETIC data")
    collectives = report.communication_rows
    show.say(f"{report.communication_path}: {len(collectives)} tables, {sum(collectives.values())} rows")


def _show_check(found: DatabaseCheck) -> None:
    from castq.commands import show

    note = f"; {found.provenance}" if found.provenance else ""
    show.say(f"{found.path}: {found.operators} operators, {len(found.tables)} tables{note}")
    show.print_table(_COLUMNS, [_row(report) for report in found.tables], right=_NUMBERS, fold=False)
    for report in found.tables:
        for problem in report.problems:
            show.say(f"problem in {report.kernel}: {problem}")
        for reason, count in report.rejected.items():
            show.say(f"rejected in {report.kernel}: {count} {reason} ({report.examples[reason]})")
    for title, names in (
        ("mapping keys nobody reads", found.unknown_keys),
        ("policies without effect", found.inert_policies),
        ("mapped kernels without a table", found.unmeasured),
        ("tables no entry names", found.unreferenced),
        ("tables that no kernel reads", found.unread),
        ("contradictions between mapping and folder", found.contradictions),
    ):
        if names:
            show.say(f"{title} ({len(names)}): {', '.join(names)}")
    for note, kernels in found.notes:
        show.say(f"note on {', '.join(kernels)}: {note}" if kernels else f"note: {note}")
    if found.repeats:
        _show_repeats(found.repeats)


def _show_repeats(repeats: tuple[RepeatedRows, ...]) -> None:
    from castq.commands import show

    show.say(f"coordinates measured several times with different latencies ({len(repeats)}), the widest first:")
    rows = [_repeated(found) for found in repeats[:_SHOWN_REPEATS]]
    show.print_table(_REPEATS, rows, right=_REPEATS[2:6])
    if len(repeats) > _SHOWN_REPEATS:
        show.say(f"{len(repeats) - _SHOWN_REPEATS} more, see --json")


def _repeated(found: RepeatedRows) -> tuple[object, ...]:
    low, high = min(found.latencies_us), max(found.latencies_us)
    spread = (f"{value:.6g}" for value in (low, found.median_us, high))
    return (found.file, found.shown_lines, len(found.lines), *spread, found.shown_coordinate)


def _row(report: LoadReport) -> tuple[object, ...]:
    spans = report.points_per_regime
    return (
        report.kernel,
        report.status,
        report.rows_read,
        report.rows_usable,
        report.repeats_merged,
        report.regimes,
        "-" if spans is None else f"{spans[0]}/{spans[1]}/{spans[2]}",
        sum(report.rejected.values()),
    )
