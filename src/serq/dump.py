"""A run's samples, gauges and iterations as CSV files."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from serq.report import Report

__all__ = ["dump_csv"]


def dump_csv(report: Report, folder: Path) -> None:
    """Write `NAME.csv` per observation, `client/` and `gauge/NAME.csv`, and `iterations.csv` into a new folder.

    All of it or nothing: the files are written beside the folder first.  Raises FileExistsError where it exists.
    """
    if folder.exists():
        raise FileExistsError(17, "the folder exists already", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_all(report, place)
        place.rename(folder)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _write_all(report: Report, place: Path) -> None:
    if report.client:
        (place / "client").mkdir()
    for folder, rows in ((place, report.observes), (place / "client", report.client)):
        for row in rows.values():
            samples = zip(row.times, row.sessions, row.turns, row.samples, strict=True)
            _write(folder / f"{row.name}.csv", ("time", "session", "turn", "value"), samples)
    if report.gauges:
        (place / "gauge").mkdir()
    for gauge in report.gauges.values():
        _write(place / "gauge" / f"{gauge.name}.csv", ("time", "value"), zip(gauge.times, gauge.values, strict=True))
    tokens = ((time, name, *grant) for time, name, grants in report.iterations for grant in grants)
    _write(place / "iterations.csv", ("start", "engine", "session", "turn", "kind", "tokens"), tokens)


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(head)
        writer.writerows(rows)
