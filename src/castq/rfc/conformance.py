"""Does every row of the RFC's tables 3.4.1 and 3.4.2 behave as written?  Asked, not assumed.

Each row's questions go to the synthetic database of every version it lists (without noise), and to GPU tables.  Where
no table holds the operator's rows, a few of its own show that it answers once there are some.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from castq.rfc.own_rows import own_database
from castq.rfc.rows import ACCOUNTED, Claim, Probe, RfcRow, RfcRows, grouped, load_rows
from tensor_cast.errors import CastqError, how_to_install

if TYPE_CHECKING:
    from castq.ask import Answer
    from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase
    from tensor_cast.performance_model.profiling_database.mapping.op_mapping import OperatorEntry

__all__ = ["Outcome", "RfcReport", "RowReport", "check_rfc", "outcome_of"]

Progress = Callable[[str, int, int], None]
_ABSENT: Final = "csv_not_found"
_NO_SCIPY: Final = "scipy_unavailable"
_GPU_PACKAGES: Final = ("aiconfigurator_core", "pyarrow")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one question came to: `exact`, `1D` to `3D`, `zero-cost`, `accepted-miss`, or `miss` with its reason.

    `differs` names the regime fields the nearest rows differ in, or why rows were rejected where none was usable.
    """

    kind: str
    reason: str = ""
    differs: tuple[str, ...] = ()
    kernel: str = ""
    axes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        fields = f" ({', '.join(self.differs)})" if self.differs else ""
        return f"miss {self.reason}{fields}" if self.kind == "miss" else self.kind

    def meets(self, expected: str) -> bool:
        """Whether this is the outcome the row states: the kind, then the reason, then each field it names."""
        kind, *more = expected.split()
        if kind != self.kind or not more:
            return kind == self.kind
        return more[0] in (self.reason, self.reason.partition(":")[0]) and set(more[1:]) <= set(self.differs)


@dataclass(frozen=True, slots=True)
class RowReport:
    """One row's outcomes by version and by GPU database, and every departure from what the row states."""

    row: RfcRow
    reachable: Mapping[str, bool]
    synthetic: Mapping[str, tuple[Outcome, ...]]
    real: Mapping[str, Outcome]
    problems: tuple[str, ...]
    own: Mapping[str, tuple[Outcome, ...]] = field(default_factory=dict)

    @property
    def unasked(self) -> int:
        """How many questions could not be asked because SciPy is not installed; none of them is a departure."""
        found = (*(one for outcomes in self.synthetic.values() for one in outcomes), *self.real.values())
        return sum(one.reason == _NO_SCIPY for one in found)

    @property
    def synthetic_text(self) -> str:
        texts = {version: _distinct(outcomes) for version, outcomes in self.synthetic.items()}
        return grouped(texts)

    @property
    def own_text(self) -> str:
        """What rows of its own answer, or `-` where the synthetic tables hold such rows already."""
        return grouped({version: _distinct(found) for version, found in self.own.items()}) if self.own else "-"

    @property
    def real_text(self) -> str:
        """Where GPU tables answer, else the misses of those that hold the operator, else `-`."""
        hits = [f"{name} {found.kernel} {found.text}" for name, found in self.real.items() if found.kind != "miss"]
        misses = [f"{name} {found.text}" for name, found in self.real.items() if found.reason != _ABSENT]
        absent = [f"{name} {found.text}" for name, found in self.real.items()]
        return ", ".join(hits or misses or absent) or "-"

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.row.operator,
            "table": self.row.table,
            "versions": list(self.row.claims),
            "path": {version: claim.path for version, claim in self.row.claims.items()},
            "axes": {version: [list(g) for g in claim.axes] for version, claim in self.row.claims.items()},
            "ceiling": {version: claim.ceiling for version, claim in self.row.claims.items()},
            "reachable": dict(self.reachable),
            "synthetic": {version: [found.text for found in outcomes] for version, outcomes in self.synthetic.items()},
            "own": {version: [found.text for found in outcomes] for version, outcomes in self.own.items()},
            "real": {name: {"outcome": found.text, "kernel": found.kernel} for name, found in self.real.items()},
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class RfcReport:
    """Every row, and what could not be asked."""

    rows: tuple[RowReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(report.problems for report in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "notes": list(self.notes), "rows": [report.to_json() for report in self.rows]}


def check_rfc(
    gpu: Sequence[str] | None = None, progress: Progress | None = None, rows: RfcRows | None = None
) -> RfcReport:
    """Ask every row's questions; `gpu` names GPU databases (None: those of the row file, as far as installed).

    Raises InvalidValueError or UnknownNameError for a named GPU database that cannot be opened.
    """
    rows = rows or load_rows()
    notes: list[str] = []
    databases = _gpu_databases(rows.gpu, notes) if gpu is None else dict(_opened(gpu))
    reports = []
    with tempfile.TemporaryDirectory(prefix="castq-rfc-") as folder:
        demo = _write_demo(Path(folder) / "demo", rows)
        for i, row in enumerate(rows.rows):
            reports.append(_check_row(row, demo, databases, Path(folder) / f"own{i}"))
            if progress is not None:
                progress(row.operator, i + 1, len(rows.rows))
    unasked = sum(report.unasked for report in reports)
    if unasked:
        notes.append(f"{unasked} questions over two or three axes need SciPy: {how_to_install('simplex')} brings it")
    return RfcReport(tuple(reports), tuple(notes))


def outcome_of(answer: Answer) -> Outcome:
    """What an answer came to."""
    from tensor_cast.performance_model.profiling_database.data_source import Miss, QuerySource

    details, found = answer.outcome.details, answer.outcome
    kernel = str(details.get("kernel_type", ""))
    if isinstance(found, Miss):
        return Outcome("miss", found.code, tuple(_differs(details)))
    if found.source is QuerySource.INTERPOLATED:
        return Outcome(f"{details['interpolation_dim']}D", kernel=kernel, axes=tuple(details["axes"]))
    if found.source is not QuerySource.MEASURED:
        return Outcome("miss", str(found.source))
    rule = found.shape_match_info.shape_match_rule if found.shape_match_info is not None else ""
    accounted = rule in ("zero_cost", "accepted_miss")
    return Outcome(rule.replace("_", "-") if accounted else "exact", kernel=kernel)


def _differs(details: Mapping[str, Any]) -> Iterator[str]:
    """Fields the nearest rows differ in; where no row was usable, why."""
    fields = details.get("regime_differs_in", {})
    yield from fields
    if not fields and details.get("target_regime") is not None and "measured_range" not in details:
        for attempt in details.get("attempts", ()):
            if attempt.get("usable_points") == 0:
                yield from attempt.get("rejected_rows", {})


def _check_row(
    row: RfcRow, demo: Mapping[str, ProfilingDatabase], gpu: Mapping[str, ProfilingDatabase], folder: Path
) -> RowReport:
    synthetic = {version: tuple(_ask(demo[version], probe) for probe in row.probes) for version in row.claims}
    reachable = {version: _reaches(demo[version], row, claim) for version, claim in row.claims.items()}
    real = {name: _ask(db, row.real) for name, db in gpu.items() if row.real and row.operator in db.mapping.operators}
    problems = []
    for version, claim in row.claims.items():
        if not reachable[version]:
            problems.append(f"{version}: the mapping does not lead to {claim.path} as stated")
        problems += [
            f"{version}, probe {i}: {text}" for i, text in _departures(claim, claim.expect, synthetic[version])
        ]
    for name, found in real.items():
        if found.reason != _NO_SCIPY and not found.meets(expected := row.real_expect.get(name, found.kind)):
            problems.append(f"{name}: expected {expected}, got {found.text}")
    own = _ask_own(row, demo, folder)
    for version, outcomes in own.items():
        found_wrong = _departures(row.claims[version], row.own.expect if row.own else (), outcomes)
        problems += [f"{version}, rows of its own, probe {i}: {text}" for i, text in found_wrong]
    return RowReport(row, reachable, synthetic, real, tuple(problems), own)


def _ask_own(row: RfcRow, demo: Mapping[str, ProfilingDatabase], folder: Path) -> dict[str, tuple[Outcome, ...]]:
    """What the row's own rows answer under each version's mapping."""
    if row.own is None:
        return {}
    found = {}
    for version in row.claims:
        database = own_database(row.own, demo[version], folder / version)
        found[version] = tuple(_ask(database, probe) for probe in row.own.probes)
    return found


def _departures(claim: Claim, expect: Sequence[str], outcomes: Sequence[Outcome]) -> Iterator[tuple[int, str]]:
    for i, (found, expected) in enumerate(zip(outcomes, expect, strict=True)):
        if found.reason == _NO_SCIPY:
            continue
        if not found.meets(expected):
            yield i + 1, f"expected {expected}, got {found.text}"
        elif found.axes and found.axes not in claim.axes:
            yield i + 1, f"interpolated along {' + '.join(found.axes)}, which the row does not list"


def _reaches(database: ProfilingDatabase, row: RfcRow, claim: Claim) -> bool:
    """Whether the entry has the stated selector and leads to the stated path, or is accounted for as stated."""
    from tensor_cast.performance_model.profiling_database.dispatch import path_for
    from tensor_cast.performance_model.profiling_database.paths.path import OperatorPath

    entry = database.mapping.operators.get(row.operator)
    if entry is None or not all(_has(entry, name, value) for name, value in claim.selector.items()):
        return False
    if claim.path in ("zero-cost", "accepted-miss"):
        return entry.zero_cost if claim.path == "zero-cost" else bool(entry.accepted_miss)
    path = path_for(entry)
    if claim.path in ACCOUNTED:
        return not isinstance(path, OperatorPath)
    return isinstance(path, OperatorPath) and path.name == claim.path


def _has(entry: OperatorEntry, name: str, value: object) -> bool:
    found = getattr(entry, name)
    return bool(found) if value is True else bool(found == value)


def _ask(database: ProfilingDatabase, probe: Probe) -> Outcome:
    from castq.ask import Setting, ask_database

    setting = Setting(ep_size=probe.ep_size, tp_size=probe.tp_size)
    return outcome_of(next(ask_database(database, [probe.leaf], setting)))


def _write_demo(out: Path, rows: RfcRows) -> dict[str, ProfilingDatabase]:
    from tensor_cast.demo import write_demo_database
    from tensor_cast.performance_model.profiling_database.catalogue import open_database

    versions = sorted({version.removeprefix("v") for row in rows.rows for version in row.claims})
    report = write_demo_database(out, noise=0.0, versions=tuple(versions))
    return {f"v{found.version}": open_database(found.path) for found in report.databases}


def _gpu_databases(names: Sequence[str], notes: list[str]) -> dict[str, ProfilingDatabase]:
    """The default GPU databases that are installed; a note says what is not asked and how to get it."""
    if any(find_spec(package) is None for package in _GPU_PACKAGES):
        notes.append(f"GPU tables not asked: {how_to_install('gpu')} brings them")
        return {}
    found: dict[str, ProfilingDatabase] = {}
    for name in names:
        try:
            found |= dict(_opened([name]))
        except CastqError as error:
            notes.append(f"GPU table not asked: {error}")
    return found


def _opened(names: Sequence[str]) -> Iterator[tuple[str, ProfilingDatabase]]:
    from tensor_cast.performance_model.profiling_database.catalogue import open_database

    for name in names:
        yield name, open_database(name)


def _distinct(outcomes: Sequence[Outcome]) -> str:
    return ", ".join(dict.fromkeys(found.text for found in outcomes))
