"""How a table with named columns (not tensor shapes) gives its axes and regime: the `tables` section of a mapping.

tables:
  QuantMatmul:
    files: [gemm/gemm_perf]             # <family>/<table>, several are tried in order
    axes: {M: m, K: k, N: n}            # axis name: column, or a list of columns to be added
    regime: {quant: gemm_dtype}         # fact name: column
    constants: {phase: prefill}         # facts that hold for every row of the table
    assumed: {topk: 2048}               # the same for facts that an operator may leave out; a list allows several,
                                        # {model: {NAME: 2048}} says it for rows whose fact `model` is NAME
    where: {beam_width: 1}              # rows that differ are left out, with a count
    variant: kernel_source              # which kernel ran; never mixed in one answer
    add: quantize/scale_matrix_perf     # a second table, added at equal coordinates
    derive: {kv_heads: kv_head_class}   # fact name: a rule over columns, see DERIVED_COLUMNS
    defaults: {window_size: 0}          # what a column that the file lacks reads as
    values: {quant: {fp8_e4m3: fp8}}    # fact name: spellings in the table -> ours
    latency: latency                    # the column of latencies
    latency_unit: ms                    # us or ms; the GPU tables of the package are in ms, any other table must say it
    metadata: [num_max_tokens]          # not compared, but a regime that holds one coordinate under two of these values
                                        # with two latencies is refused; a file may lack them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tensor_cast.errors import nearest
from tensor_cast.files.located_yaml import LocatedYaml

__all__ = ["DERIVED_COLUMNS", "MICROSECONDS", "Assumption", "TableLayout", "parse_layouts"]

_FIELDS: Final = (
    "files",
    "axes",
    "regime",
    "derive",
    "values",
    "latency",
    "latency_unit",
    "constants",
    "assumed",
    "defaults",
    "where",
    "variant",
    "add",
    "metadata",
    "notes",
)

MICROSECONDS: Final[Mapping[str, float]] = MappingProxyType({"us": 1.0, "ms": 1000.0})

# the allowed values of a fact; or a fact, and the allowed values for each of its values
Assumption = tuple[object, ...] | Mapping[str, Mapping[object, Any]]

# rule -> the columns it reads.  `kv_head_class`: "MHA" where KV heads equal query heads, else the number of KV heads;
# `phase_of_isl`: "decode" where a request brings one new token, else "prefill".
DERIVED_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"kv_head_class": ("num_heads", "num_key_value_heads"), "phase_of_isl": ("isl",)}
)


@dataclass(frozen=True)
class TableLayout:
    """One kernel's columns.  `axes` maps an axis to the columns whose sum it is, `derive` a fact to a named rule."""

    kernel: str
    files: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    regime: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    constants: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    where: Mapping[str, tuple[object, ...]] = field(default_factory=lambda: MappingProxyType({}))
    variant: str | None = None
    add: str | None = None
    metadata: tuple[str, ...] = ()
    derive: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    values: Mapping[str, Mapping[object, object]] = field(default_factory=lambda: MappingProxyType({}))
    latency: str = "latency"
    latency_unit: str | None = None
    assumed: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def microseconds(self) -> float:
        """Microseconds in the latency's unit; milliseconds unless the layout says otherwise."""
        return MICROSECONDS[self.latency_unit or "ms"]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column the layout reads."""
        names = [column for group in self.axes.values() for column in group]
        names += [*self.regime.values(), *self.where, *self.metadata]
        names += [column for rule in self.derive.values() for column in DERIVED_COLUMNS[rule]]
        if self.variant:
            names.append(self.variant)
        return tuple(dict.fromkeys(names))

    @property
    def required(self) -> tuple[str, ...]:
        """The columns a file must have: those without a default, and never mere metadata."""
        demanded = replace(self, metadata=()).columns
        return tuple(name for name in demanded if name not in self.defaults)

    @property
    def fact_names(self) -> tuple[str, ...]:
        """The facts that vary inside the table: columns, then derived facts."""
        return (*self.regime, *self.derive)


def parse_layouts(section: dict[object, object], located: LocatedYaml, unknown: list[str]) -> dict[str, TableLayout]:
    """The layouts of a mapping's `tables` section; DataFileError with file and line for a wrong type."""
    return {str(kernel): _layout(str(kernel), value, located, unknown) for kernel, value in section.items()}


def _layout(kernel: str, value: object, located: LocatedYaml, unknown: list[str]) -> TableLayout:
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
    return TableLayout(
        kernel,
        tuple(files),
        MappingProxyType(axes),
        MappingProxyType({str(k): str(v) for k, v in _map(value, "regime", located, keys).items()}),
        MappingProxyType(dict(_map(value, "constants", located, keys))),
        MappingProxyType({str(k): _several(v) for k, v in _map(value, "where", located, keys).items()}),
        _text(value, "variant", located, keys),
        _text(value, "add", located, keys),
        _names(value, "metadata", located, keys),
        MappingProxyType(_rules(value, located, keys)),
        MappingProxyType(dict(_map(value, "defaults", located, keys))),
        MappingProxyType(_spellings(value, located, keys)),
        _text(value, "latency", located, keys) or "latency",
        _unit(value, located, keys),
        MappingProxyType(_assumed(value, located, keys)),
    )


def _unit(value: dict[object, object], located: LocatedYaml, keys: tuple[object, ...]) -> str | None:
    unit = _text(value, "latency_unit", located, keys)
    if unit is not None and unit not in MICROSECONDS:
        raise located.error((*keys, "latency_unit"), f"expected one of {', '.join(MICROSECONDS)}; got {unit!r}")
    return unit


def _several(value: object) -> tuple[object, ...]:
    """One value may stand without a list."""
    return tuple(value) if isinstance(value, list) else (value,)


def _assumed(value: dict[object, object], located: LocatedYaml, keys: tuple[object, ...]) -> dict[str, Assumption]:
    read: dict[str, Assumption] = {}
    for name, item in _map(value, "assumed", located, keys).items():
        if not isinstance(item, dict):
            read[str(name)] = _several(item)
            continue
        place = (*keys, "assumed", name)
        choices = {str(fact): _map(item, fact, located, place) for fact in item}
        if len(choices) != 1:
            raise located.error(
                place, f"expected one fact that the value depends on, got {', '.join(choices) or 'none'}"
            )
        read[str(name)] = {fact: {key: _several(one) for key, one in found.items()} for fact, found in choices.items()}
    return read


def _rules(value: dict[object, object], located: LocatedYaml, keys: tuple[object, ...]) -> dict[str, str]:
    rules = {str(fact): str(rule) for fact, rule in _map(value, "derive", located, keys).items()}
    for fact, rule in rules.items():
        if rule not in DERIVED_COLUMNS:
            known = ", ".join(DERIVED_COLUMNS)
            problem = f"unknown rule {rule!r}{nearest(rule, DERIVED_COLUMNS)}; known: {known}"
            raise located.error((*keys, "derive", fact), problem)
    return rules


def _spellings(
    value: dict[object, object], located: LocatedYaml, keys: tuple[object, ...]
) -> dict[str, Mapping[object, object]]:
    found = _map(value, "values", located, keys)
    return {str(fact): MappingProxyType(dict(_map(found, fact, located, (*keys, "values")))) for fact in found}


def _columns(value: object, located: LocatedYaml, keys: tuple[object, ...]) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) for name in names):
        raise located.error(keys, f"expected a column name or a list of them, got {value!r}")
    return tuple(names)


def _names(value: dict[object, object], key: str, located: LocatedYaml, keys: tuple[object, ...]) -> tuple[str, ...]:
    found = value.get(key, [])
    if not isinstance(found, list) or any(not isinstance(name, str) for name in found):
        raise located.error((*keys, key), f"expected a list of column names, got {found!r}")
    return tuple(found)


def _map(value: dict[Any, object], key: str, located: LocatedYaml, keys: tuple[object, ...]) -> dict[Any, object]:
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise located.error((*keys, key), f"expected a mapping, got {type(found).__name__}")
    return found


def _text(value: dict[object, object], key: str, located: LocatedYaml, keys: tuple[object, ...]) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise located.error((*keys, key), f"expected text, got {type(found).__name__}")
    return found
