"""A run's samples, gauges and iterations as named tables, for a caller to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from serq import ir
from serq.errors import SerqError
from serq.report.report import Report

__all__ = ["ITERATION_COLUMNS", "DumpTable", "dump_names", "dump_tables"]

_LONGEST: Final = 200
_ITERATIONS: Final = "iterations"
ITERATION_COLUMNS: Final = ("start", "engine", "session", "turn", "kind", "tokens", "context", "blocks", "step")
_OBSERVED, _CLIENT, _GAUGES = "", "client/", "gauge/"


@dataclass(frozen=True, slots=True)
class DumpTable:
    """One table: the path of its file inside the dump, the names of its columns, its rows."""

    name: str
    head: tuple[str, ...]
    rows: Iterable[Sequence[object]]


def dump_names(program: ir.Program) -> list[tuple[str, str]]:
    """The files of the observations and gauges that are not called after them: a name that is taken gets a number.

    Raises SerqError of kind `name` for one that cannot be the name of a file.
    """
    observes = _files(program.observes, "observation", _OBSERVED, (_ITERATIONS,))
    gauges = _files([gauge.name for gauge in program.gauges], "gauge", _GAUGES)
    return [(name, file) for name, file in (*observes.items(), *gauges.items()) if not file.endswith(f"{name}.csv")]


def dump_tables(report: Report) -> Iterator[DumpTable]:
    """Every table of a run that kept its samples: observations, client figures, gauges and iterations.

    Raises SerqError of kind `name` for a name that cannot be the name of a file.
    """
    for rows, what, folder, taken in (
        (report.observes, "observation", _OBSERVED, (_ITERATIONS,)),
        (report.client, "client figure", _CLIENT, ()),
    ):
        files = _files(rows, what, folder, taken)
        for name, row in rows.items():
            samples = zip(row.times, row.sessions, row.turns, row.samples, strict=True)
            yield DumpTable(files[name], ("time", "session", "turn", "value"), samples)
    files = _files(report.gauges, "gauge", _GAUGES)
    for name, gauge in report.gauges.items():
        yield DumpTable(files[name], ("time", "value"), zip(gauge.times, gauge.values, strict=True))
    yield DumpTable(f"{_ITERATIONS}.csv", ITERATION_COLUMNS, _iterations(report))


def _iterations(report: Report) -> Iterator[tuple[object, ...]]:
    """A row for each request of each iteration; what is not known is left empty."""
    for step in report.iterations:
        for one in step.requests:
            known = ("" if value is None else value for value in (one.context, one.blocks))
            yield (step.time, step.engine, one.request, one.turn, one.phase, one.tokens, *known, step.step)


def _files(names: Iterable[str], what: str, folder: str, taken: Iterable[str] = ()) -> dict[str, str]:
    """A file for each name; no two the same, also where capitals and small letters are not told apart."""
    files: dict[str, str] = {}
    used = set(taken)
    for name in names:
        if not name or not name.isprintable() or "/" in name or "\\" in name:
            raise SerqError("name", f"the {what} {name!r} cannot be the name of a file")
        stem = name.encode()[:_LONGEST].decode(errors="ignore")
        free, number = stem, 1
        while free.casefold() in used:
            number += 1
            free = f"{stem}-{number}"
        used.add(free.casefold())
        files[name] = f"{folder}{free}.csv"
    return files
