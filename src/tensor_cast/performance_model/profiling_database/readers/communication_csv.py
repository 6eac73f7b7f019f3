"""Communication micro-benchmarks (`hcom_*.csv`): latency by message bytes, devices and topology tier.

Source: profiling database facts, section 3.6; exact-lookup facts, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tensor_cast.performance_model.profiling_database.kernel_table import LoadReport
from tensor_cast.performance_model.profiling_database.readers.ascend_csv import parse_latency, read_rows

__all__ = ["CommunicationRow", "CommunicationTable", "read_communication_table"]

_REQUIRED: Final = ("message_bytes", "num_devices", "Duration(us)")


@dataclass(frozen=True, slots=True)
class CommunicationRow:
    """One measured collective; `tier` is None where the table has no such column."""

    message_bytes: int
    num_devices: int
    tier: int | None
    latency_us: float
    line: int
    dtype: str


@dataclass(frozen=True)
class CommunicationTable:
    """Rows by (devices, tier), each list sorted by message bytes, file order kept among equals."""

    kernel: str
    source: str
    report: LoadReport
    has_tier: bool
    groups: dict[tuple[int, int | None], tuple[CommunicationRow, ...]] = field(default_factory=dict)
    synthetic: bool = False

    def rows(self, num_devices: int, tier: int | None) -> tuple[CommunicationRow, ...]:
        """Rows of one group; without a tier on either side every tier of the device count counts."""
        if tier is not None and self.has_tier:
            return self.groups.get((num_devices, tier), ())
        rows = [row for (devices, _), group in self.groups.items() if devices == num_devices for row in group]
        return tuple(sorted(rows, key=lambda row: (row.message_bytes, row.line)))


def read_communication_table(path: Path, *, synthetic: bool = False) -> CommunicationTable:
    """Read one collective's table; DataFileError as in the tensor reader, rows rejected with a count."""
    report = LoadReport(path.stem, path.name)
    rows = read_rows(path, _REQUIRED)
    header = next(rows).cells
    at = {name: i for i, name in enumerate(header)}
    groups: dict[tuple[int, int | None], list[CommunicationRow]] = {}
    for record in rows:
        report.rows_read += 1
        parsed = _parse(record.cells, at, record.line) if len(record.cells) >= len(header) else "short_row"
        if isinstance(parsed, str):
            report.reject(parsed, f"{path.name}:{record.line}")
            continue
        report.rows_usable += 1
        groups.setdefault((parsed.num_devices, parsed.tier), []).append(parsed)
    ordered = {
        key: tuple(sorted(group, key=lambda row: (row.message_bytes, row.line))) for key, group in groups.items()
    }
    return CommunicationTable(path.stem, path.name, report, "topology_tier" in at, ordered, synthetic)


def _parse(cells: list[str], at: dict[str, int], line: int) -> CommunicationRow | str:
    try:
        size = int(cells[at["message_bytes"]])
        devices = int(cells[at["num_devices"]])
        tier = int(cells[at["topology_tier"]]) if "topology_tier" in at and cells[at["topology_tier"]] else None
    except ValueError:
        return "number_unparsable"
    if size <= 0 or devices <= 0:
        return "dimension_not_positive"
    latency, problem = parse_latency(cells[at["Duration(us)"]])
    if problem:
        return problem
    dtype = cells[at["dtype"]] if "dtype" in at else ""
    return CommunicationRow(size, devices, tier, latency, line, dtype)
