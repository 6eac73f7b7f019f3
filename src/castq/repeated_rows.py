"""Coordinates that a table holds several times with different latencies: where they stand and how far they differ."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from tensor_cast.performance_model.profiling_database.tables.quiet_collector import collector_at_rest

if TYPE_CHECKING:
    from tensor_cast.operators.tensor import TensorSpec
    from tensor_cast.performance_model.profiling_database.tables.communication_csv import CommunicationTable
    from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable

__all__ = ["COMPARED_COLUMNS", "RepeatedRows", "TableRepeats", "repeated_collectives", "repeated_rows"]

# The columns beside tensors and latencies that some lookup compares; the others say where a row comes from.
COMPARED_COLUMNS: Final = (
    "API Path",
    "EP Size",
    "Runtime actual_seq_lengths_kv_values",
    "Runtime actual_seq_lengths_values",
    "Runtime api_path",
    "Runtime avg_seq_len",
    "Runtime batch_size",
    "Runtime input_layout",
    "Runtime metadata_completeness",
    "Runtime num_key_value_heads",
    "Runtime phase",
    "Runtime quant_mode",
    "Runtime sparse_mode",
    "Runtime topk",
    "avg_seq_len",
)
_SHOWN_LINES: Final = 8
_PLAIN: Final = "ND"


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """One coordinate's rows: `lines` of `file` and the latency of each, in file order.

    `coordinate` is told in the table's own columns and spellings, blank ones left out.
    """

    kernel: str
    file: str
    lines: tuple[int, ...]
    latencies_us: tuple[float, ...]
    coordinate: Mapping[str, str]

    @property
    def median_us(self) -> float:
        return statistics.median(self.latencies_us)

    @property
    def ratio(self) -> float:
        """How far the latencies lie apart: the largest over the smallest."""
        return max(self.latencies_us) / min(self.latencies_us)

    @property
    def shown_lines(self) -> str:
        """The first lines, and how many more there are."""
        shown = ",".join(str(line) for line in self.lines[:_SHOWN_LINES])
        more = len(self.lines) - _SHOWN_LINES
        return f"{shown} and {more} more" if more > 0 else shown

    @property
    def shown_coordinate(self) -> str:
        """Input shapes and dtypes, formats where one is not plain, and every fact; what follows from these is not."""
        named = {name: cell for name, cell in self.coordinate.items() if not name.startswith("Output ")}
        shapes, dtypes, formats = (named.pop(f"Input {field}", "") for field in ("Shapes", "Data Types", "Formats"))
        plain = set(formats.split(";")) <= {"", _PLAIN}
        facts = [f"{name}={cell}" for name, cell in named.items()]
        return " ".join(part for part in (shapes, dtypes, "" if plain else formats, *facts) if part)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "file": self.file,
            "lines": list(self.lines),
            "coordinate": dict(self.coordinate),
            "count": len(self.lines),
            "min_us": min(self.latencies_us),
            "median_us": self.median_us,
            "max_us": max(self.latencies_us),
            "latencies_us": list(self.latencies_us),
        }


@dataclass(frozen=True, slots=True)
class TableRepeats:
    """A table's repeats: `merged` rows beyond the first of their coordinate, and those whose latencies `differ`."""

    merged: int = 0
    differ: tuple[RepeatedRows, ...] = ()


def repeated_rows(table: TensorTable) -> TableRepeats:
    """Rows that agree in every tensor's shape, dtype and format and in every column that a lookup compares.

    Of rows of one coordinate those count whose latency stands in the file's preferred column, as in answers.
    """
    names = [name for name in COMPARED_COLUMNS if name in table.extra]
    facts = zip(*(table.extra[name] for name in names), strict=True) if names else repeat(())
    by_place: dict[Hashable, list[int]] = {}
    with collector_at_rest():
        for row, (inputs, outputs, known) in enumerate(zip(table.inputs, table.outputs, facts, strict=False)):
            by_place.setdefault((_slots(inputs), _slots(outputs or ()), known), []).append(row)
    several = [rows for rows in by_place.values() if len(rows) > 1]
    found = (_differing(table, names, rows) for rows in several)
    return TableRepeats(len(table) - len(by_place), tuple(repeats for repeats in found if repeats is not None))


def _slots(specs: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec | None, ...]:
    """The slots up to the last filled one: trailing empty ones may be left out of a row."""
    end = len(specs)
    while end and specs[end - 1] is None:
        end -= 1
    return specs[:end]


def _differing(table: TensorTable, names: list[str], rows: list[int]) -> RepeatedRows | None:
    choice = table.candidate_latency
    best = min(choice.label(row) for row in rows)
    rows = sorted((row for row in rows if choice.label(row) == best), key=table.lines.__getitem__)
    latencies = tuple(choice.numbers[row] for row in rows)
    if not min(latencies) < max(latencies):
        return None
    coordinate = _tensors("Input", table.inputs[rows[0]]) | _tensors("Output", table.outputs[rows[0]] or ())
    coordinate |= {name: table.extra[name][rows[0]] for name in names}
    lines = tuple(table.lines[row] for row in rows)
    return RepeatedRows(table.kernel, table.source, lines, latencies, _filled(coordinate))


def _tensors(side: str, specs: tuple[TensorSpec | None, ...]) -> dict[str, str]:
    slots = _slots(specs)
    cells = {
        "Shapes": ("" if spec is None else ",".join(map(str, spec.shape)) or "()" for spec in slots),
        "Data Types": ("" if spec is None else spec.dtype for spec in slots),
        "Formats": ("" if spec is None else spec.format for spec in slots),
    }
    return {f"{side} {name}": ";".join(texts) for name, texts in cells.items()}


def _filled(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: cell for name, cell in cells.items() if cell}


def repeated_collectives(table: CommunicationTable) -> TableRepeats:
    """Rows of one message size, number of ranks, tier and dtype."""
    by_place: dict[tuple[str, str, str, str], list[tuple[int, float]]] = {}
    for row in (row for rows in table.groups.values() for row in rows):
        tier = "" if row.tier is None else str(row.tier)
        place = (str(row.message_bytes), str(row.num_devices), tier, row.dtype.strip())
        by_place.setdefault(place, []).append((row.line, row.latency_us))
    names = ("message_bytes", "num_devices", "topology_tier", "dtype")
    found = []
    for place, measured in by_place.items():
        lines, latencies = tuple(line for line, _ in measured), tuple(latency for _, latency in measured)
        if min(latencies) < max(latencies):
            coordinate = _filled(dict(zip(names, place, strict=True)))
            found.append(RepeatedRows(table.kernel, table.source, lines, latencies, coordinate))
    return TableRepeats(sum(map(len, by_place.values())) - len(by_place), tuple(found))
