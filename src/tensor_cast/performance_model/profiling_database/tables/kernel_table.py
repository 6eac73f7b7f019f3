"""One kernel's measured rows, columnar and independent of the file format they came from.

Two shapes of table exist.  A `TensorTable` records each row as tensors (Ascend CSVs); paths read axes and regimes out
of the tensors.  A `ColumnTable` names its axes and regimes as columns (GPU tables); a layout in the mapping says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from tensor_cast.errors import DataFileError
from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.evidence import RowRef
from tensor_cast.performance_model.profiling_database.tables.quiet_collector import collector_at_rest
from tensor_cast.performance_model.profiling_database.tables.shapes import to_nd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensor_cast.performance_model.profiling_database.mapping.table_layout import Assumption

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]

__all__ = [
    "EXACT_LATENCY_COLUMNS",
    "LABELS",
    "ColumnTable",
    "LatencyChoice",
    "LoadReport",
    "TensorTable",
]

AVERAGE: Final = "Average Duration(us)"
PROFILING_AVERAGE: Final = "Profiling Average Duration(us)"
DURATION: Final = "Duration(us)"
EXACT_LATENCY_COLUMNS: Final = (AVERAGE, PROFILING_AVERAGE, DURATION)
CANDIDATE_LATENCY_COLUMNS: Final = (
    PROFILING_AVERAGE,
    "Profiling Median Duration(us)",
    AVERAGE,
    "Median Duration(us)",
    DURATION,
)
LEGACY_LATENCY_COLUMNS: Final[dict[str, str]] = {"MicroBench Duration(us)": AVERAGE}
INPUT_LAYOUT: Final = "Runtime input_layout"
_CAUSES: Final = {"lfs_pointer": "Git-LFS pointer", "no_header": "empty file"}
_Logical = Sequence[tuple[TensorSpec, ...]]
LABELS: Final = ("selected_column", "fallback_column", "unlabelled")


@dataclass(slots=True)
class LoadReport:
    """What a load found: every row is either usable or counted under a reason.

    `unreadable` says in a few words why a file that is there gives no table, and which file; `absent` names the file
    that is not there.
    """

    kernel: str
    source: str = ""
    rows_read: int = 0
    rows_usable: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    repeats_merged: int = 0
    regimes: int = 0
    points_per_regime: tuple[int, int, int] | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: str = ""
    absent: str = ""

    def reject(self, reason: str, where: str) -> None:
        """Count a row that cannot be used; the first example of each reason is kept."""
        self.rejected[reason] += 1
        self.examples.setdefault(reason, where)

    def fail(self, error: DataFileError | OSError, name: str) -> None:
        """Note why the file called `name` gives no table."""
        if not isinstance(error, DataFileError):
            error = DataFileError(name, error.strerror or str(error), code="unreadable")
        self.problems.append(f"{error.code}: {error}")
        if error.code == "table_not_found":
            self.absent = error.path
        else:
            self.unreadable = f"{_CAUSES.get(error.code, error.problem)} ({name or self.kernel})"

    @property
    def status(self) -> str:
        """`ok`, `empty` (no usable row) or the first problem's code."""
        if self.problems:
            return self.problems[0].partition(":")[0]
        return "ok" if self.rows_usable else "empty"

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel,
            "source": self.source,
            "status": self.status,
            "rows_read": self.rows_read,
            "rows_usable": self.rows_usable,
            "rejected": dict(self.rejected),
            "examples": dict(self.examples),
            "repeats_merged": self.repeats_merged,
            "regimes": self.regimes,
            "points_per_regime": None
            if self.points_per_regime is None
            else dict(zip(("min", "median", "max"), self.points_per_regime, strict=True)),
            "problems": list(self.problems),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class LatencyChoice:
    """The latency taken from each row: microseconds (NaN if none), its column, and the file's preferred column."""

    values: FloatArray
    columns: tuple[str, ...]
    column_index: IntArray
    preferred: str | None

    @cached_property
    def numbers(self) -> list[float]:
        """The values as Python floats."""
        numbers: list[float] = self.values.tolist()
        return numbers

    @cached_property
    def labels(self) -> IntArray:
        """`label` of every row."""
        import numpy as np

        of_column = np.array([0 if name == self.preferred else 1 for name in self.columns] or [1], dtype=np.int64)
        return of_column[self.column_index]

    def label(self, row: int) -> int:
        """0 for the file's preferred column, 1 for a fallback column."""
        return 0 if self.columns[self.column_index[row]] == self.preferred else 1


@dataclass(frozen=True)
class TensorTable:
    """Rows as tensors.  Row `i` has `inputs[i]` and `outputs[i]`; None marks an empty slot.

    `suspect` says of a row why its latency may not be what was measured; such a row is used, and every answer that
    rests on it carries the reason.  `plain` promises that every input slot holds a tensor of at least one dimension
    outside tiles, so that the inputs are their own logical form.
    """

    kernel: str
    source: str
    lines: tuple[int, ...]
    inputs: Sequence[tuple[TensorSpec | None, ...]]
    outputs: Sequence[tuple[TensorSpec | None, ...] | None]
    latencies: Mapping[str, FloatArray]
    extra: Mapping[str, tuple[str, ...]]
    report: LoadReport
    synthetic: bool = False
    suspect: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    plain: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def input_shapes(self, row: int) -> tuple[Shape, ...]:
        """Shapes of `row_inputs`."""
        return tuple([spec.shape for spec in self.inputs[row] if spec is not None])

    @cached_property
    def logical_inputs(self) -> Sequence[tuple[TensorSpec, ...]]:
        """Per row the non-scalar inputs with tiles restored to logical ND; the storage format is kept."""
        with collector_at_rest():
            return cast(_Logical, self.inputs) if self.plain else tuple([_logical(slots) for slots in self.inputs])

    def row_inputs(self, row: int) -> tuple[TensorSpec, ...]:
        """The non-empty input tensors of a row, in order."""
        return tuple(spec for spec in self.inputs[row] if spec is not None)

    def row_outputs(self, row: int) -> tuple[TensorSpec, ...] | None:
        """The non-empty outputs of a row, or None where their signature is incomplete."""
        outputs = self.outputs[row]
        return None if outputs is None else tuple(spec for spec in outputs if spec is not None)

    def cell(self, row: int, column: str) -> str | None:
        """The text of an extra column, or None where the column or the value is missing."""
        values = self.extra.get(column)
        text = values[row] if values is not None else ""
        return text or None

    def source_layout(self, rows: Iterable[int]) -> str | None:
        """How the inputs of these rows lie, where it is known; several layouts are parted by `, `.

        `Runtime input_layout` in tables that have it (`TND`), else the storage formats of the filled slots (`ND;ND`).
        """
        names = {self._layout(row): None for row in rows}
        return ", ".join(name for name in names if name) or None

    def _layout(self, row: int) -> str | None:
        if INPUT_LAYOUT in self.extra:
            return self.cell(row, INPUT_LAYOUT)
        return ";".join(spec.format for spec in self.row_inputs(row))

    @cached_property
    def exact_latency(self) -> LatencyChoice:
        """Per row as exact lookup takes it (docs/facts/database-layout.md, "Latency columns")."""
        present = [name for name in EXACT_LATENCY_COLUMNS if name in self.latencies]
        return _choose(self.latencies, present, present[0] if present else None, len(self))

    @cached_property
    def candidate_latency(self) -> LatencyChoice:
        """Per row as interpolation takes it, from more columns (docs/facts/database-layout.md, "Latency columns")."""
        preferred = next((name for name in EXACT_LATENCY_COLUMNS if name in self.latencies), None)
        order = [*([preferred] if preferred else []), *CANDIDATE_LATENCY_COLUMNS]
        present = [name for name in dict.fromkeys(order) if name in self.latencies]
        return _choose(self.latencies, present, preferred, len(self))

    def row_ref(self, row: int, choice: LatencyChoice) -> RowRef:
        """Where a row's latency comes from: file, line, column, value."""
        return RowRef(
            self.source,
            float(choice.values[row]),
            line=self.lines[row],
            index=row,
            column=choice.columns[choice.column_index[row]],
            selection=LABELS[choice.label(row)],
            suspect=self.suspect.get(row, ""),
        )


def _logical(slots: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec, ...]:
    present = tuple([spec for spec in slots if spec is not None and spec.shape])
    for spec in present:
        if spec.format == "FRACTAL_NZ":
            return tuple([replace(spec, shape=to_nd(spec.shape, spec.format)) for spec in present])
    return present


def _choose(latencies: Mapping[str, FloatArray], order: list[str], preferred: str | None, count: int) -> LatencyChoice:
    import numpy as np

    values = np.full(count, np.nan)
    index = np.zeros(count, dtype=np.int64)
    for i, name in enumerate(order):
        column = latencies[name]
        fill = np.isnan(values) & np.isfinite(column) & (column > 0)
        values[fill] = column[fill]
        index[fill] = i
    return LatencyChoice(values, tuple(order), index, preferred)


@dataclass(frozen=True)
class ColumnTable:
    """Rows as named columns, restricted to what the layout needs and with repeats already merged.

    Row `i` lies in regime `regime_keys[regime_codes[i]]` (one value per name in `fact_names`), at coordinate
    `axes[name][i]`, ran kernel `variants[variant_codes[i]]`, took `latency_us[i]` microseconds and stands in
    `files[file_codes[i]]` at 0-based row `rows[i]`.  `repeat_counts` and `spread` (max/min) describe merged repeats;
    `ambiguous` marks coordinates whose repeats disagree by more than the tolerance and which must not be used.
    `constants` are facts of every row, `assumed` the values a fact may have that a question need not state.
    """

    kernel: str
    axes: Mapping[str, FloatArray]
    fact_names: tuple[str, ...]
    regime_keys: tuple[tuple[object, ...], ...]
    regime_codes: IntArray
    variants: tuple[str, ...]
    variant_codes: IntArray
    latency_us: FloatArray
    files: tuple[str, ...]
    file_codes: IntArray
    rows: IntArray
    repeat_counts: IntArray
    spread: FloatArray
    ambiguous: BoolArray
    report: LoadReport
    constants: Mapping[str, object] = field(default_factory=dict)
    assumed: Mapping[str, Assumption] = field(default_factory=dict)
    synthetic: bool = False

    def __len__(self) -> int:
        return len(self.latency_us)

    def row_ref(self, row: int) -> RowRef:
        """Where a point comes from: file, row, kernel, latency, and the repeats merged into it."""
        return RowRef(
            self.files[self.file_codes[row]],
            float(self.latency_us[row]),
            row=int(self.rows[row]),
            column="latency",
            variant=self.variants[self.variant_codes[row]] if self.variants else "",
            merged=int(self.repeat_counts[row]),
            spread=float(self.spread[row]),
        )
