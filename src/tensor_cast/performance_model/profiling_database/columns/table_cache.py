"""Column tables kept in the user's cache folder, so that a new process starts from arrays instead of parquet.

A cached table is used only if it says of itself that it was made by this very code, from this layout, out of files of
this size and these times; anything else (another version's file, a cut or changed one) is ignored and written anew.
Loading costs one read and a checksum, about 5 ms for 100 000 rows, where pyarrow alone takes 100 ms to import.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensor_cast.performance_model.profiling_database.mapping.table_layout import TableLayout
from tensor_cast.performance_model.profiling_database.tables.kernel_table import ColumnTable, LoadReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CachedTable"]

_MAGIC: Final = b"castq column table\n"
_PREFIX: Final = struct.Struct("<QI")
_DTYPES: Final = ("|b1", "|i1", "<i2", "<i4", "<i8", "<f8")
_MADE_BY: Final = ("table_cache", "column_table", "column_rows", "parquet_columns", "csv_columns", "repeats")
_REPORTED: Final = ("rows_read", "rows_usable", "examples", "repeats_merged", "regimes", "notes")
_WHOLE: Final = ("regime_codes", "variant_codes", "rows", "repeat_counts")


class CachedTable:
    """One kernel's place in the cache folder.  `stamp` is what its files look like now."""

    def __init__(self, folder: Path, layout: TableLayout, paths: Iterable[Path], name: str) -> None:
        """`name` is what answers call the table's file.  Raises OSError where a file cannot be looked at."""
        paths = [path.resolve() for path in paths]
        self._layout = layout
        self._name = name
        place = [name, repr(layout), *map(str, paths)]
        self._key = json.dumps([_code(), *place])
        self._paths = paths
        self._path = folder / f"{layout.kernel}-{zlib.crc32(json.dumps(place).encode()):08x}.table"
        self.stamp = _stamp(paths)

    def read(self, max_rows: int) -> ColumnTable | None:
        """The table as it was written, or None where there is none to trust or it has more rows than are read."""
        try:
            header, payload = _unpacked(self._path.read_bytes())
            if header["key"] != self._key or header["files"] != self.stamp or header["rows_read"] > max_rows:
                return None
            return _table(header, payload, self._layout, self._name)
        except (OSError, ValueError, KeyError, TypeError, IndexError, struct.error, OverflowError):
            return None

    def write(self, table: ColumnTable) -> None:
        """Keep the table; a folder that cannot be written to is not an error, nor a file that changed meanwhile."""
        if _stamp(self._paths) != self.stamp:
            return
        header, arrays = _described(table)
        blob = _packed({"key": self._key, "files": self.stamp, **header}, arrays)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self._path, blob)


def _stamp(paths: Iterable[Path]) -> list[list[int]]:
    found = []
    for path in paths:
        status = os.stat(path)
        found.append([status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return found


@cache
def _code() -> int:
    """A checksum of the modules that make a table."""
    here = Path(__file__).parent
    return zlib.crc32(b"".join((here / f"{name}.py").read_bytes() for name in _MADE_BY))


def _replace(path: Path, blob: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(blob)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _packed(header: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    small = {name: _smallest(values) for name, values in arrays.items()}
    listed = [[name, values.dtype.str, len(values)] for name, values in small.items()]
    text = json.dumps({**header, "arrays": listed}).encode()
    body = text + b"".join(values.tobytes() for values in small.values())
    return _MAGIC + _PREFIX.pack(len(text), zlib.crc32(body)) + body


def _unpacked(blob: bytes) -> tuple[dict[str, Any], bytes]:
    start = len(_MAGIC) + _PREFIX.size
    length, checksum = _PREFIX.unpack(blob[len(_MAGIC) : start])
    if not blob.startswith(_MAGIC) or zlib.crc32(memoryview(blob)[start:]) != checksum:
        raise ValueError("not a whole cached table")
    return json.loads(blob[start : start + length]), blob[start + length :]


def _smallest(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The same values in as few bytes as hold them exactly; one value where all are equal."""
    if len(values) and (values == values[0]).all():
        values = values[:1]
    if values.dtype == bool or not len(values) or not (np.floor(values) == values).all():
        return values
    low, high = values.min(), values.max()
    kinds = (np.int8, np.int16, np.int32, np.int64)
    kind = next((kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max), None)
    return values if kind is None else values.astype(kind)


def _described(table: ColumnTable) -> tuple[dict[str, object], dict[str, NDArray[Any]]]:
    report = table.report
    header = {name: getattr(report, name) for name in _REPORTED} | {
        "rejected": dict(report.rejected),
        "points_per_regime": report.points_per_regime,
        "count": len(table),
        "axes": list(table.axes),
        "regime_keys": table.regime_keys,
        "variants": table.variants,
        "file": table.files[0],
    }
    arrays = {f"axis {axis}": values for axis, values in table.axes.items()}
    arrays |= {name: getattr(table, name) for name in (*_WHOLE, "latency_us", "spread", "ambiguous")}
    return header, arrays


def _table(header: dict[str, Any], payload: bytes, layout: TableLayout, name: str) -> ColumnTable:
    count, arrays, at = header["count"], {}, 0
    for key, kind, size in header["arrays"]:
        if kind not in _DTYPES or size not in (1, count):
            raise ValueError(f"array {key}: {kind}, {size} values")
        values = np.frombuffer(payload, dtype=kind, count=size, offset=at)
        at += values.nbytes
        wide = bool if key == "ambiguous" else np.int64 if key in _WHOLE else np.float64
        arrays[key] = np.full(count, values[0], dtype=wide) if size < count else values.astype(wide)
    report = LoadReport(layout.kernel, name, rejected=Counter(header["rejected"]))
    for field in _REPORTED:
        setattr(report, field, header[field])
    report.points_per_regime = tuple(header["points_per_regime"])
    return ColumnTable(
        kernel=layout.kernel,
        axes={axis: arrays[f"axis {axis}"] for axis in header["axes"]},
        fact_names=layout.fact_names,
        regime_keys=tuple(map(tuple, header["regime_keys"])),
        variants=tuple(header["variants"]),
        files=(header["file"],),
        file_codes=np.zeros(count, dtype=np.int64),
        report=report,
        constants=dict(layout.constants),
        assumed=dict(layout.assumed),
        regime_codes=arrays["regime_codes"],
        variant_codes=arrays["variant_codes"],
        rows=arrays["rows"],
        repeat_counts=arrays["repeat_counts"],
        latency_us=arrays["latency_us"],
        spread=arrays["spread"],
        ambiguous=arrays["ambiguous"],
    )
