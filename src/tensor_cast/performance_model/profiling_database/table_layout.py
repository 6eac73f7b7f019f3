"""How a table with named columns (not tensor shapes) gives its axes and regime: the `tables` section of a mapping.

tables:
  QuantMatmul:
    files: [gemm/gemm_perf]             # <family>/<table>, several are tried in order
    axes: {M: m, K: k, N: n}            # axis name: column, or a list of columns to be added
    regime: {quant: gemm_dtype}         # fact name: column
    constants: {phase: prefill}         # facts that hold for every row of the table
    where: {beam_width: 1}              # rows that differ are left out, with a count
    variant: kernel_source              # which kernel ran; never mixed in one answer
    add: quantize/scale_matrix_perf     # a second table, added at equal coordinates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tensor_cast.safe_yaml import LocatedYaml

__all__ = ["TableLayout", "parse_layouts"]

_FIELDS: Final = ("files", "axes", "regime", "constants", "where", "variant", "add", "metadata", "notes")


@dataclass(frozen=True)
class TableLayout:
    """One kernel's columns.  `axes` maps an axis to the columns whose sum it is."""

    kernel: str
    files: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    regime: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    variant: str | None = None
    add: str | None = None
    metadata: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column the layout needs."""
        names = [column for group in self.axes.values() for column in group]
        names += [*self.regime.values(), *self.where, *self.metadata]
        if self.variant:
            names.append(self.variant)
        return tuple(dict.fromkeys(names))


def parse_layouts(section: dict[Any, Any], located: LocatedYaml, unknown: list[str]) -> dict[str, TableLayout]:
    """The layouts of a mapping's `tables` section; DataFileError with file and line for a wrong type."""
    return {str(kernel): _layout(str(kernel), value, located, unknown) for kernel, value in section.items()}


def _layout(kernel: str, value: Any, located: LocatedYaml, unknown: list[str]) -> TableLayout:
    keys: tuple[object, ...] = ("tables", kernel)
    if not isinstance(value, dict):
        raise located.error(keys, f"expected a mapping, got {type(value).__name__}")
    unknown += [f"tables.{kernel}.{key}" for key in value if key not in _FIELDS]
    files = value.get("files")
    if not isinstance(files, list) or not files or any(not isinstance(item, str) for item in files):
        raise located.error((*keys, "files"), "expected a list of <family>/<table> names")
    axes = {
        str(axis): _columns(columns, located, (*keys, "axes", axis))
        for axis, columns in _map(value, "axes", located, keys).items()
    }
    if not axes:
        raise located.error((*keys, "axes"), "a table needs at least one axis")
    where = {
        str(column): tuple(item) if isinstance(item, list) else (item,)
        for column, item in _map(value, "where", located, keys).items()
    }
    return TableLayout(
        kernel,
        tuple(files),
        MappingProxyType(axes),
        MappingProxyType({str(k): str(v) for k, v in _map(value, "regime", located, keys).items()}),
        MappingProxyType(dict(_map(value, "constants", located, keys))),
        MappingProxyType(where),
        _text(value, "variant", located, keys),
        _text(value, "add", located, keys),
        tuple(str(item) for item in value.get("metadata", ())),
    )


def _columns(value: Any, located: LocatedYaml, keys: tuple[object, ...]) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) for name in names):
        raise located.error(keys, f"expected a column name or a list of them, got {value!r}")
    return tuple(names)


def _map(value: dict[Any, Any], key: str, located: LocatedYaml, keys: tuple[object, ...]) -> dict[Any, Any]:
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise located.error((*keys, key), f"expected a mapping, got {type(found).__name__}")
    return found


def _text(value: dict[Any, Any], key: str, located: LocatedYaml, keys: tuple[object, ...]) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise located.error((*keys, key), f"expected text, got {type(found).__name__}")
    return found
